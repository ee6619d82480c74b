"""The index of a topic: what is known of its records without reading them.

Kafka keeps no statistics of its records. So each append writes an entry for each block, or each run of events, to a
partition of the topic's index, after their offsets are known and in the same transaction. An aborted transaction leaves
no entry. A planner reads the index alone, and keeps what it has read.
"""

from __future__ import annotations

import struct
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidewheel.errors import LogError, MalformedError
from tidewheel.model.block_stats import merge
from tidewheel.model.time import Instant
from tidewheel.transport.kafka.client import TIMEOUT_SECONDS, TRANSACTION_SECONDS, Clients
from tidewheel.transport.kafka.topics import KafkaTopic
from tidewheel.transport.log.block_header import Header, Place, decode_header, encode_header

__all__ = ["IndexEntry", "PartitionIndex", "TopicIndexes", "decode_entry", "encode_entry"]

_VERSION = 1
_ENTRY = struct.Struct("<B5q")


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Records that were appended together: their offsets in the log, their size, and their header."""

    first_offset: int
    next_offset: int
    size: int
    header: Header

    @property
    def append_time(self) -> Instant:
        """When they were appended."""
        return self.header.summary.append_time


def encode_entry(entry: IndexEntry, *, partition: int) -> bytes:
    """Encode an entry as the value of a record of the index."""
    return _ENTRY.pack(
        _VERSION, entry.first_offset, entry.next_offset, entry.header.summary.count, entry.size, entry.append_time
    ) + encode_header(entry.header, _place(partition, entry))


def decode_entry(data: bytes, *, partition: int) -> IndexEntry:
    """Decode an entry; `MalformedError` if it is damaged, `LogError` if a newer Tidewheel wrote it."""
    if len(data) < _ENTRY.size:
        raise MalformedError(f"an entry of an index has at least {_ENTRY.size} bytes, not {len(data)}")
    version, first, after, count, size, append_time = _ENTRY.unpack_from(data)
    if version != _VERSION:
        raise LogError(f"an entry of an index has version {version}, this Tidewheel reads {_VERSION}")
    header = decode_header(data[_ENTRY.size :], Place(0, partition, first, after, count, size, append_time))
    return IndexEntry(first, after, size, header)


def _place(partition: int, entry: IndexEntry) -> Place:
    return Place(
        0, partition, entry.first_offset, entry.next_offset, entry.header.summary.count, entry.size, entry.append_time
    )


class PartitionIndex:
    """What is known of a partition: entries in the order of offsets, none of which overlap."""

    def __init__(self) -> None:
        self.entries: list[IndexEntry] = []
        self.reached = 0
        """The offset of the index up to which it was read."""

    def add(self, entry: IndexEntry) -> None:
        """Add an entry. One whose records lie among those of others, since several wrote events at once, is merged with
        them."""
        begin = bisect_right(self.entries, entry.first_offset, key=lambda each: each.next_offset)
        end = bisect_left(self.entries, entry.next_offset, key=lambda each: each.first_offset)
        among = self.entries[begin:end]
        if among:
            together = [*among, entry]
            entry = IndexEntry(
                first_offset=min(each.first_offset for each in together),
                next_offset=max(each.next_offset for each in together),
                size=sum(each.size for each in together),
                header=Header(merge(each.header.summary for each in together)),
            )
        self.entries[begin:end] = [entry]

    def after(self, offset: int, end: int) -> Sequence[IndexEntry]:
        """The entries that hold offsets from one on, and none from another on: what is there only in part, since
        somebody else's transaction is open among it, is not there yet."""
        begin = bisect_right(self.entries, offset, key=lambda each: each.next_offset)
        return self.entries[begin : bisect_right(self.entries, end, key=lambda each: each.next_offset)]

    def drop(self, first: int) -> None:
        """Forget what retention has taken."""
        del self.entries[: bisect_right(self.entries, first, key=lambda each: each.next_offset)]


class TopicIndexes:
    """Reads the indexes of a log's topics, each entry once."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], PartitionIndex] = {}

    def read(self, topics: Sequence[KafkaTopic], extents: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Read all entries that there are. `extents`: where the partitions of the indexes begin and end, by full name
        and partition."""
        with self._lock:
            behind = {}
            topics_by_index = {topic.index: topic for topic in topics}
            for (index, partition), (begin, end) in extents.items():
                known = self._of(topics_by_index[index], partition)
                known.reached = max(known.reached, begin)  # it is kept for longer than the data
                if known.reached < end:
                    behind[index, partition] = (known, end)
            if behind:
                self._read(behind)

    def entries(self, topic: KafkaTopic, partition: int, first: int, end: int) -> Sequence[IndexEntry]:
        """The entries that were read of a partition, from its first offset on and before its end."""
        with self._lock:
            known = self._of(topic, partition)
            known.drop(first)
            return known.after(first, end)

    def _of(self, topic: KafkaTopic, partition: int) -> PartitionIndex:
        # By the identities: what is made anew under the same name begins from nothing.
        return self._known.setdefault((f"{topic.id}/{topic.index_id}", partition), PartitionIndex())

    def _read(self, behind: Mapping[tuple[str, int], tuple[PartitionIndex, int]]) -> None:
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + TIMEOUT_SECONDS + TRANSACTION_SECONDS
        open_parts = set(behind)
        places = {part: index.reached for part, (index, _) in behind.items()}
        with self._clients.reader(places) as reader:
            while open_parts:
                if time.monotonic() > deadline:
                    raise LogError(
                        f"the index {min(open_parts)[0]!r} is not complete yet: a writer has begun to append and "
                        "neither goes on nor ends; what it began is aborted after a while. Try again"
                    )
                first = reader.poll(1.0)
                for message in [] if first is None else [first, *reader.consume(10_000, 0)]:
                    error = message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        if error.fatal() or not error.retriable():
                            raise KafkaException(error)
                        continue
                    part = message.topic(), message.partition()
                    index, end = behind[part]
                    if error is None:
                        _add(index, message)
                        deadline = max(deadline, time.monotonic() + TIMEOUT_SECONDS)
                    else:
                        index.reached = max(index.reached, message.offset())
                    if index.reached >= end:
                        open_parts.discard(part)


def _add(index: PartitionIndex, message: Any) -> None:
    if message.offset() < index.reached:
        return
    try:
        index.add(decode_entry(message.value() or b"", partition=message.partition()))
    except MalformedError as error:
        raise LogError(
            f"the index {message.topic()!r} partition {message.partition()} has something else at offset "
            f"{message.offset()}: {error}"
        ) from error
    index.reached = message.offset() + 1
