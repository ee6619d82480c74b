"""Events that wait in a store for the watermark, in slices of event time.

A segment is called `events/<start>/<number>` and holds events at or after its start, with columns `__time` and
`__arrival`. Taking what the watermark has passed reads the slices that it has reached and no others; adding to a slice
writes a segment of its own, and only when a slice has come to more than a few are they made one.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
import polars as pl

from tidewheel.engine.operators.operator import Store
from tidewheel.engine.operators.schema_evolution import conform
from tidewheel.errors import CheckpointError
from tidewheel.model.columns import TIME
from tidewheel.model.panes import START_OF_TIME
from tidewheel.model.time import Duration, Instant

__all__ = [
    "ARRIVAL",
    "EVENTS",
    "NEVER",
    "QUEUE",
    "SLICE",
    "Queue",
    "keep",
    "least_start",
    "read_queue",
    "release",
    "take",
    "write_queue",
]

ARRIVAL = "__arrival"
NEVER: Instant = 2**63 - 1
"""An instant later than all others."""
SLICE: Duration = 10_000_000
MOST_SLICES = 64
MOST_SEGMENTS = 8
VERSION = 1
EVENTS, QUEUE = "events/", "queue"
"""What the names of segments begin with; and the name of the summary, which has the version of both."""
_QUEUE = {"version": pl.Int64(), "next_event": pl.Int64(), "arrivals": pl.Int64()}


@dataclass(frozen=True, slots=True)
class Queue:
    """A summary of the events that wait, enough to see that none is due."""

    next_event: Instant = NEVER
    """No event that waits is before this."""
    arrivals: int = 0
    """How many events have come."""


def read_queue(store: Store) -> Queue:
    """Load the queue from the state."""
    frame = store.get(QUEUE)
    if frame is None:
        return Queue()
    version, next_event, arrivals = frame.row(0)
    if version != VERSION:
        raise CheckpointError(
            f"the events that wait here were written in format {version}, this Tidewheel reads {VERSION}; "
            "start on a new checkpoint, or with the Tidewheel that wrote it"
        )
    return Queue(next_event, arrivals)


def write_queue(store: Store, queue: Queue) -> None:
    """Save the queue in the state."""
    store.put(QUEUE, pl.DataFrame([(VERSION, *astuple(queue))], schema=_QUEUE, orient="row"))


def release(store: Store, rows: pl.DataFrame, watermark: Instant | None, queue: Queue) -> tuple[pl.DataFrame, Queue]:
    """Release the events, new or waiting, that the watermark has passed, in no order; the rest waits."""
    arrival = pl.int_range(queue.arrivals, queue.arrivals + pl.len(), dtype=pl.Int64).alias(ARRIVAL)
    pending = rows.with_columns(arrival)
    arrivals, next_event = queue.arrivals + rows.height, queue.next_event
    if watermark is not None and next_event < watermark:
        pending = pl.concat([*(conform(frame, pending.schema) for frame in take(store, watermark)), pending])
        start = least_start(store)
        next_event = NEVER if start is None else start
    passed = pl.lit(False) if watermark is None else pl.col(TIME) < watermark
    released, waiting = pending.filter(passed), pending.filter(~passed)
    if waiting.height:
        keep(store, waiting)
        next_event = min(next_event, *waiting.select(pl.col(TIME).min()).row(0))
    return released, Queue(next_event, arrivals)


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
    for start, part in _by_slice(rows):
        segments = there.get(start, [])
        number = int(segments[-1].rsplit("/", 1)[1]) + 1 if segments else 0
        if len(segments) >= MOST_SEGMENTS:
            older = [conform(frame, part.schema) for frame in map(store.get, segments) if frame is not None]
            for name in segments:
                store.remove(name)
            part = pl.concat([*older, part])
        store.put(f"{EVENTS}{start - START_OF_TIME:020d}/{number:010d}", part)


def least_start(store: Store) -> Instant | None:
    """No event that waits is before this."""
    return min(map(_start, _names(store)), default=None)


def _by_slice(rows: pl.DataFrame) -> list[tuple[Instant, pl.DataFrame]]:
    """The rows by the start of their slice.

    Slices are made longer for rows that spread far, so that they are never many; segments may overlap for it.
    """
    times = rows[TIME].to_numpy() - START_OF_TIME
    length = SLICE
    while len(slices := np.unique(times // length)) > MOST_SLICES:
        length *= 2
    numbers = pl.Series(times // length)
    return [(int(number) * length + START_OF_TIME, rows.filter(numbers == int(number))) for number in slices]


def _names(store: Store) -> list[str]:
    return [name for name in store.names() if name.startswith(EVENTS)]


def _start(name: str) -> Instant:
    return int(name.split("/")[1]) + START_OF_TIME
