"""Reading a log in tests."""

from __future__ import annotations

from datetime import datetime, timezone

from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Batch

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def values(batches: list[Batch]) -> list[bytes]:
    return [value for batch in batches for value in batch.records.column("value").to_pylist()]


def offsets(batches: list[Batch]) -> list[int]:
    return [offset for batch in batches for offset in batch.records.column("offset").to_pylist()]


def rising(found: list[int]) -> bool:
    """Each is higher than the one before; there may be gaps."""
    return found == sorted(set(found))


def read(log: Log, topic: str, partition: int = 0) -> list[Batch]:
    return list(log.read(topic, partition, log.position(topic, partition, "earliest")))


def assert_only(log: Log, topic: str, kept: list[int], *, end: int) -> None:
    """Partition 0 has these offsets and no others, from wherever up to the end one reads."""
    starts = {near for place in (0, *kept, end) for near in (place - 1, place, place + 1)}
    for start in sorted(start for start in starts if 0 <= start <= end):
        expected = [offset for offset in kept if offset >= start]
        found = list(log.read(topic, 0, start))
        assert offsets(found) == expected
        assert all(batch.records.num_rows for batch in found)
        assert offsets(list(log.read(topic, 0, start, limit=2))) == expected[:2]
        blocks = log.blocks(topic, 0, start)
        assert [o for o in expected if any(b.first_offset <= o < b.next_offset for b in blocks)] == expected
        assert all(block.next_offset > start for block in blocks)
