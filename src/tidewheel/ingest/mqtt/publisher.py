"""Publishing to an MQTT broker: for replays, for programs that make messages, for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidewheel.errors import DefinitionError, SetupError
from tidewheel.ingest.message import Message
from tidewheel.ingest.mqtt.client import Broker, refusal
from tidewheel.model.time import Duration, duration

if TYPE_CHECKING:
    from paho.mqtt.reasoncodes import ReasonCode

__all__ = ["MqttPublisher"]


class MqttPublisher:
    """Publishes messages with QoS 1, many at a time, and reconnects by itself.

    At most `max_in_flight` messages (fewer if the broker says so) wait for the broker's acknowledgement. A message
    may reach the broker twice if the connection breaks: QoS 1 is no more than that.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        client_id: str = "",
        max_in_flight: int = 1_000,
        timeout: str | timedelta | Duration = "60 s",
    ) -> None:
        if max_in_flight < 1:
            raise DefinitionError(f"max_in_flight must be at least 1, got {max_in_flight}")
        self._broker = broker
        self._max_in_flight = max_in_flight
        self._timeout = duration(timeout, what="timeout") / 1_000_000
        self._changed = threading.Condition()
        self._unacknowledged = 0
        self._limit = 0  # until the broker has said how much it takes
        self._failure: SetupError | None = None
        self._client = broker.client(client_id)
        self._client.max_inflight_messages_set(max_in_flight)
        self._client.on_connect = self._on_connect
        self._client.on_publish = self._on_publish
        self._client.connect_async(broker.host, broker.real_port, keepalive=broker.keepalive_seconds)
        self._client.reconnect_delay_set(1, 30)
        self._client.loop_start()

    def publish(self, messages: Iterable[Message]) -> int:
        """Publish all messages; returns their number when the broker has accepted every one. `SetupError` if it refuses
        one, or acknowledges nothing for `timeout`."""
        count = 0
        for message in messages:
            with self._changed:
                self._wait_until(lambda: self._unacknowledged < self._limit)
                self._unacknowledged += 1
            self._client.publish(message.topic, message.payload, qos=1)
            count += 1
        with self._changed:
            self._wait_until(lambda: self._unacknowledged == 0)
        return count

    def close(self) -> None:
        """Disconnect. What `publish` has returned for is with the broker."""
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> MqttPublisher:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        while self._failure is not None or not condition():
            if self._failure is not None:
                raise self._failure
            if not self._changed.wait(self._timeout):
                raise SetupError(
                    f"the broker at {self._broker.address} has acknowledged nothing for {self._timeout:g} s; "
                    "is it running, and is the address right?"
                )

    def _on_connect(self, _: Any, __: Any, ___: Any, reason: ReasonCode, properties: Any) -> None:
        with self._changed:
            if reason.is_failure:
                self._failure = refusal(self._broker, reason)
            else:
                self._limit = min(self._max_in_flight, getattr(properties, "ReceiveMaximum", 65_535))
            self._changed.notify_all()

    def _on_publish(self, _: Any, __: Any, ___: int, reason: ReasonCode, *____: Any) -> None:
        with self._changed:
            self._unacknowledged -= 1
            if reason.is_failure:
                self._failure = SetupError(
                    f"the broker at {self._broker.address} refused a message ({reason}); "
                    "ask for the right to publish it, or choose another topic"
                )
            self._changed.notify_all()
