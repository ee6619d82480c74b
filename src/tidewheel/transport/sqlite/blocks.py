"""The blocks in the embedded log's file: find them by offset, check them, and remove them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from tidewheel.errors import MalformedError
from tidewheel.model.time import Instant
from tidewheel.transport.log.block import decode_payload
from tidewheel.transport.log.block_header import Header, Place, checksum, decode_header

__all__ = [
    "Damage",
    "StoredBlock",
    "block_after",
    "blocks_after",
    "blocks_appended_after",
    "blocks_of",
    "find_block",
    "fingerprint",
    "last_block",
    "remove_blocks",
]

_PLACE = "topic, partition, first_offset, next_offset, count, size, append_time, header, payload"
# The last block that begins at or before the position holds it, unless compaction has left a gap there. What a row says
# of itself is not asked for here: it is not known yet whether it is true.
_FROM = """
    topic = :topic AND partition = :partition
    AND first_offset >= coalesce(
        (SELECT max(first_offset) FROM block
         WHERE topic = :topic AND partition = :partition AND first_offset <= :position), 0)
"""


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block with a valid header. `payload` is the number of its payload's row; `data` is the payload itself, if it
    was requested."""

    place: Place
    header: Header
    raw_header: bytes
    payload: int
    data: bytes | None = None

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.place.first_offset

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.place.next_offset

    def check(self) -> None:
        """`MalformedError` if its payload is damaged, as far as its size and its checksum tell."""
        assert self.data is not None
        if len(self.data) != self.place.size:
            raise MalformedError(f"its payload has {len(self.data)} bytes, not {self.place.size}")
        known = self.header.payload_checksum
        if known is not None:
            found = checksum(self.data)
            if found != known:
                raise MalformedError(f"the checksum of its payload is {found:08x}, it should be {known:08x}")

    def records(self) -> pa.RecordBatch:
        """Its records, with the schema `FETCHED`; `MalformedError` if its payload is damaged."""
        self.check()
        assert self.data is not None
        return decode_payload(
            self.data,
            first_offset=self.place.first_offset,
            append_time=self.place.append_time,
            count=self.place.records,
            trusted=self.header.payload_checksum is not None,
        )


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of offsets whose blocks are damaged or missing."""

    first_offset: int
    next_offset: int
    append_time: Instant | None
    """When what is next to it was appended."""
    reason: str


def blocks_after(
    connection: sqlite3.Connection, topic: int, partition: int, position: int, end: int, *, data: bool = True
) -> Iterator[StoredBlock | Damage]:
    """The blocks with offsets from the position on and before `end`, which is at most the partition's end, and between
    them the damaged or missing ranges. Without `data` no payload is read."""
    if position >= end:
        return
    rows = connection.execute(
        f"SELECT {_PLACE} FROM block WHERE {_FROM} ORDER BY first_offset",
        {"topic": topic, "partition": partition, "position": position},
    )
    reached = position
    appended: Instant | None = None
    broken: str | None = None
    for row in rows:
        try:
            block = _stored(row)
        except MalformedError as error:
            broken = broken or str(error)
            continue
        before = block.header.follows
        if before is None:  # nobody knows what compaction took away before it
            before = reached if broken is None else block.first_offset
        if before > reached:
            after = min(before, end)
            yield Damage(reached, after, block.place.append_time, broken or "it is missing")
            reached = after
        broken = None
        if block.first_offset >= end:
            reached = end
            break
        appended = block.place.append_time
        if block.next_offset > reached:
            found: StoredBlock | Damage = block
            if data:
                try:
                    found = replace(block, data=_payload(connection, block.payload))
                except MalformedError as error:
                    found = Damage(reached, min(block.next_offset, end), appended, str(error))
            yield found
            reached = block.next_offset
        if reached >= end:
            break
    rows.close()
    if reached < end:  # the last block of a partition ends where the partition does
        yield Damage(reached, end, appended, broken or "it is missing")


def block_after(
    connection: sqlite3.Connection, topic: int, partition: int, position: int, end: int
) -> StoredBlock | Damage | None:
    """The first of `blocks_after`, with its payload."""
    return next(blocks_after(connection, topic, partition, position, end), None)


def last_block(
    connection: sqlite3.Connection, topic: int, partition: int, *, before: int = 2**63 - 1
) -> StoredBlock | None:
    """The last block of a partition that begins before an offset, without its payload; None if there is none.
    `MalformedError` if it is damaged."""
    row = connection.execute(
        f"SELECT {_PLACE} FROM block WHERE topic = ? AND partition = ? AND first_offset < ? "
        "ORDER BY first_offset DESC LIMIT 1",
        (topic, partition, before),
    ).fetchone()
    return None if row is None else _stored(row)


def find_block(connection: sqlite3.Connection, topic: int, partition: int, *, after: int) -> StoredBlock | None:
    """Find the first block that begins after an offset, without its payload. `MalformedError` if it is damaged."""
    row = connection.execute(
        f"SELECT {_PLACE} FROM block WHERE topic = ? AND partition = ? AND first_offset > ? "
        "ORDER BY first_offset LIMIT 1",
        (topic, partition, after),
    ).fetchone()
    return None if row is None else _stored(row)


def blocks_appended_after(
    connection: sqlite3.Connection, topic: int, partition: int, time: Instant
) -> list[StoredBlock]:
    """The blocks that were appended after this time, without their payloads; those that are damaged are left out."""
    rows = connection.execute(
        f"SELECT {_PLACE} FROM block WHERE topic = ? AND partition = ? AND append_time > ?", (topic, partition, time)
    ).fetchall()
    found = []
    for row in rows:
        with suppress(MalformedError):  # reading it reports that
            found.append(_stored(row))
    return found


def fingerprint(connection: sqlite3.Connection, topic: int, partition: int, position: int) -> str | None:
    """The fingerprint of all that was appended before the position; None if it is not known.

    Within a block it is the block's and how far before its end the position is. Where compaction has removed the block
    it is not known any more, except at the end of such a gap.
    """
    if position <= 0:
        return None
    try:
        block = last_block(connection, topic, partition, before=position)
        if block is None or block.next_offset < position:
            block = find_block(connection, topic, partition, after=position - 1)
            return _hex(block.header.history_before) if block and block.first_offset == position else None
    except MalformedError:
        return None  # reading it reports that
    found = _hex(block.header.history)
    left = block.next_offset - position
    return found if not left or found is None else f"{found}-{left}"


def blocks_of(connection: sqlite3.Connection, topic: int, limit: int) -> list[tuple[Place, StoredBlock | None]]:
    """Some blocks of a topic, without their payloads: the place of each according to the file, and the block unless its
    header is damaged."""
    rows = connection.execute(f"SELECT {_PLACE} FROM block WHERE topic = ? LIMIT ?", (topic, limit)).fetchall()
    found: list[tuple[Place, StoredBlock | None]] = []
    for row in rows:
        try:
            found.append((Place(*row[:7]), _stored(row)))
        except MalformedError:
            found.append((Place(*row[:7]), None))
    return found


def remove_blocks(connection: sqlite3.Connection, blocks: Iterable[StoredBlock]) -> None:
    """Remove blocks with their payloads. A payload whose header does not match stays: the number that led to it may be
    damaged, and it may belong to another block."""
    for block in blocks:
        connection.execute(
            "DELETE FROM block WHERE topic = ? AND partition = ? AND first_offset = ?",
            (block.place.topic, block.place.partition, block.first_offset),
        )
        with suppress(MalformedError):
            if block.data is None:
                replace(block, data=_payload(connection, block.payload)).check()
            connection.execute("DELETE FROM payload WHERE id = ?", (block.payload,))


def _payload(connection: sqlite3.Connection, number: int) -> bytes:
    try:
        row = connection.execute("SELECT data FROM payload WHERE id = ?", (number,)).fetchone()
    except sqlite3.DatabaseError as error:
        if "malformed" not in str(error):
            raise
        raise MalformedError(f"its payload cannot be read ({error})") from error
    if row is None or not isinstance(row[0], bytes):
        raise MalformedError("its payload is missing")
    return row[0]


def _stored(row: tuple[int, int, int, int, int, int, int, bytes, int]) -> StoredBlock:
    place, (header, payload) = Place(*row[:7]), row[7:]
    if {*map(type, place), type(payload)} != {int} or type(header) is not bytes:
        raise MalformedError("what the file says of its place is not made of numbers")
    decoded = decode_header(header, place)
    if not place.first_offset < place.next_offset or place.records > place.next_offset - place.first_offset:
        raise MalformedError(
            f"{place.records} records cannot be at offsets {place.first_offset} to {place.next_offset}"
        )
    return StoredBlock(place, decoded, header, payload)


def _hex(value: int) -> str | None:
    return f"{value:016x}" if value else None
