"""Instants and durations: whole microseconds since 1970 in UTC, and their notation."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from itertools import pairwise

from tidewheel.errors import DefinitionError

__all__ = [
    "EARLIEST",
    "LATEST",
    "Duration",
    "Instant",
    "approximate_duration",
    "duration",
    "format_duration",
    "format_instant",
    "instant",
    "moment",
    "now",
    "short_instant",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports


Instant = int
"""Microseconds since 1970-01-01T00:00:00Z."""

Duration = int
"""Microseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS: dict[str, int] = {
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_TERM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)", re.IGNORECASE)


def now() -> Instant:
    """The wall clock. Jobs never call it: they read their batch's clock."""
    return time.time_ns() // 1_000


def duration(text: str | timedelta | int, *, what: str = "duration", bare: bool = False) -> Duration:
    """Microseconds of a duration as people write it. A bare number is refused, since it may mean any unit; with
    `bare=True` an int is taken as microseconds already.

    >>> duration("5 s"), duration("1 min 30 s"), duration("250ms"), duration(timedelta(hours=1))
    (5000000, 90000000, 250000, 3600000000)
    """
    if isinstance(text, timedelta):
        return text // timedelta(microseconds=1)
    if isinstance(text, (int, float)) and not isinstance(text, bool) and not bare and text:
        raise DefinitionError(
            f'{what}: {text} of which unit? Say it, like "{text} s" or "{text} min", or give a timedelta'
        )
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if not isinstance(text, str):
        raise DefinitionError(f'{what} must be text like "5 s" or a timedelta, got {text!r}')
    position, total = 0, 0.0
    stripped = text.strip()
    sign = -1 if stripped.startswith("-") else 1
    body = stripped.lstrip("+-")
    while position < len(body):
        match = _TERM.match(body, position)
        unit = match and (_UNITS.get(match[2].lower()) or _UNITS.get(match[2].lower().rstrip("s")))
        if not match or not unit:
            total = -1
            break
        total += float(match[1]) * unit
        position = match.end()
    if total < 0 or not body:
        raise DefinitionError(f'{what} must be text like "500 ms", "5 s", "1 min 30 s" or "2 h", got {text!r}')
    return sign * round(total)


def instant(value: str | datetime | int, *, what: str = "time") -> Instant:
    """Microseconds of an instant given as ISO text or datetime; what names no zone is UTC, an int is taken as is.

    >>> instant("1970-01-01T00:00:01Z"), instant("1970-01-01T02:00:01.5+02:00")
    (1000000, 1500000)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(_ISO_FRACTION.sub(_six_digits, value.strip().replace("Z", "+00:00")))
        except ValueError:
            raise DefinitionError(
                f"{what} must be ISO text like 2026-01-31T12:00:00Z, a datetime or microseconds, got {value!r}"
            ) from None
    if not isinstance(value, datetime):
        raise DefinitionError(f"{what} must be ISO text, a datetime or microseconds, got {value!r}")
    if value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    return (value - _EPOCH) // timedelta(microseconds=1)


EARLIEST, LATEST = instant(datetime.min), instant(datetime.max.replace(microsecond=0))
"""The instants between which a calendar can tell them."""

# Python 3.10 reads only three or six digits of a second's fraction.
_ISO_FRACTION = re.compile(r"(?<=:\d\d)\.(\d+)")


def _six_digits(match: re.Match[str]) -> str:
    return "." + match[1][:6].ljust(6, "0")


def moment(value: Instant) -> datetime:
    """The datetime of an instant, in UTC: what `instant` takes. `OverflowError` outside the years 1 to 9999.

    >>> moment(1_500_000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + timedelta(microseconds=value)


def format_instant(value: Instant) -> str:
    """ISO text of an instant; instants beyond the year 9999 are given as a number.

    >>> format_instant(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    try:
        when = moment(value)
    except OverflowError:
        return f"{value} µs"
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if when.year >= 1000 else f"{value} µs"


def short_instant(value: Instant) -> str:
    """Format an instant as ISO text in UTC, to the millisecond, without a zero fraction.

    >>> short_instant(1_500_000), short_instant(60_000_000)
    ('1970-01-01T00:00:01.5Z', '1970-01-01T00:01:00Z')
    """
    text = format_instant(value)
    return f"{text[:-4].rstrip('0').rstrip('.')}Z" if text.endswith("Z") else text


def approximate_duration(value: Duration) -> str:
    """Format a duration approximately, leaving out what is too small to matter. `format_duration` is exact.

    >>> approximate_duration(32_198_400_000_000), approximate_duration(95_400_000_000), approximate_duration(8_450_000)
    ('372 d', '1 d 2 h', '8.4 s')
    >>> approximate_duration(1_234), approximate_duration(0), approximate_duration(-61_500_000)
    ('1.2 ms', '0 s', '-1 min 1 s')
    """
    if value < 0:
        return "-" + approximate_duration(-value)
    for (name, size), (small, unit) in pairwise(_LARGEST_FIRST):
        count, rest = divmod(int(value), size)
        if count >= 10:
            return f"{count} {name}"
        if count and size <= 1_000_000:
            return f"{count + rest * 10 // size / 10:g} {name}"
        if count:
            return f"{count} {name}" + (f" {rest // unit} {small}" if rest >= unit else "")
    return f"{int(value)} µs" if value else "0 s"


_LARGEST_FIRST = (
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("µs", 1),
)


def format_duration(value: Duration) -> str:
    """Write the shortest readable text of a duration.

    >>> format_duration(90_000_000), format_duration(1_500), format_duration(0)
    ('1 min 30 s', '1.5 ms', '0 s')
    """
    if value < 0:
        return "-" + format_duration(-value)
    if value == 0:
        return "0 s"
    if value < 1_000:
        return f"{value} µs"
    if value < 1_000_000:
        return f"{value / 1_000:g} ms"
    parts = []
    for name, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000)):
        count, value = divmod(value, size)
        if count:
            parts.append(f"{count} {name}")
    if value:
        parts.append(f"{value / 1_000_000:g} s")
    return " ".join(parts)
