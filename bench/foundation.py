"""The figures of the foundation: the simulator, the log, and Spark's way in and out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from bench import log, spark
from bench.events import positions
from bench.figures import Figure
from bench.simulator import simulating
from tidewheel.engine.execution.session import session

__all__ = ["EVENTS", "measure"]

EVENTS = 1_000_000


def measure(
    events: int,
    folder: Path,
    say: Callable[[str], object],
    *,
    seconds: int = 5,
    batches: int = 100,
    repeat: int = 3,
    engine: SparkSession | None = None,
) -> Iterator[list[Figure]]:
    """All of them, part by part: of so many events, seconds of simulated time, and small batches; rates are the best of
    so many runs. An `engine` that is given is left running."""
    say("simulating events")
    yield simulating(folder, seconds=seconds, repeat=repeat)
    frame = positions(events)
    say("appending to the log")
    yield log.appends(frame.head(events // 10), folder, repeat=repeat)
    yield log.room(frame, folder)
    say("reading with Spark")
    running = engine or session()
    try:
        yield spark.reading(frame, folder, running, repeat=repeat)
        say("timing small batches")
        yield spark.batch_times(frame.head(50_000), folder, running, measured=batches)
    finally:
        if engine is None:
            running.stop()
