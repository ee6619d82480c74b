"""The topic and the message type of each HFP event type."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from google.protobuf.message import Message as ProtobufMessage

from tidewheel_transit.transit_pb2 import (
    Arrival,
    Departure,
    Door,
    SignIn,
    TrafficLight,
    VehiclePosition,
)

__all__ = ["EVENTS", "MODES", "TOPICS", "Home"]


class Home(NamedTuple):
    """The one topic of an event type, and the message that its records hold."""

    topic: str
    message: type[ProtobufMessage]


TOPICS: Final[Mapping[str, type[ProtobufMessage]]] = MappingProxyType(
    {
        "input.vehicle-position": VehiclePosition,
        "input.arrival": Arrival,
        "input.departure": Departure,
        "input.door": Door,
        "input.traffic-light": TrafficLight,
        "input.sign-in": SignIn,
    }
)
"""Every input topic of the use case and its message type."""

_EVENTS_OF_TOPIC = {
    "input.vehicle-position": ("vp",),
    "input.arrival": ("due", "arr", "ars"),
    "input.departure": ("wait", "pde", "dep", "pas"),
    "input.door": ("doo", "doc"),
    "input.traffic-light": ("tlr", "tla"),
    "input.sign-in": ("da", "dout", "ba", "bout", "vja", "vjout"),
}

EVENTS: Final[Mapping[str, Home]] = MappingProxyType(
    {event: Home(topic, TOPICS[topic]) for topic, events in _EVENTS_OF_TOPIC.items() for event in events}
)
"""Every event type, in small letters as in the MQTT topic, and its home.

>>> EVENTS["ars"].topic, EVENTS["ars"].message.DESCRIPTOR.name
('input.arrival', 'Arrival')
"""

MODES: Final = ("bus", "tram", "train", "ferry", "metro", "ubus", "robot")
"""The transport modes of the MQTT topic."""
