"""An upper bound of Spark's watermark in the next batch, shared with the tasks that read rows.

Spark tells its watermark to state operators only, so a row has to travel to one if it may be late, and if nothing is
known of the watermark that is every row. But a state operator hears the marks of all tasks, from which the watermark of
the next batch follows. It leaves that in the folder that the Python workers of an executor share. Where it is found,
only rows behind it travel. Where it is not (in the first batch of a run, after one without rows, on an executor that
had no key group) all of them do. It is only a bound: the state operator splits late rows off.
"""

from __future__ import annotations

from pathlib import Path

from pyspark import SparkFiles, TaskContext

from tidewheel.atomic_file import write_atomically
from tidewheel.model.time import Duration, Instant

__all__ = ["expect", "expected"]

_SLACK: Duration = 2_000
"""Spark counts whole milliseconds, each side of the difference for itself."""


def expect(watermark: Instant) -> None:
    """Note, in a state operator, what the watermark will be in the next batch by all that was marked up to this one."""
    place = _place()
    if place is not None:
        path, batch = place
        write_atomically(path, b"%d %d" % (batch, watermark + _SLACK), durable=False, concurrent=True)


def expected() -> Instant | None:
    """The bound of this batch's watermark, where rows are read; None if it is not known here."""
    place = _place()
    if place is None:
        return None
    path, batch = place
    try:
        after, bound = path.read_text(encoding="ascii").split()
    except FileNotFoundError:
        return None
    return int(bound) if int(after) == batch - 1 else None


def _place() -> tuple[Path, int] | None:
    """The file of this run (another run may reach other watermarks), and the number of the batch."""
    context = TaskContext.get()
    run = None if context is None else context.getLocalProperty("spark.jobGroup.id")
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if not run or not batch:
        return None
    return Path(SparkFiles.getRootDirectory(), f"tidewheel-{run}.watermark"), int(batch)
