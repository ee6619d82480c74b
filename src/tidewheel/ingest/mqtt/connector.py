"""MQTT 5: a connector that acknowledges a message when the log has it.

QoS 1 promises that a message comes at least once. That it is in the log exactly once is the connector's work: it
remembers, in the log and in the same transaction as the messages, which packets it has appended and cannot yet know to
be acknowledged. After a lost connection or a crash the broker sends such packets again, marked as duplicates (DUP) and
with their old packet ids; those in memory are acknowledged and counted as repeated, all others are new. A packet
without the mark is always new, so a vehicle that publishes the same text twice is in the log twice.

The broker confirms in order: behind the acknowledgements of a batch goes a request that changes nothing (to leave a
subscription that does not exist), and its answer tells that the acknowledgements were read. Only then is the batch
forgotten, so the memory is no longer than what is in flight, and packet ids may be used again at once.

What this cannot do: a broker that loses its session (no persistence, expired, killed before it saved) loses what it
had not delivered; and one that comes back with an older store sends again what was confirmed since, which looks new.
mosquitto saves its store when it is stopped and every `autosave_interval`. Beyond `max_queued_messages` (1,000 by
default) it drops what a slow or absent subscriber has not fetched: set it to 0 where nothing may be lost. Its version
2.0.11 sends more than `receive_maximum`; the memory used here is bounded all the same, because nothing is read from
the connection during a delivery.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidewheel.errors import DefinitionError, FencedError, LogError, SetupError
from tidewheel.ingest.connector import Deliver
from tidewheel.ingest.ingest_pb2 import MqttState
from tidewheel.ingest.message import Message
from tidewheel.ingest.mqtt.client import Broker, Tls, check_filters, refusal, session_properties, subscribe
from tidewheel.ingest.mqtt.publisher import MqttPublisher
from tidewheel.model.time import Duration, duration, now

if TYPE_CHECKING:
    import paho.mqtt.client as paho
    from paho.mqtt.reasoncodes import ReasonCode

__all__ = ["Broker", "MqttConnector", "MqttPublisher", "Tls"]

_logger = logging.getLogger(__name__)
_NO_SUBSCRIPTION = "tidewheel/no/such/subscription"
_MOST_REMEMBERED = 65_535
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 30.0
_STOP_SECONDS = 0.2  # how long a stop may go unnoticed
_GOODBYE_SECONDS = 5.0


class MqttConnector:
    """Brings what is published at a broker. See the module for what it promises.

    Args:
        broker: The broker, and how to log in.
        subscriptions: What to subscribe to, as MQTT topic filters.
        client_id: Names the session that the broker keeps while the connector is away: it must be the same at every
            start, and no other process may use it.
        session_expiry: How long the broker keeps the session.
        receive_maximum: How many messages the broker sends ahead of their acknowledgement, so that a slow log holds it
            back.
        batch_size: Messages are delivered when so many of them are there.
        linger: Or so long after the first of them came.
    """

    resumes = True

    def __init__(
        self,
        broker: Broker,
        subscriptions: Sequence[str],
        *,
        client_id: str,
        session_expiry: str | timedelta | Duration = "1 d",
        receive_maximum: int = 2_000,
        batch_size: int = 1_000,
        linger: str | timedelta | Duration = "100 ms",
    ) -> None:
        check_filters(subscriptions)
        if not client_id:
            raise DefinitionError("client_id must not be empty: it is how the broker knows the session again")
        if not 1 <= receive_maximum <= 65_535:
            raise DefinitionError(f"receive_maximum must be from 1 to 65535, got {receive_maximum}")
        if batch_size < 1:
            raise DefinitionError(f"batch_size must be at least 1, got {batch_size}")
        if broker.tls is not None:
            broker.tls.context()
        self.name = broker.address
        self.broker = broker
        self.subscriptions = tuple(subscriptions)
        self.client_id = client_id
        self.session_expiry = duration(session_expiry, what="session_expiry")
        self.receive_maximum = receive_maximum
        self.batch_size = min(batch_size, receive_maximum)
        self.linger = duration(linger, what="linger")

    def run(self, deliver: Deliver, stop: threading.Event) -> None:
        """Bring messages until `stop` is set. Connects again by itself, and waits for a broker that is not there, and
        for a log that cannot be written; `SetupError` if the broker refuses in a way that waiting cannot fix."""
        _BrokerSession(self, deliver, stop).run()


@dataclass(frozen=True, slots=True)
class _Received:
    message: Message
    packet_id: int  # 0: needs no acknowledgement
    key: int
    resent: bool


class _Memory:
    """The packets that the log has and the broker may send again, by the number of the request whose answer will
    confirm them; 0 stands for packets of earlier connections."""

    def __init__(self, keys: Iterable[int]) -> None:
        self._packets: dict[int, set[int]] = {0: set(keys)}
        self._with_new: set[int] = set()

    def __contains__(self, key: int) -> bool:
        return any(key in packets for packets in self._packets.values())

    def __iter__(self) -> Iterator[int]:
        return (key for packets in self._packets.values() for key in packets)

    def add(self, request: int, received: Iterable[_Received]) -> None:
        acknowledged = [each for each in received if each.packet_id]
        self._packets[request] = {each.key for each in acknowledged}
        if any(not each.resent for each in acknowledged):
            self._with_new.add(request)
        while len(self._packets) > 1 and sum(map(len, self._packets.values())) > _MOST_REMEMBERED:
            del self._packets[next(iter(self._packets))]

    def confirm(self, request: int) -> None:
        """Note that the broker has read the acknowledgements up to this request's."""
        if any(number <= request for number in self._with_new):
            # What is sent again comes before what is new, so there is no more of it.
            self._packets.pop(0, None)
        self._with_new = {number for number in self._with_new if number > request}
        self._packets = {number: keys for number, keys in self._packets.items() if number > request or number == 0}

    def disconnected(self) -> None:
        self._packets, self._with_new = {0: set(self)}, set()

    def clear(self) -> None:
        self._packets, self._with_new = {0: set()}, set()


