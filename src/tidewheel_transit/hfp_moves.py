"""Move HFP messages in time and to other vehicles, for replays."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

import tidewheel as tw
from tidewheel.ingest import Message
from tidewheel_transit.hfp_payload import Seconds
from tidewheel_transit.hfp_topic import parse_topic, with_vehicle

__all__ = ["VEHICLES", "event_time", "moved"]

VEHICLES: Final = 100_000
"""How many vehicle numbers there are: what the numbers of one replica are ahead of those of the one before."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)


class _Times(Struct, gc=False):
    tst: datetime | None = None
    tsi: Seconds | None = None


_TIMES: Final = Decoder(dict[str, _Times])
_FIELDS: Final = Decoder(dict[str, dict[str, Raw]])
_TIME: Final = Decoder(datetime | None)
_INT: Final = Decoder(int | None)
_TEXT: Final = Decoder(str | None)


def event_time(payload: bytes) -> tw.time.Instant | None:
    """The event time of a message: `tst`, or `tsi` where there is no `tst`; None if that cannot be read."""
    try:
        (times,) = _TIMES.decode(payload).values()
        if times.tst is not None:
            return (times.tst - _EPOCH) // _MICROSECOND
    except (ValueError, TypeError, RecursionError):  # TypeError: a time without a zone
        return None
    return None if times.tsi is None else times.tsi * 1_000_000


def moved(message: Message, *, by: tw.time.Duration, copy: int) -> Message:
    """The message with its times (`tst`, `tsi`, `ttarr`, `ttdep`, arrival) moved, and its vehicle number, in topic and
    payload, higher by `VEHICLES` x copy. The operating day moves by whole days, the nearest to `by`, so that a journey
    stays one journey. A message that cannot be read is returned as it is."""
    try:
        info = parse_topic(message.topic)
        payload = _FIELDS.decode(message.payload)
        fields: dict[str, Any] = payload[info.payload_name]
        _move(fields, timedelta(microseconds=by))
        topic = message.topic
        if copy:
            topic = with_vehicle(topic, info.vehicle + VEHICLES * copy)
            vehicle = _INT.decode(fields["veh"]) if "veh" in fields else None
            if vehicle is not None:
                fields["veh"] = vehicle + VEHICLES * copy
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return message
    return Message(topic, msgspec.json.encode(payload), message.received_at + by)


def _move(fields: dict[str, Any], by: timedelta) -> None:
    seconds = round(by / _SECOND)
    for name in ("ttarr", "ttdep", "tst"):
        time = _TIME.decode(fields[name]) if name in fields else None
        if time is not None:
            fields[name] = time + by
            if name == "tst":  # tsi keeps its distance to it
                seconds = (time + by - _EPOCH) // _SECOND - (time - _EPOCH) // _SECOND
    tsi = _INT.decode(fields["tsi"]) if "tsi" in fields else None
    if tsi is not None:
        fields["tsi"] = tsi + seconds
    day = _TEXT.decode(fields["oday"]) if "oday" in fields else None
    if day is not None:
        with suppress(ValueError):  # no date: nothing that could be moved
            fields["oday"] = (date.fromisoformat(day) + round(by / _DAY) * _DAY).isoformat()
