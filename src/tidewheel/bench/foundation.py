"""The figures of the foundation: the log, and Spark's way in and out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tidewheel.bench import log, spark
from tidewheel.bench.events import positions
from tidewheel.bench.figures import Figure
from tidewheel.engine.session import session

__all__ = ["EVENTS", "measure"]

EVENTS = 1_000_000


def measure(events: int, folder: Path, say: Callable[[str], object]) -> Iterator[list[Figure]]:
    """All of them, part by part."""
    say("simulating events")
    frame = positions(events)
    say("appending to the log")
    yield log.appends(frame.head(events // 5), folder)
    yield log.room(frame, folder)
    say("reading with Spark")
    engine = session()
    try:
        yield spark.reading(frame, folder, engine)
        say("timing small batches")
        yield spark.batch_times(frame.head(50_000), folder, engine)
    finally:
        engine.stop()
