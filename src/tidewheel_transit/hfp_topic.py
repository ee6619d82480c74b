"""The MQTT topics of HFP v2: what they say of a message, and the filters to subscribe to parts of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Final, Literal, NamedTuple, NoReturn

import tidewheel as tw
from tidewheel_transit.topics import EVENTS, MODES

__all__ = ["BadMessageError", "TopicInfo", "parse_topic", "topic_filters", "with_vehicle"]

_DEADRUN: Final = "/hfp/v2/deadrun/"
_VEHICLE_LEVEL: Final = 8
# Four and five digits in nature; a replay's copies have more (see HfpProcessor.moved). Nine always fit an int32.
_OPERATOR: Final = re.compile(r"[0-9]{4,9}")
_VEHICLE: Final = re.compile(r"[0-9]{5,9}")
_START: Final = re.compile(r"[0-9]{2}:[0-9]{2}")
_DIRECTIONS: Final[dict[str, Literal[1, 2] | None]] = {"1": 1, "2": 2, "": None}


class BadMessageError(tw.errors.MalformedError):
    """A message that is not HFP v2 as it should be; `kind` is what to count it by."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class TopicInfo(NamedTuple):
    """The fields of a topic; empty ones are None."""

    journey: str
    temporal: str
    event: str
    mode: str
    operator: int
    vehicle: int
    route: str | None
    direction: int | None
    headsign: str | None
    start: str | None
    next_stop: str | None
    key: bytes
    """Of the vehicle: operator and number, such as b"0055/01216"."""
    payload_name: str
    """The event type as the payload should name it, in capitals."""


def parse_topic(topic: str) -> TopicInfo:
    """Parse a topic; `BadMessageError` if it is not one of HFP v2.

    A headsign may contain slashes, so what stands before it is counted from the front and the rest from the end. The
    geohash and its level are left out: they only repeat the payload's coordinates. So is the junction at the end of
    traffic-light topics, which is in their payload as well.

    >>> info = parse_topic("/hfp/v2/journey/ongoing/vp/bus/0055/01216/1069/1/Malmi/Malm/07:20/1130106/2/60;24/19/73/44")
    >>> info.key, info.headsign, info.start, info.next_stop
    (b'0055/01216', 'Malmi/Malm', '07:20', '1130106')
    """
    try:
        # Without level and geohash the topic of a vehicle stays the same from stop to stop, which the cache needs.
        return _parse(topic if topic.startswith(_DEADRUN) else topic.rsplit("/", 5)[0])
    except BadMessageError as error:
        raise BadMessageError(error.kind, f"{error}; the topic is {_shown(topic)}") from None


@lru_cache(maxsize=1 << 16)
def _parse(beginning: str) -> TopicInfo:
    levels = beginning.split("/")
    if levels[:3] != ["", "hfp", "v2"]:
        _refuse("topic does not begin with /hfp/v2/")
    if len(levels) <= _VEHICLE_LEVEL:
        _refuse("topic has too few levels")
    journey, temporal, event, mode, operator, vehicle = levels[3 : _VEHICLE_LEVEL + 1]
    if journey not in ("journey", "deadrun"):
        _refuse(f"journey type {_shown(journey)} is neither journey nor deadrun")
    if temporal not in ("ongoing", "upcoming"):
        _refuse(f"temporal type {_shown(temporal)} is neither ongoing nor upcoming")
    if event not in EVENTS:
        _refuse(f"event type {_shown(event)} is not one of {' '.join(EVENTS)}", kind="unknown-event")
    if mode not in MODES:
        _refuse(f"mode {_shown(mode)} is not one of {' '.join(MODES)}", kind="unknown-mode")
    if not _OPERATOR.fullmatch(operator):
        _refuse(f"operator {_shown(operator)} is not four digits")
    if not _VEHICLE.fullmatch(vehicle):
        _refuse(f"vehicle {_shown(vehicle)} is not five digits")
    route = direction = headsign = start = next_stop = ""
    if journey == "journey":
        route, direction, headsign, start, next_stop = _parse_journey(event, levels[_VEHICLE_LEVEL + 1 :])
    return TopicInfo(
        journey=journey,
        temporal=temporal,
        event=event,
        mode=mode,
        operator=int(operator),
        vehicle=int(vehicle),
        route=route or None,
        direction=_DIRECTIONS[direction],
        headsign=headsign or None,
        start=start or None,
        next_stop=next_stop or None,
        key=b"%04d/%05d" % (int(operator), int(vehicle)),
        payload_name=event.upper(),
    )


def _parse_journey(event: str, levels: list[str]) -> tuple[str, str, str, str, str]:
    """Route, direction, headsign, start and next stop from the levels between vehicle and geohash level."""
    if event in ("tlr", "tla") and len(levels) > 5 and _START.fullmatch(levels[-3]):
        levels = levels[:-1]  # the junction at the end of the topic has left the geohash level here
    if len(levels) < 5:
        _refuse("topic has too few levels")
    route, direction, *headsign, start, next_stop = levels
    if direction not in _DIRECTIONS:
        _refuse(f"direction {_shown(direction)} is neither 1 nor 2")
    if start and not _START.fullmatch(start):
        _refuse(f"start {_shown(start)} is not HH:MM")
    for text in (route, *headsign, next_stop):
        if not _is_unicode(text):
            _refuse("topic is not UTF-8")
    return route, direction, "/".join(headsign), start, next_stop


def topic_filters(
    *,
    journeys: Sequence[str] = ("journey",),
    temporals: Sequence[str] = ("ongoing",),
    events: Sequence[str] | None = None,
    modes: Sequence[str] | None = None,
    operators: Sequence[int] | None = None,
) -> tuple[str, ...]:
    """MQTT filters that together match each message of these parts once; None: all.

    >>> topic_filters()
    ('/hfp/v2/journey/ongoing/+/+/#',)
    >>> topic_filters(events=["vp"], modes=["tram", "metro"], operators=[40])
    ('/hfp/v2/journey/ongoing/vp/tram/0040/#', '/hfp/v2/journey/ongoing/vp/metro/0040/#')
    """
    ends = ("#",) if operators is None else tuple(f"{operator:04d}/#" for operator in operators)
    parts = product(journeys, temporals, events or ("+",), modes or ("+",), ends)
    return tuple("/hfp/v2/" + "/".join(part) for part in parts)


def with_vehicle(topic: str, vehicle: int) -> str:
    """A topic that `parse_topic` takes, with another vehicle number in it."""
    levels = topic.split("/", _VEHICLE_LEVEL + 1)
    levels[_VEHICLE_LEVEL] = f"{vehicle:05d}"
    return "/".join(levels)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 120 else text[:117] + "...")


def _refuse(reason: str, *, kind: str = "bad-topic") -> NoReturn:
    raise BadMessageError(kind, reason)
