"""Find the offset at a time of the log's clock in a partition, and how far event time was there."""

from __future__ import annotations

from collections.abc import Iterator

from tidewheel.model.time import Instant, moment
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Batch, OnDamage, Partition

__all__ = ["batches_with_marks", "offset_at"]


def offset_at(log: Log, part: Partition, when: Instant) -> int:
    """The offset of the first record that was appended at or after that time."""
    return log.position(*part, moment(max(0, when)))


def batches_with_marks(
    log: Log, part: Partition, start: int, end: int, *, on_damage: OnDamage | None = None
) -> Iterator[tuple[Batch, tuple[Instant, ...]]]:
    """The records between two offsets, a block at a time, each with the markers that were appended with it or since the
    one before. A large append becomes several blocks and only the last has its marker, which is true of all of them."""
    blocks = log.blocks(*part, start, end=end, on_damage=None if on_damage is None else lambda _: None)
    for batch in log.read(*part, start, end=end, on_damage=on_damage):
        last = batch.records.column("offset")[-1].as_py()
        appended = batch.records.column("append_time")[-1].value
        marks: list[Instant] = []
        while blocks and (blocks[0].first_offset <= last or blocks[0].summary.append_time <= appended):
            marks += blocks.pop(0).summary.punctuations
        yield batch, tuple(marks)
