"""The log: topics of records in partitions, read by offset. One small interface for every implementation.

It promises only what Kafka can keep as well: order within a partition, offsets that rise but may have gaps, no
deletion except by retention and by compaction to the latest record of each key. Records travel as Arrow batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel.errors import TopicNotFoundError
from tidewheel.model.time import Instant
from tidewheel.topic_names import check_topic_name
from tidewheel.transport.log.log_types import (
    FETCHED,
    RECORDS,
    Batch,
    Block,
    OnDamage,
    Partition,
    Positions,
    Receipt,
    Retention,
    StartFrom,
    TopicInfo,
    records,
)

__all__ = [
    "FETCHED",
    "RECORDS",
    "Batch",
    "Block",
    "Log",
    "OnDamage",
    "Partition",
    "Positions",
    "Producer",
    "Receipt",
    "Retention",
    "StartFrom",
    "Topic",
    "TopicInfo",
    "check_topic_name",
    "records",
]


class Producer(ABC):
    """Appends under a name. Each append has a rising sequence number, so that a retry is not appended twice.

    Opening a producer of the same name anew fences the older one: its appends raise `FencedError`.
    """

    name: str
    sequence: int
    """The highest sequence number that the log has of this name; -1 if none."""
    state: bytes
    """What the last append under this name left for the next (see `append`); empty if nothing."""

    @abstractmethod
    def append(
        self,
        batches: Mapping[str, pa.RecordBatch],
        *,
        sequence: int | None = None,
        state: bytes | None = None,
    ) -> Receipt:
        """Append records (schema `RECORDS`) to topics, all or nothing, durable on return.

        `sequence` defaults to the next one; one that is not higher than the last is a retry and changes nothing.
        So an append that raised may or may not have been done: repeat it, with the same number, before the next.
        `state` is kept with the append, in the same transaction: a connector's note to its own successor.
        Missing topics are made. Records with a key go to the partition of the key's hash.
        """


class Log(ABC):
    """A log. Objects may be used by several threads; every process opens its own.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> log = open_log(tempfile.mkdtemp() + "/city.tw")
    >>> log.create_topic("input.arrival").partitions
    1
    >>> log.append("input.arrival", records([b"one", b"two"])).next_offsets
    {('input.arrival', 0): 2}
    >>> [batch.records["value"].to_pylist() for batch in log.read("input.arrival", 0, 0)]
    [[b'one', b'two']]
    >>> [(block.first_offset, block.next_offset) for block in log.blocks("input.arrival", 0, 0)]
    [(0, 2)]
    >>> log.counts({("input.arrival", 0): 1})
    {('input.arrival', 0): 1}
    >>> before = log.fingerprints({("input.arrival", 0): 2})
    >>> log.position("input.arrival", 0, "latest"), log.wait({("input.arrival", 0): 0}, timeout=0)
    (2, True)
    >>> log.producer("me").append({"input.arrival": records([b"three"])}, sequence=7).sequence
    7
    >>> log.fingerprints({("input.arrival", 0): 2}) == before
    True
    >>> log.commit("dashboard", {("input.arrival", 0): 2})
    >>> log.groups(), log.committed("dashboard")
    (['dashboard'], {('input.arrival', 0): 2})
    >>> log.forget("dashboard")
    >>> log.ensure_topic("analytics.delay")
    >>> [info.name for info in log.topics()], log.topic_info("input.arrival").count
    (['analytics.delay', 'input.arrival'], 3)
    >>> log.delete_topic("analytics.delay")
    >>> log.maintain()
    >>> log.faults()
    []
    >>> log.topic("input.arrival").name
    'input.arrival'
    >>> log.close()
    """

    address: str
    """What `open_log` takes to open the same log in another process."""
    identity: str
    """A unique name given when the log was made: tells this log from another at the same address."""

    @abstractmethod
    def create_topic(
        self, name: str, *, partitions: int = 1, retention: Retention | None = None, compact: bool = False
    ) -> TopicInfo:
        """Create a topic, or change the retention and compaction of an existing one (its partitions stay).

        Records of a compacted topic need keys: one without is never replaced, and Kafka would refuse it.
        """

    def ensure_topic(self, name: str, *, compact: bool = False) -> None:
        """Create a topic if it does not exist; an existing one stays as it is."""
        try:
            self.topic_info(name)
        except TopicNotFoundError:
            self.create_topic(name, compact=compact)

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""

    @abstractmethod
    def topics(self) -> list[TopicInfo]:
        """List all topics, by name."""

    @abstractmethod
    def topic_info(self, name: str) -> TopicInfo:
        """Describe one topic; `TopicNotFoundError` lists those that exist."""

    @abstractmethod
    def producer(self, name: str, *, fence: bool = True) -> Producer:
        """Open the producer of this name. `fence=False` only joins it: for writers such as the Spark sink, whose
        sequence numbers identify repeats and of which several may be open at once; they must give sequence numbers."""

    @abstractmethod
    def append(self, topic: str, batch: pa.RecordBatch) -> Receipt:
        """Append without a name: for writers that never retry. The receipt's sequence is -1."""

    @abstractmethod
    def position(self, topic: str, partition: int, start_from: StartFrom) -> int:
        """Find the offset at which reading from `start_from` begins."""

    @abstractmethod
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
        """Read the blocks that hold records of a partition. `DataLossError` if records from `start` on were removed by
        retention.

        Args:
            topic: The topic.
            partition: The partition.
            start: The offset from which records are wanted.
            end: The offset before which they are wanted.
            limit: As many blocks as hold at most so many of them, but at least one.
            on_damage: Called for a block whose header is damaged; the block is then given with a summary that knows
                only how many offsets it takes and about when it was appended. Without it the damage is raised.
        """

    @abstractmethod
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
        """Read the records of a partition, a block at a time.

        Args:
            topic: The topic.
            partition: The partition.
            start: The offset from which records are wanted.
            end: The offset before which they are wanted.
            limit: How many records at most.
            on_damage: Called for a block that is damaged, which is then passed over. Without it the damage is raised.
        """

    @abstractmethod
    def counts(self, starts: Positions, ends: Positions | None = None) -> dict[Partition, int]:
        """About how many records lie from each position on, before that of the same partition in `ends`, or up to the
        partition's end. Offsets alone do not tell: they may have gaps."""

    @abstractmethod
    def fingerprints(self, positions: Positions) -> dict[Partition, str | None]:
        """Return for each position a fingerprint of everything that was appended to the partition before it: it is the
        same in every copy of the log, and differs where something else was appended before that position. None if it is
        not known, as for positions that compaction or retention has passed."""

    def faults(self) -> list[str]:
        """Find damage in the log's own tables, besides the records; reads all of them, which may take a while."""
        return []

    @abstractmethod
    def commit(self, group: str, positions: Positions) -> None:
        """Commit the positions of a consumer group."""

    @abstractmethod
    def committed(self, group: str) -> dict[Partition, int]:
        """Return the positions of a consumer group; empty if it never committed."""

    @abstractmethod
    def groups(self) -> list[str]:
        """List the consumer groups that have committed."""

    @abstractmethod
    def forget(self, group: str) -> None:
        """Remove a consumer group's positions."""

    @abstractmethod
    def maintain(self, *, now: Instant | None = None) -> None:
        """Apply retention and compaction now. The log also applies them by itself from time to time: records beyond
        retention may be removed at any time, and may also still be there."""

    @abstractmethod
    def wait(self, positions: Positions, timeout: float) -> bool:
        """Wait until some partition has records at or beyond its position, or `timeout` seconds have passed; returns
        whether there is something to read."""

    @abstractmethod
    def close(self) -> None:
        """Release what the object holds. The log stays."""

    def append_rows(
        self,
        topic: str,
        rows: Any,
        *,
        time: str,
        key: str | Sequence[str] = (),
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Receipt:
        """Append the rows of a table as events, all or nothing; no message type need be defined.

        Their type is made of the columns and kept by the log. A column that is new becomes a field of it (null in older
        rows), one that is missing is null; where a type changes, numbers are widened if nothing is lost, and all else
        is refused.

        Args:
            topic: Where to.
            rows: A DataFrame (pandas, polars, or a static one of Spark), an Arrow table, or a list of dicts.
            time: The column that tells when each row happened: timestamps (without a zone: UTC), ISO text with a zone,
                or numbers since 1970 whose unit is beyond doubt. It becomes the `event_time`, and stays a column.
            key: The column, or columns, whose values are the record's key: rows of one key stay in order.
            producer: For writers that may repeat an append: their name.
            sequence: The number of this append of the producer; the same number is written once.

        >>> import tempfile
        >>> from tidewheel.transport.open_log import open_log
        >>> log = open_log(tempfile.mkdtemp() + "/shop.tw")
        >>> rows = [{"user": "anna", "amount": 12.5, "ts": "2026-01-31T12:00:00Z"}]
        >>> log.append_rows("input.order", rows, time="ts", key="user").next_offsets
        {('input.order', 0): 1}
        """
        from tidewheel.transport.events.rows import append_rows

        return append_rows(self, topic, rows, time=time, key=key, producer=producer, sequence=sequence)

    def topic(self, name: str) -> Topic:
        """Name a topic, existing or not: a target for the results of jobs."""
        return Topic(self, name)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of a log, by name."""

    log: Log
    name: str

    def __repr__(self) -> str:
        return f"{self.log!r}.topic({self.name!r})"
