"""Shared parts of MQTT clients: the broker's address, credentials, and topic filters."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tidewheel.errors import DefinitionError, SetupError
from tidewheel.model.time import Duration, duration

try:
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode
    from paho.mqtt.subscribeoptions import SubscribeOptions
except ImportError as error:
    raise SetupError("MQTT needs the package paho-mqtt; get it with: pip install 'tidewheel[mqtt]'") from error

__all__ = ["Broker", "Tls", "check_filters", "refusal", "session_properties", "subscribe"]

_REFUSALS = {
    0x84: "it does not speak MQTT 5; use a broker that does",
    0x85: "it does not allow this client id; choose another",
    0x86: "the user name or the password is wrong",
    0x87: "this user (or an anonymous one) is not allowed in; give a user name and password, or a client certificate",
    0x8A: "this client is banned",
    0x8C: "it wants another way of authentication",
    0x8E: "another client with the same client id took over the session; give each process its own source name",
}


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS settings: `ca` is a file of trusted certificates (None: the system's); `certificate` and `key` are this
    client's own, if the broker requires them. `insecure` skips verification: for tests only."""

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """The settings for Python's TLS; `SetupError` names a file that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            raise SetupError(
                f"TLS cannot be set up with ca={self.ca}, certificate={self.certificate}, key={self.key}: {error}"
            ) from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class Broker:
    """The address and credentials of an MQTT broker. The port is 8883 with TLS and 1883 without unless given.

    >>> Broker("mqtt.example.org", tls=Tls()).address
    'mqtts://mqtt.example.org:8883'
    """

    host: str
    """Its name or address."""
    port: int = 0
    """0 stands for the usual one."""
    tls: Tls | None = None
    """How to encrypt, and whom to trust; without it nothing is encrypted."""
    username: str | None = None
    """Who logs in."""
    password: str | None = field(default=None, repr=False)
    """The user's password."""
    keepalive: str | timedelta | Duration = "60 s"
    """How long the connection may be silent."""

    def __post_init__(self) -> None:
        if not self.host:
            raise DefinitionError("the host of an MQTT broker must not be empty")
        if not 0 <= self.port <= 65535:
            raise DefinitionError(f"the port of an MQTT broker must be from 1 to 65535, got {self.port}")
        if self.password is not None and self.username is None:
            raise DefinitionError("a password for the MQTT broker needs a username")
        if not 1 <= self.keepalive_seconds <= 65535:
            raise DefinitionError(f"keepalive must be from 1 s to 65535 s, got {self.keepalive!r}")

    @property
    def keepalive_seconds(self) -> int:
        """The longest silence that the connection allows."""
        return duration(self.keepalive, what="keepalive") // 1_000_000

    @property
    def real_port(self) -> int:
        """The port that was given, or the usual one."""
        return self.port or (8883 if self.tls else 1883)

    @property
    def address(self) -> str:
        """The address, without the password."""
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.real_port}"

    def client(self, client_id: str, *, manual_ack: bool = False) -> paho.Client:
        """Make a client that is ready to connect."""
        client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, protocol=paho.MQTTv5, manual_ack=manual_ack
        )
        if self.username is not None:
            client.username_pw_set(self.username, self.password)
        if self.tls is not None:
            client.tls_set_context(self.tls.context())
        return client


def session_properties(*, expiry_seconds: int, receive_maximum: int) -> Properties:
    """The properties of a connection: a session that outlives the connection, and a limit of unacknowledged
    messages."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = expiry_seconds
    properties.ReceiveMaximum = receive_maximum
    return properties


def subscribe(client: paho.Client, filters: Sequence[str]) -> None:
    """Subscribe with QoS 1, without retained messages, which would come again at every start."""
    options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
    client.subscribe([(each, options) for each in filters])


def refusal(broker: Broker, reason: ReasonCode) -> SetupError | None:
    """The error for a reason that trying again cannot fix; None if it can."""
    explanation = _REFUSALS.get(reason.value)
    return SetupError(f"the broker at {broker.address} refused: {explanation} ({reason})") if explanation else None


def check_filters(filters: Sequence[str]) -> None:
    """Refuse filters that MQTT does not allow, and those that overlap: a broker may send a message once for each.

    >>> check_filters(["/shop/v2/till/+/+/#", "/shop/v2/orders/#"])
    >>> check_filters(["a/+/c", "a/b/#"])
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: subscriptions 'a/+/c' and 'a/b/#' overlap: what fits both would come twice; ...
    """
    if not filters:
        raise DefinitionError("nothing to subscribe to; give at least one MQTT topic filter, such as 'shop/#'")
    for each in filters:
        levels = each.split("/")
        if not each or "#" in levels[:-1] or any(len(part) > 1 and ("#" in part or "+" in part) for part in levels):
            raise DefinitionError(
                f"{each!r} is not an MQTT topic filter: + stands for one whole level, # for all the last levels"
            )
    for place, one in enumerate(filters):
        for other in filters[place + 1 :]:
            if _overlap(one, other):
                raise DefinitionError(
                    f"subscriptions {one!r} and {other!r} overlap: what fits both would come twice; "
                    "leave one out or make them disjoint"
                )


def _overlap(one: str, other: str) -> bool:
    a, b = _levels(one), _levels(other)
    if a[0][:1] == "$" != b[0][:1] or b[0][:1] == "$" != a[0][:1]:
        return a[0] == b[0]  # wildcards do not stand for topics that begin with $
    for x, y in zip(a, b, strict=False):
        if "#" in (x, y):
            return True
        if x != y and "+" not in (x, y):
            return False
    shorter, longer = sorted((a, b), key=len)
    return len(a) == len(b) or longer[len(shorter) :] == ["#"]


def _levels(topic_filter: str) -> list[str]:
    levels = topic_filter.split("/")
    return levels[2:] if levels[0] == "$share" and len(levels) > 2 else levels
