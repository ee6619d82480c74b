"""Appending to the embedded log: one transaction takes the blocks of all topics and the producer's sequence number."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidewheel.errors import FencedError, MalformedError
from tidewheel.model.time import Duration, Instant
from tidewheel.transport.log.block import Draft, drafts
from tidewheel.transport.log.block_header import Header, Place, encode_header, history_after
from tidewheel.transport.log.log import Producer
from tidewheel.transport.log.log_types import Partition, Receipt, Retention
from tidewheel.transport.log.partitioner import partitioned
from tidewheel.transport.log.validation import check_batches, check_producer_name, chosen_sequence
from tidewheel.transport.sqlite.blocks import last_block
from tidewheel.transport.sqlite.clock import AppendClock
from tidewheel.transport.sqlite.database import Database
from tidewheel.transport.sqlite.maintenance import Maintenance
from tidewheel.transport.sqlite.schema import check_names, sound_rows
from tidewheel.transport.sqlite.topics import insert_topic

__all__ = ["Appender", "SqliteProducer"]


@dataclass(frozen=True, slots=True)
class _Turn:
    """An append under a producer's name; no epoch: every process may append under the name."""

    name: str
    epoch: int | None
    sequence: int
    state: bytes | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The blocks for one topic. All that takes long is done before the log is locked."""

    topic: str
    partitions: int
    blocks: Mapping[int, list[Draft]]


class Appender:
    """Appends to a log's file."""

    def __init__(
        self,
        database: Database,
        maintenance: Maintenance,
        *,
        clock: Callable[[], Instant],
        future_tolerance: Duration,
    ) -> None:
        self._database = database
        self._maintenance = maintenance
        self._clock = AppendClock(database.path, clock)
        self._future_tolerance = future_tolerance
        self._rotation = itertools.count()

    def append(self, batches: Mapping[str, pa.RecordBatch], turn: _Turn | None = None) -> Receipt:
        """Append to all the topics or to none."""
        check_batches(batches)
        # By the sequence, so that a producer that starts again and repeats itself chooses the same partitions.
        rotation = turn.sequence if turn else next(self._rotation)
        sequence = turn.sequence if turn else -1
        while True:
            prepared = self._prepare(batches, rotation)
            with self._database.writing() as connection:
                if turn and _last_sequence(connection, turn) >= turn.sequence:
                    return Receipt(sequence=sequence, duplicate=True)
                topics = {each.topic: self._topic(connection, each) for each in prepared}
                if None in topics.values():
                    continue
                now = self._clock.now(connection, appends=any(each.blocks for each in prepared))
                ends: dict[Partition, int] = {}
                for each in prepared:
                    number = topics[each.topic]
                    assert number is not None
                    for partition, blocks in each.blocks.items():
                        ends[each.topic, partition] = self._store(connection, number, partition, blocks, now)
                if turn:
                    connection.execute(
                        "INSERT INTO producer (name, epoch, sequence, state) VALUES (?1, 0, ?2, coalesce(?3, x'')) "
                        "ON CONFLICT (name) DO UPDATE SET sequence = ?2, state = coalesce(?3, state)",
                        (turn.name, turn.sequence, turn.state),
                    )
                maintain = self._maintenance.claim(connection, now)
            if maintain:
                self._maintenance.run_after_append(now)
            return Receipt(sequence=sequence, next_offsets=ends)

    def _prepare(self, batches: Mapping[str, pa.RecordBatch], rotation: int) -> list[_Prepared]:
        with self._database.reading() as connection:
            found = [row for topic in batches for row in sound_rows(connection, "topic", "name = ?", (topic,))]
        counts = {row[1]: row[2] for row in found}
        result = []
        for topic, batch in batches.items():
            partitions = counts.get(topic, 1)
            parts = partitioned(batch, partitions, unkeyed=rotation % partitions)
            blocks = {partition: list(drafts(part)) for partition, part in parts}
            result.append(_Prepared(topic, partitions, {number: some for number, some in blocks.items() if some}))
        return result

    @staticmethod
    def _topic(connection: sqlite3.Connection, prepared: _Prepared) -> int | None:
        """The topic's number; None if it was created again with other partitions since the blocks were prepared."""
        rows = sound_rows(connection, "topic", "name = ?", (prepared.topic,))
        if not rows:
            return insert_topic(
                connection,
                prepared.topic,
                partitions=prepared.partitions,
                retention=Retention(),
                compact=False,
            )
        number, _, partitions, *_ = rows[0]
        return int(number) if partitions == prepared.partitions else None

    def _store(
        self, connection: sqlite3.Connection, topic: int, partition: int, blocks: list[Draft], now: Instant
    ) -> int:
        ((_, _, _, offset, _, _, last, _),) = sound_rows(
            connection, "partition", "topic = ? AND number = ?", (topic, partition)
        )
        follows, history = self._before(connection, topic, partition, offset)
        append_time = now if last is None else max(now, last)  # a clock may be set back, a partition's never goes back
        for block in blocks:
            payload = connection.execute("INSERT INTO payload (data) VALUES (?)", (block.payload,)).lastrowid
            after = offset + block.count
            place = Place(topic, partition, offset, after, block.count, len(block.payload), append_time)
            before, history = history, history_after(history, place, block.checksum)
            header = Header(
                block.summary(append_time=append_time, future_tolerance=self._future_tolerance),
                type=block.type,
                payload_checksum=block.checksum,
                follows=follows,
                history_before=before,
                history=history,
            )
            connection.execute(
                "INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*place, encode_header(header, place), payload)
            )
            follows = offset = after
        connection.execute(
            "UPDATE partition SET next_offset = ?, count = count + ?, size = size + ?, last_append = ? "
            "WHERE topic = ? AND number = ?",
            (
                offset,
                sum(block.count for block in blocks),
                sum(len(block.payload) for block in blocks),
                append_time,
                topic,
                partition,
            ),
        )
        return int(offset)

    @staticmethod
    def _before(connection: sqlite3.Connection, topic: int, partition: int, offset: int) -> tuple[int, int]:
        """The end of the block before this offset, and the fingerprint up to there; 0 if it is not known: reading
        damaged records reports them, and appending must not fail because of it."""
        try:
            newest = last_block(connection, topic, partition)
        except MalformedError:
            return offset, 0
        return offset, newest.header.history if newest is not None and newest.next_offset == offset else 0


