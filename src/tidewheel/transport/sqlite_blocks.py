"""The blocks of the embedded log's file: finding them by offset, and removing them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from tidewheel.model.time import Instant
from tidewheel.transport.block import decode_payload, type_in_header

__all__ = ["StoredBlock", "block_after", "blocks_after", "headers_after", "remove_blocks"]

# The last block that begins at or before the position holds it, unless compaction has left a gap there.
_FROM = """
    block.topic = :topic AND block.partition = :partition
    AND block.first_offset >= coalesce(
        (SELECT max(first_offset) FROM block
         WHERE topic = :topic AND partition = :partition AND first_offset <= :position), 0)
    AND block.next_offset > :position AND block.first_offset < :end
"""


class StoredBlock(NamedTuple):
    """A block with its data; `payload` is the number of its payload's row."""

    first_offset: int
    next_offset: int
    append_time: Instant
    header: bytes
    payload: int
    data: bytes

    def records(self) -> pa.RecordBatch:
        """Its records, with the schema `FETCHED`."""
        return decode_payload(self.data, first_offset=self.first_offset, append_time=self.append_time)

    @property
    def type(self) -> str | None:
        """The message type that all of its records carry, if it is known."""
        return type_in_header(self.header)


def block_after(
    connection: sqlite3.Connection, topic: int, partition: int, position: int, end: int
) -> StoredBlock | None:
    """The first block that has a place for an offset at or after the position, if it begins before `end`."""
    return next(iter(blocks_after(connection, topic, partition, position, end, size=0)), None)


def blocks_after(
    connection: sqlite3.Connection, topic: int, partition: int, position: int, end: int, *, size: int
) -> list[StoredBlock]:
    """The blocks that have a place for an offset at or after the position and begin before `end`: the first, and as
    many more as it takes to have so many bytes."""
    rows = connection.execute(
        "SELECT first_offset, next_offset, append_time, header, payload, data "
        f"FROM block JOIN payload ON payload.id = block.payload WHERE {_FROM} ORDER BY block.first_offset",
        {"topic": topic, "partition": partition, "position": position, "end": end},
    )
    found: list[StoredBlock] = []
    for row in rows:
        found.append(StoredBlock(*row))
        size -= len(found[-1].data)
        if size <= 0:
            break
    rows.close()
    return found


def headers_after(
    connection: sqlite3.Connection, topic: int, partition: int, position: int, end: int
) -> Iterator[tuple[int, int, int, int, bytes]]:
    """First offset, next offset, count, size and header of the blocks from the position on; reads no payload."""
    return connection.execute(
        f"SELECT first_offset, next_offset, count, size, header FROM block WHERE {_FROM} ORDER BY first_offset",
        {"topic": topic, "partition": partition, "position": position, "end": end},
    )


def remove_blocks(connection: sqlite3.Connection, topic: int, blocks: Iterable[tuple[int, int, int]]) -> None:
    """Remove blocks, given as partition, first offset and payload number, with their payloads."""
    for partition, first_offset, payload in blocks:
        connection.execute(
            "DELETE FROM block WHERE topic = ? AND partition = ? AND first_offset = ?",
            (topic, partition, first_offset),
        )
        connection.execute("DELETE FROM payload WHERE id = ?", (payload,))
