"""The log: topics of records in partitions, read by offset. One small interface for every implementation.

It promises only what Kafka can keep as well: order within a partition, offsets that rise but may have gaps, no
deletion except by retention and by compaction to the latest record of each key. Records travel as Arrow batches.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from tidewheel.errors import DamagedBlockError, DefinitionError, TopicNotFoundError
from tidewheel.model.summary import Summary
from tidewheel.model.time import Instant

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
    "Start",
    "Topic",
    "TopicInfo",
    "check_topic_name",
    "open_log",
    "records",
]

RECORDS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("event_time", pa.timestamp("us", "UTC")),
        pa.field("punctuation", pa.timestamp("us", "UTC")),
        pa.field("type", pa.dictionary(pa.int32(), pa.string())),
    ]
)
"""What is appended. `event_time`, `punctuation` (see `Punctuation`) and `type` only feed the block's header: they are
in the value already."""

FETCHED = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("append_time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
"""What is read."""

_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")

Partition: TypeAlias = tuple[str, int]
"""Topic and partition number."""

Positions: TypeAlias = Mapping[Partition, int]
"""For each partition the offset of the next record to read."""

OnDamage: TypeAlias = Callable[[DamagedBlockError], None]
"""What is told of a block that cannot be read and is passed over."""

Start: TypeAlias = Literal["earliest", "latest"] | datetime | int
"""Where to begin: an end of the topic, an offset (int), or the first record appended at or after a time (datetime)."""


def records(
    values: Sequence[bytes] | pa.Array,
    *,
    keys: Sequence[bytes | None] | pa.Array | None = None,
    event_times: Sequence[Instant | None] | pa.Array | None = None,
    punctuations: Sequence[Instant | None] | pa.Array | None = None,
    type: str | None = None,
) -> pa.RecordBatch:
    """Records ready to be appended. `type`: the message type that all the values carry, if they are binary events of
    one type: readers need not look at each of them then.

    >>> records([b"one", b"two"], keys=[b"a", None], event_times=[1, None]).num_rows
    2
    """
    count = len(values)
    kinds = None if type is None else pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [type])
    columns = []
    for column, given in zip(RECORDS, (keys, values, event_times, punctuations, kinds), strict=True):
        if given is None:
            columns.append(pa.nulls(count, column.type))
        elif isinstance(given, (pa.Array, pa.ChunkedArray)):
            columns.append(given.cast(column.type) if given.type != column.type else given)
        else:
            columns.append(pa.array(given, column.type))
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long records are kept: up to an age (microseconds) and up to a size (bytes) per partition; None: no limit.

    What is within both limits stays. Of the rest whole blocks leave, the oldest first and never the newest of a
    partition, when the log comes to it: nobody may rely on something having left.
    """

    age: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and how full it is. `count` and `size` are what it holds now (of a compacted topic at most so much);
    `next_offsets` one per partition. `id` is never used again: it tells the topic from one of the same name that was
    deleted."""

    name: str
    id: str
    partitions: int
    retention: Retention
    compact: bool
    count: int
    size: int
    first_offsets: tuple[int, ...]
    next_offsets: tuple[int, ...]
    last_append: Instant | None


@dataclass(frozen=True, slots=True)
class Block:
    """A stored run of records: its place and what its header says, without its data."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    size: int
    summary: Summary


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one partition in the order of their offsets; `records` has the schema `FETCHED`. `type`: the message
    type that all of them carry as binary events, where the log knows it."""

    topic: str
    partition: int
    records: pa.RecordBatch
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an append. `duplicate`: the log had it already and wrote nothing. `next_offsets`: where the
    written partitions end now (empty for a duplicate)."""

    sequence: int
    duplicate: bool = False
    next_offsets: Mapping[Partition, int] = field(default_factory=dict)


