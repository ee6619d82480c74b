"""Compaction of the embedded log: only the latest record of each key stays, at its offset.

As in Kafka, the records that came since the last time are looked through for the latest of each key, and then all
older blocks for records that these replace. A record without a key stays. A record with a key and an empty value,
which says that the key is gone, stays as the latest of its key. The newest block is never changed, so a key may
occur twice in it.

A changed block keeps its place and its append time, and its header goes on to tell the times of all that was
appended (only the count is what is left). A block of which nothing is left goes, and the header of the next one tells
the extent of its times and its last marker. So the watermark of a reader does not depend on when compaction ran.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pyarrow as pa

from tidewheel.model.summary import merge
from tidewheel.transport.block import decode_header, encode_header, encode_payload, type_in_header
from tidewheel.transport.sqlite_blocks import StoredBlock, block_after, remove_blocks
from tidewheel.transport.sqlite_database import Database

__all__ = ["compact"]

_KEYS_AT_ONCE = 250_000


def compact(database: Database, topic: int, partition: int, *, eager: bool) -> None:
    """Compact a partition; if not `eager`, only where the new records are as many as those that were kept."""
    with database.reading() as connection:
        row = connection.execute(
            "SELECT compacted, next_offset, count FROM partition WHERE topic = ? AND number = ?", (topic, partition)
        ).fetchone()
    if row is None:
        return
    compacted, end, count = row
    if not eager and 2 * (end - compacted) < count:
        return
    while compacted < end:
        latest, reached = _latest(database, topic, partition, compacted, end)
        _sweep(database, topic, partition, latest, reached)
        with database.writing() as connection:
            connection.execute(
                "UPDATE partition SET compacted = max(compacted, ?) WHERE topic = ? AND number = ?",
                (reached, topic, partition),
            )
        compacted = reached


def _latest(database: Database, topic: int, partition: int, compacted: int, end: int) -> tuple[dict[bytes, int], int]:
    """The last offset of each key from `compacted` on, as many as fit, and the offset up to which that holds."""
    latest: dict[bytes, int] = {}
    # The block before was the newest when it was compared, so it was not changed: it is looked at again.
    position = max(compacted - 1, 0)
    while position < end and len(latest) < _KEYS_AT_ONCE:
        with database.reading() as connection:
            block = block_after(connection, topic, partition, position, end)
        if block is None:
            return latest, end
        records = block.records()
        latest.update(zip(records.column("key").to_pylist(), records.column("offset").to_pylist(), strict=True))
        position = block.next_offset
    return latest, position


def _sweep(database: Database, topic: int, partition: int, latest: dict[bytes, int], end: int) -> None:
    """Drop the records before `end` that those in `latest` replace."""
    position = 0
    while True:
        with database.reading() as connection:
            newest = connection.execute(
                "SELECT max(first_offset) FROM block WHERE topic = ? AND partition = ?", (topic, partition)
            ).fetchone()[0]
            block = block_after(connection, topic, partition, position, min(end, newest or 0))
        if block is None:
            return
        records = block.records()
        keep = [
            key is None or latest.get(key, offset) <= offset
            for key, offset in zip(records.column("key").to_pylist(), records.column("offset").to_pylist(), strict=True)
        ]
        if all(keep) or _rewrite(database, topic, partition, block, records, pa.array(keep, pa.bool_())):
            position = block.next_offset


def _rewrite(
    database: Database,
    topic: int,
    partition: int,
    block: StoredBlock,
    records: pa.RecordBatch,
    keep: pa.BooleanArray,
) -> bool:
    """Put a smaller block in the place of this one; False if it was changed by somebody else meanwhile."""
    kept = records.filter(keep)
    data = encode_payload(kept.column("key"), kept.column("value"), kept.column("offset"))
    header = encode_header(replace(decode_header(block.header), count=kept.num_rows), type=block.type)
    with database.writing() as connection:
        same = connection.execute(
            "SELECT 1 FROM block WHERE topic = ? AND partition = ? AND first_offset = ? AND payload = ? AND header = ?",
            (topic, partition, block.first_offset, block.payload, block.header),
        ).fetchone()
        if same is None:
            return False
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
            remove_blocks(connection, topic, [(partition, block.first_offset, block.payload)])
            _hand_on(connection, topic, partition, block)
        connection.execute(
            "UPDATE partition SET count = count - ?, size = size - ? WHERE topic = ? AND number = ?",
            (records.num_rows - kept.num_rows, len(block.data) - size, topic, partition),
        )
    return True


def _hand_on(connection: sqlite3.Connection, topic: int, partition: int, block: StoredBlock) -> None:
    """Let the block after a removed one tell its times. There is one: the newest is never changed."""
    first, header = connection.execute(
        "SELECT first_offset, header FROM block WHERE topic = ? AND partition = ? AND first_offset > ? "
        "ORDER BY first_offset LIMIT 1",
        (topic, partition, block.first_offset),
    ).fetchone()
    gone, following = decode_header(block.header), decode_header(header)
    both = merge((gone, following))
    # Not the skews: who has read the block already would count them twice. All of these are the same told twice.
    told = replace(
        following,
        min_event_time=both.min_event_time,
        max_event_time=both.max_event_time,
        max_plausible=both.max_plausible,
        punctuations=tuple(sorted({*following.punctuations, *gone.punctuations[-1:]})),
    )
    connection.execute(
        "UPDATE block SET header = ? WHERE topic = ? AND partition = ? AND first_offset = ?",
        (encode_header(told, type=type_in_header(header)), topic, partition, first),
    )
