"""The lookup of a journey's final stop."""

from __future__ import annotations

from typing import Final

import polars as pl

import tidewheel as tw

__all__ = ["DAY_BEGINS", "FINAL_STOP", "minute_of"]

FINAL_STOP: Final = tw.Lookup(
    "final-stop",
    keys={"route": pl.String, "direction": pl.Int32, "operating_day": pl.String, "start": pl.String},
    returns={"final_stop": pl.String, "final_lat": pl.Float64, "final_lon": pl.Float64},
)
"""Where a journey ends. Timetables know a journey by its route, direction, operating day and departure."""

DAY_BEGINS: Final = 4 * 60 + 30
"""Vehicles tell the time of departure by the clock; before this minute of the day it belongs to the day before."""


def minute_of(start: str) -> int:
    """The minute of departure, counted from the operating day's midnight as timetables do: 25:10 follows 23:59.

    >>> minute_of("07:20"), minute_of("01:10")
    (440, 1510)
    """
    hours, _, minutes = start.partition(":")
    if not (hours.isdecimal() and minutes.isdecimal() and int(hours) < 24 and int(minutes) < 60):
        raise tw.errors.MalformedError(f"a departure is a time like 07:20, got {start!r}")
    minute = int(hours) * 60 + int(minutes)
    return minute if minute >= DAY_BEGINS else minute + 24 * 60