class _BrokerSession:
    """One run of a connector. One thread does everything in turn: it reads packets, delivers, acknowledges. While it
    delivers nothing is read, so what the log cannot take stays with the broker."""

    def __init__(self, connector: MqttConnector, deliver: Deliver, stop: threading.Event) -> None:
        self._connector = connector
        self._deliver = deliver
        self._stop = stop
        self._had_session = False
        self._recall()
        self._received: list[_Received] = []
        self._due_at = 0.0
        self._requests: dict[int, int] = {}
        self._request = 0
        self._wait = _FIRST_WAIT
        self._subscribed = False
        self._leaving = False
        self._trouble = ""
        self._failure: SetupError | None = None
        self._client = connector.broker.client(connector.client_id, manual_ack=True)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_unsubscribe = self._on_unsubscribe
        self._client.on_message = self._on_message

    def run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    if not self._certain:
                        self._recall()
                    self._connection()
                except FencedError:
                    raise
                except LogError as error:
                    if self._stop.is_set():
                        raise
                    self._give_back(error)
                if not self._stop.is_set():
                    _logger.warning("%s: %s; trying again in %.1f s", self._connector.name, self._trouble, self._wait)
                    self._stop.wait(self._wait)
                    self._wait = min(2 * self._wait, _LONGEST_WAIT)
        finally:
            self._client.disconnect()

    def _recall(self) -> None:
        """Recall what the log knows of this session."""
        kept = MqttState.FromString(self._deliver.state)
        self._memory = _Memory(kept.logged)
        self._left_subscriptions = sorted(set(kept.subscriptions) - set(self._connector.subscriptions))
        self._had_session = self._had_session or bool(kept.subscriptions)
        self._note_due = list(kept.subscriptions) != list(self._connector.subscriptions)
        self._certain = True

    def _give_back(self, error: LogError) -> None:
        """What the log did not take stays with the broker, which sends it again on the next connection; and if the log
        has it after all, it says so then."""
        self._received.clear()
        self._requests.clear()
        self._certain = False
        self._client.disconnect()
        self._trouble = f"the log does not take messages: {error}"

    def _connection(self) -> None:
        """From connecting until the connection is lost or the connector is to stop."""
        broker = self._connector.broker
        try:
            self._client.connect(
                broker.host,
                broker.real_port,
                keepalive=broker.keepalive_seconds,
                clean_start=False,
                properties=session_properties(
                    expiry_seconds=min(self._connector.session_expiry // 1_000_000, 0xFFFFFFFF),
                    receive_maximum=self._connector.receive_maximum,
                ),
            )
        except ssl.SSLCertVerificationError as error:
            raise SetupError(
                f"the broker at {self._connector.name} has a certificate that is not trusted: {error.verify_message}; "
                "give the file of the authority that signed it as ca, and the host as the certificate names it"
            ) from None
        except OSError as error:
            self._trouble = f"cannot connect: {error}"
            return
        alive = True
        while alive and not self._stop.is_set():
            alive = self._client.loop(self._patience()) == 0
            if self._failure is not None:
                raise self._failure
            if self._note_due and self._subscribed:
                self._note_due = False
                self._deliver([], state=self._state())
            if self._received and (len(self._received) >= self._connector.batch_size or not self._patience()):
                self._flush()
        self._flush()
        if alive:
            self._wait_for_confirmation()
        self._memory.disconnected()
        self._requests.clear()

    def _patience(self) -> float:
        """Seconds to wait for the next packet."""
        return max(0.0, min(self._due_at - time.monotonic(), _STOP_SECONDS)) if self._received else _STOP_SECONDS

    def _flush(self) -> None:
        """Deliver what was received, then acknowledge it."""
        received, self._received = self._received, []
        if not received:
            return
        new = [each.message for each in received if not (each.resent and each.key in self._memory)]
        self._request += 1
        self._memory.add(self._request, received)
        self._deliver(new, repeated=len(received) - len(new), state=self._state())
        if self._client.is_connected():
            for each in received:
                if each.packet_id:
                    self._client.ack(each.packet_id, 1)
            _, number = self._client.unsubscribe(_NO_SUBSCRIPTION)
            if number is not None:
                self._requests[number] = self._request

    def _wait_for_confirmation(self) -> None:
        """Wait until the acknowledgements have been read, so that the next start gets nothing again."""
        self._leaving = True
        deadline = time.monotonic() + _GOODBYE_SECONDS
        while self._requests and time.monotonic() < deadline and self._client.loop(_STOP_SECONDS) == 0:
            pass

    def _state(self) -> bytes:
        return MqttState(subscriptions=self._connector.subscriptions, logged=self._memory).SerializeToString()

    def _on_connect(self, client: paho.Client, _: Any, flags: paho.ConnectFlags, reason: ReasonCode, *__: Any) -> None:
        if reason.is_failure:
            self._trouble = f"the broker refused: {reason}"
            self._failure = refusal(self._connector.broker, reason)
            return
        self._wait = _FIRST_WAIT
        if not flags.session_present:
            self._memory.clear()
            self._note_due = True
            if self._had_session:
                _logger.warning(
                    "%s: the broker no longer has the session of client %s: what it was sent since and could not "
                    "deliver is lost",
                    self._connector.name,
                    self._connector.client_id,
                )
        elif self._left_subscriptions:
            client.unsubscribe(self._left_subscriptions)
        self._had_session = True
        self._subscribed = False
        subscribe(client, self._connector.subscriptions)

    def _on_disconnect(self, _: Any, __: Any, ___: Any, reason: ReasonCode, *____: Any) -> None:
        self._trouble = f"connection lost: {reason}"
        self._failure = self._failure or refusal(self._connector.broker, reason)

    def _on_subscribe(self, _: Any, __: Any, ___: int, reasons: Sequence[ReasonCode], *____: Any) -> None:
        for topic_filter, reason in zip(self._connector.subscriptions, reasons, strict=False):
            if reason.is_failure:
                self._failure = SetupError(
                    f"the broker at {self._connector.name} does not allow to subscribe to {topic_filter!r} ({reason}); "
                    "ask for the right to read it, or subscribe to less"
                )
                return
            if reason.value < 1:
                _logger.warning(
                    "%s: the broker gives %r with QoS 0 only: what it sends while the connection is broken is lost",
                    self._connector.name,
                    topic_filter,
                )
        self._subscribed = True
        _logger.info("%s: subscribed", self._connector.name)

    def _on_unsubscribe(self, _: Any, __: Any, number: int, *___: Any) -> None:
        request = self._requests.pop(number, None)
        if request is not None:
            self._memory.confirm(request)

    def _on_message(self, _: Any, __: Any, packet: paho.MQTTMessage) -> None:
        if self._leaving:
            return
        try:
            topic = packet.topic
        except UnicodeDecodeError:
            topic = packet._topic.decode(errors="replace")
        payload = bytes(packet.payload)
        if not self._received:
            self._due_at = time.monotonic() + self._connector.linger / 1_000_000
        self._received.append(
            _Received(
                Message(topic, payload, now()),
                packet_id=packet.mid if packet.qos else 0,
                key=_key(packet.mid, topic, payload),
                resent=packet.dup,
            )
        )


def _key(packet_id: int, topic: str, payload: bytes) -> int:
    """What a packet is known again by: its id in the low 16 bits, then 48 bits of a hash of what it says."""
    digest = hashlib.blake2b(topic.encode() + b"\0" + payload, digest_size=6).digest()
    return int.from_bytes(digest, "big") << 16 | packet_id
