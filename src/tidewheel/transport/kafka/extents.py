"""Where the partitions of topics begin and end, such that all that is within is committed and in the index."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidewheel.model.time import Instant
from tidewheel.transport.kafka.client import REQUEST_SECONDS, Clients, UnsettledError, patiently, results_of
from tidewheel.transport.kafka.records import log_offset
from tidewheel.transport.kafka.topic_index import IndexEntry, TopicIndexes
from tidewheel.transport.kafka.topics import KafkaTopic, Topics

__all__ = ["Extent", "Extents"]

_SETTLED_SECONDS = 10.0
"""How long a partition may be without a leader: where it was just made, or a broker has just died."""
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Extent:
    """A partition's first offset and the one after its last, and the entries of its index in between; None for a topic
    without an index, or where nobody asked for them."""

    first: int
    end: int
    entries: Sequence[IndexEntry] | None

    def holds_after(self, position: int) -> bool:
        """Whether there are records at or beyond a position."""
        if self.entries is None:
            return self.end > position
        return bool(self.entries) and self.entries[-1].next_offset > position

    def count(self, start: int, end: int | None = None) -> int:
        """About how many records lie from one position on and before another."""
        last = self.end if end is None else min(end, self.end)
        if self.entries is None:
            return max(0, last - max(start, self.first))
        found = 0
        for entry in self.entries:
            within = min(entry.next_offset, last) - max(entry.first_offset, start)
            found += max(0, min(within, entry.header.summary.count))
        return found

    def fingerprint(self, position: int) -> str | None:
        """What tells what was appended last before a position from anything else; None if that is not known."""
        before = bisect_left(self.entries or (), position, key=lambda each: each.first_offset)
        if not self.entries or not before:
            return None
        entry = self.entries[before - 1]
        left = max(entry.next_offset - position, 0)
        known = f"{entry.first_offset}-{entry.next_offset}:{entry.append_time}:{entry.header.payload_checksum or 0:08x}"
        return f"{known}-{left}" if left else known


class Extents:
    """Asks the cluster where partitions begin and end."""

    def __init__(self, clients: Clients, topics: Topics) -> None:
        self._clients = clients
        self._topics = topics
        self._indexes = TopicIndexes(clients)

    def of(
        self, topics: Sequence[KafkaTopic], *, only: int | None = None, entries: bool = True
    ) -> dict[tuple[str, int], Extent]:
        """The extents of partitions of these topics, by the topic's name in the log.

        Args:
            topics: The topics.
            only: The number of the one partition of each that is wanted; all by default.
            entries: False leaves the index alone.
        """
        deadline = time.monotonic() + _SETTLED_SECONDS
        while True:
            try:
                now = list(topics)
                return patiently(
                    self._clients,
                    "ask where partitions begin and end",
                    lambda now=now: self._of(now, only, entries=entries),  # type: ignore[misc]
                )
            except UnsettledError:
                # A partition has no leader yet, or a topic was deleted, and perhaps made anew.
                topics = [self._topics.get(topic.name) for topic in topics]
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _of(self, topics: Sequence[KafkaTopic], only: int | None, *, entries: bool) -> dict[tuple[str, int], Extent]:
        numbers = {topic.name: range(topic.partitions) if only is None else (only,) for topic in topics}
        data = [(topic.full_name, number) for topic in topics for number in numbers[topic.name]]
        index = [(topic.index, number) for topic in topics if entries and topic.index for number in numbers[topic.name]]
        # All that lies before these ends is committed or aborted. What was committed was in the index before.
        ends = self._ask(data, "latest", committed=True)()
        begin, index_begin, index_end = (
            self._ask(data, "earliest"),
            self._ask(index, "earliest"),
            self._ask(index, "latest"),
        )
        firsts, index_firsts, index_ends = begin(), index_begin(), index_end()
        self._indexes.read(topics, {part: (index_firsts[part], index_ends[part]) for part in index_ends})
        found = {}
        for topic in topics:
            for number in numbers[topic.name]:
                first = log_offset(topic.format, firsts[topic.full_name, number])
                end = log_offset(topic.format, max(ends[topic.full_name, number], firsts[topic.full_name, number]))
                indexed = entries and topic.index is not None
                held = self._indexes.entries(topic, number, first, end) if indexed else None
                found[topic.name, number] = Extent(first, end, held)
        return found

    def since(self, topic: KafkaTopic, partition: int, time: Instant, *, end: int) -> int:
        """The offset of the first record of a topic without an index that has this time or a later one."""
        part = topic.full_name, partition
        found = self._settled(lambda: self._ask([part], -(-time // 1_000))())[part]
        return end if found < 0 else log_offset(topic.format, found)

    def begins(self, parts: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The first offsets of Kafka that are there, by full name and partition."""
        return self._settled(lambda: self._ask(parts, "earliest")())

    def committed_ends(self, parts: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Up to which offsets of Kafka everything is committed or aborted, by full name and partition."""
        return self._settled(lambda: self._ask(parts, "latest", committed=True)())

    def written_ends(self, parts: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Where Kafka's partitions end, with what is not committed yet, by full name and partition."""
        return self._settled(lambda: self._ask(parts, "latest")())

    def _settled(self, attempt: Callable[[], dict[tuple[str, int], int]]) -> dict[tuple[str, int], int]:
        return patiently(self._clients, "ask where partitions begin and end", attempt, settled=True)

    def _ask(
        self, parts: Sequence[tuple[str, int]], which: str | int, *, committed: bool = False
    ) -> Callable[[], dict[tuple[str, int], int]]:
        """Ask for the earliest offsets, the latest, or the first since a time in milliseconds; gives what waits for the
        answer."""
        if not parts:
            return dict
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        if isinstance(which, int):
            spec = OffsetSpec.for_timestamp(which)
        else:
            spec = OffsetSpec.latest() if which == "latest" else OffsetSpec.earliest()
        futures: Mapping[Any, Any] = self._clients.admin.list_offsets(
            {TopicPartition(*part): spec for part in parts},
            isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
            request_timeout=REQUEST_SECONDS,
        )

        def answer() -> dict[tuple[str, int], int]:
            places = zip(futures, results_of(futures), strict=True)
            return {(place.topic, place.partition): int(found.offset) for place, found in places}

        return answer
