"""Compaction of the embedded log: only the latest record of each key stays, at its offset.

As in Kafka, the records that came since the last time are looked through for the latest of each key, and then all
older blocks for records that these replace. A record without a key stays. A record with a key and an empty value,
which says that the key is gone, stays as the latest of its key. The newest block is never changed, so a key may
occur twice in it.

A changed block keeps its place and its append time, and its header goes on to tell the times of all that was
appended (only the count is what is left). A block of which nothing is left goes, and the header of the next one tells
the extent of its times and its last marker. So the watermark of a reader does not depend on when compaction ran.

What is damaged stays as it is, so that reading it reports it, and is neither compared nor changed.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pyarrow as pa

from tidewheel.errors import MalformedError
from tidewheel.model.block_stats import merge
from tidewheel.transport.log.block import encode_payload
from tidewheel.transport.log.block_header import checksum, encode_header
from tidewheel.transport.sqlite.blocks import (
    Damage,
    StoredBlock,
    block_after,
    find_block,
    last_block,
    remove_blocks,
)
from tidewheel.transport.sqlite.database import Database
from tidewheel.transport.sqlite.schema import sound_rows

__all__ = ["compact"]

_KEYS_AT_ONCE = 250_000


def compact(database: Database, topic: int, partition: int, *, eager: bool) -> bool:
    """Compact a partition; if not `eager`, only when there are as many new records as kept ones. False if some of it
    was damaged."""
    with database.reading() as connection:
        rows = sound_rows(connection, "partition", "topic = ? AND number = ?", (topic, partition))
    if not rows:
        return True
    _, _, first, end, count, _, _, compacted = rows[0]
    if not eager and 2 * (end - compacted) < count:
        return True
    sound = True
    while compacted < end:
        latest, reached = _latest(database, topic, partition, max(compacted, first), end)
        sound = _sweep(database, topic, partition, latest, reached) and sound
        with database.writing() as connection:
            connection.execute(
                "UPDATE partition SET compacted = max(compacted, ?) WHERE topic = ? AND number = ?",
                (reached, topic, partition),
            )
        compacted = reached
    return sound


def _latest(database: Database, topic: int, partition: int, compacted: int, end: int) -> tuple[dict[bytes, int], int]:
    """The last offset of each key from `compacted` on, as many as fit, and the offset up to which they are complete."""
    latest: dict[bytes, int] = {}
    # The block before was the newest when it was compared, so it was not changed: it is looked at again.
    position = max(compacted - 1, 0)
    while position < end and len(latest) < _KEYS_AT_ONCE:
        with database.reading() as connection:
            block = block_after(connection, topic, partition, position, end)
        if block is None:
            return latest, end
        records = _records(block)
        if records is not None:
            latest.update(zip(records.column("key").to_pylist(), records.column("offset").to_pylist(), strict=True))
        position = block.next_offset
    return latest, position


def _sweep(database: Database, topic: int, partition: int, latest: dict[bytes, int], end: int) -> bool:
    """Drop the records before `end` that those in `latest` replace. False if something was damaged."""
    position = 0
    sound = True
    while True:
        with database.reading() as connection:
            try:
                newest = last_block(connection, topic, partition)
            except MalformedError:
                return False
            rows = sound_rows(connection, "partition", "topic = ? AND number = ?", (topic, partition))
            if not rows:
                return sound
            position = max(position, rows[0][2])
            block = block_after(connection, topic, partition, position, min(end, newest.first_offset if newest else 0))
        if block is None:
            return sound
        records = _records(block)
        if records is None or isinstance(block, Damage):
            sound = False
            position = block.next_offset
            continue
        keep = [
            key is None or latest.get(key, offset) <= offset
            for key, offset in zip(records.column("key").to_pylist(), records.column("offset").to_pylist(), strict=True)
        ]
        if all(keep) or _rewrite(database, topic, partition, block, records, pa.array(keep, pa.bool_())):
            position = block.next_offset


def _records(block: StoredBlock | Damage) -> pa.RecordBatch | None:
    """The records of a block, unless it is damaged."""
    try:
        return None if isinstance(block, Damage) else block.records()
    except MalformedError:
        return None


def _rewrite(
    database: Database,
    topic: int,
    partition: int,
    block: StoredBlock,
    records: pa.RecordBatch,
    keep: pa.BooleanArray,
) -> bool:
    """Replace a block by a smaller one; False if it was changed meanwhile."""
    kept = records.filter(keep)
    data = encode_payload(kept.column("key"), kept.column("value"), kept.column("offset"))
    raw_size = kept.column("key").nbytes + kept.column("value").nbytes
    place = block.place._replace(records=kept.num_rows, size=len(data))
    summary = replace(block.header.summary, count=kept.num_rows, raw_size=raw_size)
    header = encode_header(replace(block.header, summary=summary, payload_checksum=checksum(data)), place)
    with database.writing() as connection:
        same = connection.execute(
            "SELECT 1 FROM block WHERE topic = ? AND partition = ? AND first_offset = ? AND payload = ? AND header = ?",
            (topic, partition, block.first_offset, block.payload, block.raw_header),
        ).fetchone()
        if same is None:
            return False
        if not kept.num_rows and not _hand_on(connection, topic, partition, block):
            return True
        size = 0
        if kept.num_rows:
            # The new payload first: so the number of the old one is not given out again.
            payload = connection.execute("INSERT INTO payload (data) VALUES (?)", (data,)).lastrowid
            connection.execute(
                "UPDATE block SET count = ?, size = ?, header = ?, payload = ? "
                "WHERE topic = ? AND partition = ? AND first_offset = ?",
                (kept.num_rows, len(data), header, payload, topic, partition, block.first_offset),
            )
            connection.execute("DELETE FROM payload WHERE id = ?", (block.payload,))
            size = len(data)
        else:
            remove_blocks(connection, [block])
        connection.execute(
            "UPDATE partition SET count = count - ?, size = size - ? WHERE topic = ? AND number = ?",
            (records.num_rows - kept.num_rows, block.place.size - size, topic, partition),
        )
    return True


def _hand_on(connection: sqlite3.Connection, topic: int, partition: int, block: StoredBlock) -> bool:
    """Hand the times of a block that is to be removed to the next one, and record that there is nothing between that
    and the block before; False if the next one is damaged. There is a next one: the newest block is never changed."""
    try:
        following = find_block(connection, topic, partition, after=block.first_offset)
    except MalformedError:
        return False
    if following is None or following.header.follows not in (None, block.next_offset):
        return False
    gone, summary = block.header.summary, following.header.summary
    both = merge((gone, summary))
    # Not the skews: who has read the block already would count them twice. All of these may be counted twice.
    summary = replace(
        summary,
        min_event_time=both.min_event_time,
        max_event_time=both.max_event_time,
        max_plausible=both.max_plausible,
        punctuations=tuple(sorted({*summary.punctuations, *gone.punctuations[-1:]})),
    )
    follows = None if following.header.follows is None else block.header.follows
    connection.execute(
        "UPDATE block SET header = ? WHERE topic = ? AND partition = ? AND first_offset = ?",
        (
            encode_header(replace(following.header, summary=summary, follows=follows), following.place),
            topic,
            partition,
            following.first_offset,
        ),
    )
    return True
