"""The types of a log's interface: records, topics, blocks, positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from tidewheel.errors import DamagedBlockError
from tidewheel.model.block_stats import BlockStats
from tidewheel.model.time import Instant

__all__ = [
    "FETCHED",
    "RECORDS",
    "Batch",
    "Block",
    "OnDamage",
    "Partition",
    "Positions",
    "Receipt",
    "Retention",
    "StartFrom",
    "TopicInfo",
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

Partition: TypeAlias = tuple[str, int]
"""Topic and partition number."""

Positions: TypeAlias = Mapping[Partition, int]
"""For each partition the offset of the next record to read."""

OnDamage: TypeAlias = Callable[[DamagedBlockError], None]
"""What is called with each block that cannot be read and is passed over."""

StartFrom: TypeAlias = Literal["earliest", "latest"] | datetime | int
"""Where to begin: an end of the topic, an offset (int), or the first record appended at or after a time (datetime)."""


def records(
    values: Sequence[bytes] | pa.Array,
    *,
    keys: Sequence[bytes | None] | pa.Array | None = None,
    event_times: Sequence[Instant | None] | pa.Array | None = None,
    punctuations: Sequence[Instant | None] | pa.Array | None = None,
    type: str | None = None,
) -> pa.RecordBatch:
    """Make records that are ready to be appended.

    Args:
        values: The bytes of each record.
        keys: The key of each: records of one key go to one partition.
        event_times: When each happened, in microseconds.
        punctuations: For markers, up to when nothing more comes.
        type: The message type that all the values carry, if they are binary events of one type: readers then need not
            look at each of them.

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
    """How long records are kept: up to an age (microseconds) and up to a size (bytes) per partition; None means no
    limit.

    What is within both limits stays. Of the rest whole blocks leave, the oldest first and never the newest of a
    partition, when the log comes to it: nobody may rely on something having left.

    >>> Retention(age=7 * 24 * 3600 * 1_000_000)
    Retention(age=604800000000, size=None)
    """

    age: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and its size. `count` and `size` are what it holds now (upper bounds for a compacted topic);
    `next_offsets` has one per partition. `id` is never used again: it distinguishes the topic from a deleted one of the
    same name."""

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
    """A stored run of records: its place and its header, without its data."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    size: int
    summary: BlockStats


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
    """The outcome of an append. `duplicate`: the log had it already and wrote nothing. `next_offsets`: where the
    written partitions end now (empty for a duplicate)."""

    sequence: int
    duplicate: bool = False
    next_offsets: Mapping[Partition, int] = field(default_factory=dict)
