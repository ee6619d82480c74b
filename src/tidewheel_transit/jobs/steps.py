"""Shared steps of the jobs: which rows they take, deduplication, and when their windows give results."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, cast

import polars as pl

import tidewheel as tw

__all__ = ["VEHICLE", "in_cells", "on_journey", "once", "placed", "results_of", "windowed"]

VEHICLE: Final = ("operator", "vehicle")
"""What makes a vehicle: numbers are unique within an operator only."""


def on_journey(events: tw.Stream) -> tw.Stream:
    """Skip vehicles between journeys, which are counted as `deadrun`."""
    return events.skip(deadrun=pl.col("journey") == "deadrun")


def placed(events: tw.Stream) -> tw.Stream:
    """Keep vehicles on a journey with a place on earth; the others are counted as `deadrun` and `without_place`."""
    on_earth = pl.col("lat").is_between(-90, 90) & pl.col("lon").is_between(-180, 180)
    return on_journey(events).skip(without_place=~on_earth.fill_null(False))


def in_cells(events: tw.Stream, resolution: int) -> tw.Stream:
    """Keep rows as `placed` does, with the H3 cell of each. A cell is a signed number, as in the messages."""
    return placed(events).with_columns(cell=tw.geo.cell("lat", "lon", resolution=resolution).cast(pl.Int64))


def once(events: tw.Stream, *, behind: str | timedelta = "0 s") -> tw.Stream:
    """Drop exact duplicates, equal in all columns: all but the first go to the output `duplicates`. Rows pass as they
    come, up to so long behind the watermark; later ones are late."""
    return events.key_by(*VEHICLE).deduplicate(*events.schema, horizon=behind)


def windowed(
    keyed: tw.KeyedStream, windows: tw.windows.Windows, *, lateness: str, early: str, mode: str
) -> tw.WindowedStream:
    """Cut into windows that give a result when the watermark passes them and one with each batch of late events within
    the lateness; with `early`, a period such as "1 s", also so often before that, but only the window that ends
    next."""
    when = tw.triggers.after_watermark(early=tw.triggers.every(early) if early else None, late=tw.triggers.each_batch())
    chosen = keyed.window(windows, lateness=lateness).trigger(when, early_windows="next" if early else "all")
    return chosen.accumulate(cast(Any, mode))  # what is none is refused by the windows


def results_of(size: str) -> tw.windows.Custom:
    """The windows that results of windows of this size come from: each is of its window's last moment.

    >>> [(window.start, window.end) for window in results_of("10 s").assign(29_999_999, ())]
    [(20000000, 30000000)]
    """
    length = tw.time.duration(size, what="window size")
    return tw.windows.custom(lambda last: [(last + 1 - length, last + 1)], name=f"results of {size}")
