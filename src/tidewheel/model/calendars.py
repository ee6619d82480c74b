"""The hours, days, weeks, months and years of a time zone, as instants."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from tidewheel.errors import DefinitionError
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME
from tidewheel.model.time import Instant, instant, moment

__all__ = ["UNITS", "boundaries", "time_zone"]

UNITS = ("hour", "day", "week", "month", "year")

_MICROSECOND = timedelta(microseconds=1)
_HOUR = 3_600_000_000


@lru_cache
def time_zone(name: str) -> ZoneInfo:
    """Look up a time zone by its name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError):
        raise DefinitionError(
            f"time zone {name!r} is not known here; use a name like Europe/Helsinki (is the package tzdata installed?)"
        ) from None


def boundaries(time: Instant, unit: str, zone: str) -> tuple[Instant, Instant]:
    """The start and the end of the unit that holds the time.

    >>> start, end = boundaries(1_774_780_000_000_000, "day", "Europe/Helsinki")  # 2026-03-29: summer time begins
    >>> (end - start) // 3_600_000_000
    23
    """
    try:
        local = moment(time).astimezone(time_zone(zone))
    except OverflowError:  # the zone's local time would be outside the years 1 to 9999
        local = moment(time)
    if unit == "hour":
        # By the offset in force, so that the hour that clocks repeat in autumn is two windows.
        offset = (local.utcoffset() or timedelta()) // _MICROSECOND
        start = (time + offset) // _HOUR * _HOUR - offset
        return max(start, START_OF_TIME), min(start + _HOUR, END_OF_TIME)
    return _dates(local.date(), unit, zone, time)


def _dates(day: date, unit: str, zone: str, time: Instant) -> tuple[Instant, Instant]:
    first = _first_day(day.toordinal(), unit)
    start, end = _midnight(first, zone), _midnight(_next(first, unit), zone)
    # Where clocks are put back over midnight, a date is read twice with another between: the instants decide.
    if time < start:
        start, end = _midnight(_first_day(first - 1, unit), zone), start
    elif time >= end:
        following = _next(first, unit)
        start, end = end, _midnight(_next(following, unit), zone)
    return start, end


def _first_day(ordinal: int, unit: str) -> int:
    if unit == "day" or ordinal < 1:
        return ordinal
    day = date.fromordinal(ordinal)
    if unit == "week":
        return ordinal - day.weekday()
    return day.replace(day=1, month=day.month if unit == "month" else 1).toordinal()


def _next(first: int, unit: str) -> int:
    """The ordinal of the first day of the next unit."""
    if unit in ("day", "week"):
        return first + (1 if unit == "day" else 7)
    day = date.fromordinal(first)
    months = day.month - 1 + (1 if unit == "month" else 12)
    if day.year + months // 12 > date.max.year:
        return date.max.toordinal() + 1
    return date(day.year + months // 12, months % 12 + 1, 1).toordinal()


@lru_cache(maxsize=4_096)
def _midnight(ordinal: int, zone: str) -> Instant:
    """When a date begins; if its midnight does not exist, when the clock jumps over it."""
    if ordinal < 1:
        return START_OF_TIME
    if ordinal > date.max.toordinal():
        return END_OF_TIME
    midnight = datetime.combine(date.fromordinal(ordinal), datetime.min.time(), tzinfo=time_zone(zone))
    try:
        begins = instant(midnight)
    except OverflowError:
        return START_OF_TIME if ordinal < 366 else END_OF_TIME
    return min(max(begins, START_OF_TIME), END_OF_TIME)