class Producer(ABC):
    """Appends under a name, each append with a rising sequence number, so that a retried one is not appended twice.

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
    >>> log = open_log(tempfile.mkdtemp() + "/city.tw")
    >>> log.create_topic("input.arrival").partitions
    1
    >>> log.append("input.arrival", records([b"one", b"two"])).next_offsets
    {('input.arrival', 0): 2}
    >>> [batch.records["value"].to_pylist() for batch in log.read("input.arrival", 0, 0)]
    [[b'one', b'two']]
    >>> [(block.first_offset, block.next_offset) for block in log.blocks("input.arrival", 0, 0)]
    [(0, 2)]
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
        """Make a topic, or set the retention and compaction of one that is there to these (its partitions stay).

        Records of a compacted topic need keys: one without is never replaced, and Kafka would refuse it.
        """

    def ensure_topic(self, name: str, *, compact: bool = False) -> None:
        """Make a topic if it is not there; one that is stays as it is."""
        try:
            self.topic_info(name)
        except TopicNotFoundError:
            self.create_topic(name, compact=compact)

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Remove a topic with all that is in it."""

    @abstractmethod
    def topics(self) -> list[TopicInfo]:
        """All topics by name."""

    @abstractmethod
    def topic_info(self, name: str) -> TopicInfo:
        """One topic; `TopicNotFoundError` names those there are."""

    @abstractmethod
    def producer(self, name: str, *, fence: bool = True) -> Producer:
        """Open the producer of this name. `fence=False` only joins it: for writers whose sequence numbers alone
        tell repeats (the Spark sink), where several objects of one name are no mistake; it must give them."""

    @abstractmethod
    def append(self, topic: str, batch: pa.RecordBatch) -> Receipt:
        """Append without a name: for writers that never retry. The receipt's sequence is -1."""

    @abstractmethod
    def position(self, topic: str, partition: int, start: Start) -> int:
        """The offset at which reading from `start` begins."""

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
        """The blocks that hold records from offset `start` on (and before `end`), as many as hold at most `limit` of
        them but at least one. `DataLossError` if records from `start` on have left by retention.

        Of a block whose header is damaged `on_damage` is told, and it is among the blocks with a summary that knows
        only how many offsets it takes and about when it was appended. Without `on_damage` it is raised."""

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
        """The records from offset `start` on (and before `end`, at most `limit`), a block at a time. Of a block that is
        damaged `on_damage` is told, and it is passed over. Without `on_damage` it is raised."""

    @abstractmethod
    def fingerprints(self, positions: Positions) -> dict[Partition, str | None]:
        """For each position a fingerprint of all that was appended to the partition before it: the same one later on
        and in every copy of the log, another one where something else lay before that position. None if it is not
        known, as with positions that compaction or retention has passed by."""

    def faults(self) -> list[str]:
        """What is damaged in what the log keeps beside records; looks through all of it, which may take a while."""
        return []

    @abstractmethod
    def commit(self, group: str, positions: Positions) -> None:
        """Note how far a consumer group has come."""

    @abstractmethod
    def committed(self, group: str) -> dict[Partition, int]:
        """How far a consumer group has come; empty if it never committed."""

    @abstractmethod
    def groups(self) -> list[str]:
        """The consumer groups that have committed."""

    @abstractmethod
    def forget(self, group: str) -> None:
        """Remove a consumer group's positions."""

    @abstractmethod
    def maintain(self, *, now: Instant | None = None) -> None:
        """Apply retention and compaction, as far as the log can do it when it is asked. It does it by itself, too, now
        and then: what may leave may leave at any time, and may also still be there."""

    @abstractmethod
    def wait(self, positions: Positions, timeout: float) -> bool:
        """Until some partition has records at or beyond its position, or `timeout` seconds have passed: is there
        something to read?"""

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
        """Append the rows of a table as events, all or nothing; nobody needs to define a message type.

        Their type is made of the columns and kept by the log. A column that is new becomes a field of it (null in older
        rows), one that is missing is null; where a type changes, numbers are widened if nothing is lost, and all else
        is refused.

        Args:
            topic: Where to.
            rows: A DataFrame (pandas, polars, or a static one of Spark), an Arrow table, or a list of dicts.
            time: The column that tells when each row happened: timestamps (without a zone: UTC), ISO text with a zone,
                or numbers since 1970 whose unit is beyond doubt. It becomes the `event_time`, and stays a column.
            key: The column, or columns, whose values are the record's key: rows of one key stay in order.
            producer, sequence: For writers that may repeat an append: the same name and number is written once.

        >>> import tempfile
        >>> log = open_log(tempfile.mkdtemp() + "/shop.tw")
        >>> rows = [{"user": "anna", "amount": 12.5, "ts": "2026-01-31T12:00:00Z"}]
        >>> log.append_rows("input.order", rows, time="ts", key="user").next_offsets
        {('input.order', 0): 1}
        """
        from tidewheel.transport.rows import append_rows

        return append_rows(self, topic, rows, time=time, key=key, producer=producer, sequence=sequence)

    def topic(self, name: str) -> Topic:
        """A topic by name, there or not: what jobs are told to write to."""
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


def check_topic_name(name: str) -> None:
    """Refuse a name that a topic cannot have."""
    if not isinstance(name, str) or not _TOPIC_NAME.fullmatch(name):
        raise DefinitionError(
            f"a topic's name is 1 to 249 letters, digits, dots, hyphens and underscores, such as input.arrival; "
            f"got {name!r}"
        )


def open_log(address: str | os.PathLike[str], **options: Any) -> Log:
    """Open a log by its address: the path of a SQLite file, which is made if it is missing.

    >>> open_log("kafka://here")
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: no log implementation for 'kafka://here'; give the path of a file, such as city.tw
    """
    text = os.fspath(address)
    if "://" in text:
        raise DefinitionError(f"no log implementation for {text!r}; give the path of a file, such as city.tw")
    from tidewheel.transport.sqlite import SqliteLog

    return SqliteLog(text, **options)
