"""The payload of HFP v2: one key, the event type in capitals, over an object."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder

from tidewheel_transit.hfp_topic import BadMessageError
from tidewheel_transit.topics import EVENTS
from tidewheel_transit.transit_pb2 import Arrival, Departure, Door

__all__ = ["Body", "Seconds", "StopBody", "read_payload"]

Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
# Wide enough for any broken sensor, and narrow enough for a 32-bit float.
Reading: TypeAlias = Annotated[float, Meta(ge=-1e6, le=1e6)]
Seconds: TypeAlias = Annotated[int, Meta(ge=0, le=7_289_654_399)]  # to the end of 2200
Time: TypeAlias = Annotated[datetime, Meta(tz=True)]

EARLIEST_YEAR: Final = 1970
LATEST_YEAR: Final = 2200


class Body(Struct, gc=False):
    """The fields of every event type. A missing one and null are the same."""

    tst: Time | None = None
    tsi: Seconds | None = None
    oper: Int32 | None = None
    veh: Int32 | None = None
    lat: Annotated[float, Meta(ge=-90, le=90)] | None = None
    long: Annotated[float, Meta(ge=-180, le=180)] | None = None
    spd: Reading | None = None
    acc: Reading | None = None
    hdg: Int32 | None = None
    dl: Int32 | None = None
    odo: Int32 | None = None
    drst: Int32 | None = None
    desi: str | None = None
    dir: Literal["1", "2", 1, 2] | None = None
    oday: str | None = None
    jrn: Int32 | None = None
    line: Int32 | None = None
    start: str | None = None
    loc: str | None = None
    stop: Annotated[int, Meta(ge=0, le=2**53)] | str | None = None  # documented as text, sent as a number
    route: str | None = None
    occu: Int32 | None = None


class StopBody(Body, gc=False):
    """The additional fields of events at a stop."""

    ttarr: Time | None = None
    ttdep: Time | None = None


class _ExactBody(Body, gc=False, forbid_unknown_fields=True):
    pass


class _ExactStopBody(StopBody, gc=False, forbid_unknown_fields=True):
    pass


class _Form:
    """A kind of payload and how to read it: fast if it has only known fields, or with others."""

    def __init__(self, exact: type[Body], open_: type[Body]) -> None:
        self.exact: Decoder[dict[str, Body]] = Decoder(dict[str, exact])  # type: ignore[valid-type]
        self.open: Decoder[dict[str, Body]] = Decoder(dict[str, open_])  # type: ignore[valid-type]
        self.known = frozenset(open_.__struct_fields__)


_PLAIN = _Form(_ExactBody, Body)
_AT_STOP = _Form(_ExactStopBody, StopBody)
_FORMS: Final = {
    event.upper(): _AT_STOP if home.message in (Arrival, Departure, Door) else _PLAIN for event, home in EVENTS.items()
}
_ANYTHING: Final = Decoder(dict[str, dict[str, Raw]])


def read_payload(payload: bytes, name: str) -> tuple[Body, dict[str, Raw] | None]:
    """Parse a payload that must be of event type `name`: its object, and the fields that are not known, if there are.

    `BadMessageError` says what is wrong: no JSON, another event type than the topic's, a value of the wrong type or
    out of its range, no time or one that cannot be.
    """
    form = _FORMS[name]
    extra = None
    try:
        bodies = form.exact.decode(payload)
    except (ValueError, RecursionError):
        bodies, extra = _read_open(form, payload, name)
    body = bodies.get(name)
    if body is None or len(bodies) != 1:
        found = ", ".join(ascii(key)[:40] for key in list(bodies)[:5]) or "nothing"
        raise BadMessageError("event-mismatch", f"the topic says {name} and the payload has {found}")
    _check_times(body)
    return body, extra


def _read_open(form: _Form, payload: bytes, name: str) -> tuple[dict[str, Body], dict[str, Raw]]:
    try:
        bodies = form.open.decode(payload)
        fields = _ANYTHING.decode(payload).get(name, {})
        extra = {field: value for field, value in fields.items() if field not in form.known}
        for value in extra.values():
            bytes(value).decode()  # what is skipped is not checked
    except msgspec.ValidationError as error:
        raise BadMessageError("bad-value", f"payload: {error}") from None
    except (ValueError, RecursionError) as error:
        raise BadMessageError("bad-json", f"payload: {error}") from None
    return bodies, extra


def _check_times(body: Body) -> None:
    if body.tst is None and body.tsi is None:
        raise BadMessageError("no-time", "payload has neither tst nor tsi")
    times = (body.tst, body.ttarr, body.ttdep) if isinstance(body, StopBody) else (body.tst,)
    for time in times:
        if time is not None and not EARLIEST_YEAR <= time.year <= LATEST_YEAR:
            reason = f"time {time.isoformat()} is not between {EARLIEST_YEAR} and {LATEST_YEAR}"
            raise BadMessageError("bad-value", reason)
