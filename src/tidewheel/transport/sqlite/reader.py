"""Reading the embedded log: where reading begins, which blocks there are, and the records in them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime

from tidewheel.errors import DamagedBlockError, DamagedLogError, LogError, MalformedError
from tidewheel.model.block_stats import BlockStats
from tidewheel.model.time import Instant, instant
from tidewheel.transport.log.log_types import Batch, Block, OnDamage, StartFrom
from tidewheel.transport.log.validation import check_limit, check_offset, check_start
from tidewheel.transport.sqlite.blocks import Damage, StoredBlock, blocks_after, find_block, last_block
from tidewheel.transport.sqlite.database import Database
from tidewheel.transport.sqlite.topics import PartitionRow, find_partition

__all__ = ["Reader"]

_AHEAD = 1 << 20  # bytes that are fetched at a time


class Reader:
    """Reads the partitions of a log's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def position(self, topic: str, partition: int, start_from: StartFrom) -> int:
        """The offset at which reading from `start_from` begins."""
        with self._database.reading() as connection:
            row = find_partition(connection, topic, partition)
            if start_from == "earliest":
                return row.first_offset
            if start_from == "latest":
                return row.next_offset
            if isinstance(start_from, datetime):
                return _first_since(connection, row, partition, instant(start_from))
        return check_start(start_from, topic=topic, partition=partition, first=row.first_offset, end=row.next_offset)

    def blocks(
        self,
        topic: str,
        partition: int,
        start: int,
        *,
        end: int | None = None,
        limit: int | None = None,
        on_damage: OnDamage | None = None,
    ) -> list[Block]:
        """The blocks that hold records from offset `start` on (see `Log.blocks`)."""
        check_limit(limit)
        result: list[Block] = []
        count = 0
        with self._database.reading() as connection:
            row = find_partition(connection, topic, partition)
            check_offset(start, topic=topic, partition=partition, first=row.first_offset)
            last = row.next_offset if end is None else min(end, row.next_offset)
            for found in blocks_after(connection, row.topic, partition, start, last, data=False):
                block = _block(topic, partition, found)
                count += min(block.summary.count, block.next_offset - start)
                if limit is not None and count > limit and result:
                    break
                if isinstance(found, Damage):
                    _report(_error(topic, partition, found), on_damage)
                result.append(block)
        return result

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        *,
        end: int | None = None,
        limit: int | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[Batch]:
        """Read the records from offset `start` on (and before `end`, at most `limit`), a block at a time.

        Ends at what was the partition's end when it was called.
        """
        check_limit(limit)
        with self._database.reading() as connection:
            row = find_partition(connection, topic, partition)
        check_offset(start, topic=topic, partition=partition, first=row.first_offset)
        last = row.next_offset if end is None else min(end, row.next_offset)
        return self._read(topic, partition, row.topic, start, last, limit, on_damage)

    def _read(
        self,
        topic: str,
        partition: int,
        number: int,
        position: int,
        end: int,
        limit: int | None,
        on_damage: OnDamage | None,
    ) -> Iterator[Batch]:
        ahead = 0  # who stops after the first block has read no more than that
        while position < end and limit != 0:
            with self._database.reading() as connection:
                row = find_partition(connection, topic, partition)
                if row.topic != number:
                    raise LogError(f"topic {topic!r} was deleted and created again while it was read")
                check_offset(position, topic=topic, partition=partition, first=row.first_offset)
                blocks = _some(blocks_after(connection, number, partition, position, end), ahead)
            ahead = _AHEAD
            for block in blocks:
                records = None
                if isinstance(block, Damage):
                    _report(_error(topic, partition, block), on_damage)
                else:
                    try:
                        records = block.records()
                    except MalformedError as error:
                        bad = max(position, block.first_offset), min(end, block.next_offset)
                        _report(DamagedBlockError(topic, partition, *bad, str(error)), on_damage)
                first, after = 0, 0
                if records is not None:
                    first, after = records.column("offset").to_numpy().searchsorted([position, end]).tolist()
                count = after - first if limit is None else min(after - first, limit)
                position = block.next_offset
                if count and records is not None and isinstance(block, StoredBlock):
                    yield Batch(topic, partition, records.slice(first, count), block.header.type)
                if limit is not None:
                    limit -= count
                    if not limit:
                        return
            if not blocks:
                return


def _first_since(connection: sqlite3.Connection, row: PartitionRow, partition: int, since: Instant) -> int:
    found = connection.execute(
        "SELECT first_offset FROM block WHERE topic = ? AND partition = ? AND append_time >= ? "
        "ORDER BY append_time, first_offset LIMIT 1",
        (row.topic, partition, since),
    ).fetchone()
    offset = int(found[0]) if found else row.next_offset
    # What the index says is held against the blocks themselves: it has no checksums.
    try:
        block = find_block(connection, row.topic, partition, after=offset - 1) if found else None
        before = last_block(connection, row.topic, partition, before=offset)
    except MalformedError:
        return offset  # reading from there is an error
    if (block and (block.first_offset, block.place.append_time >= since) != (offset, True)) or (
        before and before.place.append_time >= since
    ):
        raise DamagedLogError(
            f"the index of blocks by time is damaged: it says that offset {offset} is the first since {since}. Restore "
            "a backup, or begin at an offset, 'earliest' or 'latest'"
        )
    return offset


def _block(topic: str, partition: int, found: StoredBlock | Damage) -> Block:
    if isinstance(found, StoredBlock):
        place = found.place
        return Block(topic, partition, place.first_offset, place.next_offset, place.size, found.header.summary)
    lost = found.next_offset - found.first_offset
    summary = BlockStats(count=lost, append_time=found.append_time or 0, untimed=lost)
    return Block(topic, partition, found.first_offset, found.next_offset, 0, summary)


def _some(found: Iterator[StoredBlock | Damage], size: int) -> list[StoredBlock | Damage]:
    """The first block, and more up to a number of bytes."""
    some = []
    for block in found:
        some.append(block)
        size -= 0 if isinstance(block, Damage) else block.place.size
        if size <= 0:
            break
    return some


def _error(topic: str, partition: int, damage: Damage) -> DamagedBlockError:
    return DamagedBlockError(topic, partition, damage.first_offset, damage.next_offset, damage.reason)


def _report(error: DamagedBlockError, on_damage: OnDamage | None) -> None:
    if on_damage is None:
        raise error
    on_damage(error)