class SqliteProducer(Producer):
    """A producer of the embedded log. May be used by several threads."""

    def __init__(self, database: Database, appender: Appender, name: str, *, fence: bool) -> None:
        check_producer_name(name)
        self.name = name
        self._epoch, self.sequence, self.state = _open(database, name, fence=fence)
        self._appender = appender
        self._lock = threading.Lock()

    def append(
        self,
        batches: Mapping[str, pa.RecordBatch],
        *,
        sequence: int | None = None,
        state: bytes | None = None,
    ) -> Receipt:
        """Append records to topics, all or nothing, durable on return (see `Producer.append`)."""
        with self._lock:
            sequence = chosen_sequence(
                sequence, producer=self.name, last=None if self._epoch is None else self.sequence
            )
            receipt = self._appender.append(batches, _Turn(self.name, self._epoch, sequence, state))
            self.sequence = max(self.sequence, sequence)
            if state is not None and not receipt.duplicate:
                self.state = state
            return receipt

    def __repr__(self) -> str:
        return f"<producer {self.name!r} at sequence {self.sequence}>"


def _open(database: Database, name: str, *, fence: bool) -> tuple[int | None, int, bytes]:
    """Epoch, sequence and state of the producer; `fence` begins a new epoch, otherwise nothing is written."""
    with database.reading() as connection:
        rows = sound_rows(connection, "producer", "name = ?", (name,))
        if not rows and database.looks_through("producer"):
            check_names(connection, "producer")
    if not fence:
        return (None, rows[0][2], rows[0][3]) if rows else (None, -1, b"")
    with database.writing() as connection:
        connection.execute(
            "INSERT OR IGNORE INTO producer (name, epoch, sequence, state) VALUES (?, 0, -1, x'')", (name,)
        )
        connection.execute("UPDATE producer SET epoch = epoch + 1 WHERE name = ?", (name,))
        ((_, epoch, sequence, state),) = sound_rows(connection, "producer", "name = ?", (name,))
    return epoch, sequence, state


def _last_sequence(connection: sqlite3.Connection, turn: _Turn) -> int:
    rows = sound_rows(connection, "producer", "name = ?", (turn.name,))
    epoch, sequence = rows[0][1:3] if rows else (0, -1)
    if turn.epoch is not None and turn.epoch != epoch:
        raise FencedError(
            f"producer {turn.name!r} has been opened again elsewhere (epoch {epoch}, this one has {turn.epoch}): only "
            f"the newest may append. Stop this one, or give each writer a name of its own."
        )
    return int(sequence)
