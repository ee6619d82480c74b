"""Events that wait in a store for the watermark, in slices of event time.

A segment is called `events/<start>/<number>` and holds events at or after its start, with columns `__time` and
`__arrival`. Taking what the watermark has passed reads the slices that it has reached and no others; adding to a slice
writes a segment of its own, and only when a slice has come to more than a few are they made one.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from tidewheel.engine.operator import Store
from tidewheel.model.panes import START_OF_TIME
from tidewheel.model.time import Duration, Instant

__all__ = ["SLICE", "keep", "least_start", "take"]

SLICE: Duration = 10_000_000
MOST_SLICES = 64
MOST_SEGMENTS = 8


def take(store: Store, watermark: Instant) -> list[pl.DataFrame]:
    """Take out every segment that may hold events before the watermark; later ones in it are to be kept again."""
    reached = [name for name in _names(store) if _start(name) < watermark]
    frames = [store.get(name) for name in reached]
    for name in reached:
        store.remove(name)
    return [frame for frame in frames if frame is not None]


def keep(store: Store, rows: pl.DataFrame) -> None:
    """Add events."""
    there: dict[Instant, list[str]] = {}
    for name in _names(store):
        there.setdefault(_start(name), []).append(name)
    for start, part in _sliced(rows):
        segments = there.get(start, [])
        number = int(segments[-1].rsplit("/", 1)[1]) + 1 if segments else 0
        if len(segments) >= MOST_SEGMENTS:
            older = [frame for frame in map(store.get, segments) if frame is not None]
            for name in segments:
                store.remove(name)
            part = pl.concat([*older, part])
        store.put(f"events/{start - START_OF_TIME:020d}/{number:010d}", part)


def least_start(store: Store) -> Instant | None:
    """No event that waits is before this."""
    return min(map(_start, _names(store)), default=None)


def _sliced(rows: pl.DataFrame) -> list[tuple[Instant, pl.DataFrame]]:
    """The rows by the start of their slice.

    Slices are made longer for rows that spread far, so that they are never many; segments may overlap for it.
    """
    times = rows["__time"].to_numpy() - START_OF_TIME
    length = SLICE
    while len(slices := np.unique(times // length)) > MOST_SLICES:
        length *= 2
    numbers = pl.Series(times // length)
    return [(int(number) * length + START_OF_TIME, rows.filter(numbers == int(number))) for number in slices]


def _names(store: Store) -> list[str]:
    return [name for name in store.names() if name.startswith("events/")]


def _start(name: str) -> Instant:
    return int(name.split("/")[1]) + START_OF_TIME
