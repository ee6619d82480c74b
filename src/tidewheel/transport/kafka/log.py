"""The distributed log: topics of a Kafka cluster, for writers, jobs and readers on any number of machines."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pyarrow as pa

from tidewheel.errors import LogError
from tidewheel.model.time import Instant, duration, instant
from tidewheel.model.time import now as wall_clock
from tidewheel.transport.kafka.address import parse_address
from tidewheel.transport.kafka.client import REQUEST_SECONDS, Clients, patiently
from tidewheel.transport.kafka.extents import Extent, Extents
from tidewheel.transport.kafka.groups import Groups
from tidewheel.transport.kafka.producer import Appender, KafkaProducer
from tidewheel.transport.kafka.producer_accounts import PARTITIONS, ProducerAccounts
from tidewheel.transport.kafka.reader import read_records
from tidewheel.transport.kafka.topics import KafkaTopic, Topics
from tidewheel.transport.log.log import Log, Producer
from tidewheel.transport.log.log_types import (
    Batch,
    Block,
    OnDamage,
    Partition,
    Positions,
    Receipt,
    Retention,
    StartFrom,
    TopicInfo,
)
from tidewheel.transport.log.validation import check_limit, check_offset, check_start

__all__ = ["KafkaLog"]

_PRODUCERS = "producers"
_POLL_SECONDS = (0.005, 0.05)


class KafkaLog(Log):
    """A log on a Kafka cluster (see `parse_address` for its address).

    Args:
        address: `kafka://host:port,host:port/prefix?option=value`.
        future_tolerance: How far an event's time may be ahead of the clock and still be believed by watermarks.
        clock: Gives the append times.
        create: False opens only a log that is there.
    """

    def __init__(
        self,
        address: str,
        *,
        future_tolerance: str | timedelta | int = "1 min",
        clock: Callable[[], Instant] = wall_clock,
        create: bool = True,
    ) -> None:
        tolerance = duration(future_tolerance, what="future_tolerance")
        self.address = address
        self._clients = Clients(parse_address(address))
        self._topics = Topics(self._clients)
        self._extents = Extents(self._clients, self._topics)
        producers = self._topics.internal(_PRODUCERS, partitions=PARTITIONS, create=create)
        cluster = patiently(
            self._clients,
            "open the log",
            lambda: self._clients.admin.describe_cluster(request_timeout=REQUEST_SECONDS).result(),
        )
        self.identity = f"{cluster.cluster_id}:{producers.id}"
        self._accounts = ProducerAccounts(self._clients, self._extents, producers.full_name)
        self._appender = Appender(
            self._clients, self._topics, self._extents, self._accounts, clock=clock, future_tolerance=tolerance
        )
        self._groups = Groups(self._clients, self._topics)
        self._nothing: dict[tuple[str, int], tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"open_log({self.address!r})"

    def create_topic(
        self, name: str, *, partitions: int = 1, retention: Retention | None = None, compact: bool = False
    ) -> TopicInfo:
        self._topics.create(name, partitions=partitions, retention=retention, compact=compact)
        return self.topic_info(name)

    def delete_topic(self, name: str) -> None:
        self._topics.delete(name)

    def topics(self) -> list[TopicInfo]:
        found = self._topics.find(self._topics.names())
        return self._infos([found[name] for name in sorted(found)])

    def topic_info(self, name: str) -> TopicInfo:
        return self._infos([self._topics.get(name)])[0]

    def producer(self, name: str, *, fence: bool = True) -> Producer:
        return KafkaProducer(self._appender, name, fence=fence)

    def append(self, topic: str, batch: pa.RecordBatch) -> Receipt:
        return self._appender.append(topic, batch)

    def position(self, topic: str, partition: int, start_from: StartFrom) -> int:
        found, extent = self._partition(topic, partition)
        if start_from == "earliest":
            return extent.first
        if start_from == "latest":
            return extent.end
        if isinstance(start_from, datetime):
            since = instant(start_from)
            if extent.entries is None:
                return self._extents.since(found, partition, since, end=extent.end)
            later = (each.first_offset for each in extent.entries if each.append_time >= since)
            return max(next(later, extent.end), extent.first)
        return check_start(start_from, topic=topic, partition=partition, first=extent.first, end=extent.end)

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
        """The blocks that hold records from offset `start` on (see `Log.blocks`); runs of events count as blocks.

        A block reaches up to the next one, or to the partition's end: what lies between, where transactions ended,
        belongs to it, so that who has read all blocks has read all there is.
        """
        check_limit(limit)
        _, extent = self._partition(topic, partition)
        check_offset(start, topic=topic, partition=partition, first=extent.first)
        if extent.entries is None:
            raise LogError(
                f"topic {topic!r} has no index, since another program made it: a job cannot plan batches of it. Read "
                "it with Spark's own connector for Kafka, or let Tidewheel make the topic, and its writers append by it"
            )
        result: list[Block] = []
        count = 0
        last = extent.end if end is None else min(end, extent.end)
        some = extent.entries[bisect_right(extent.entries, start, key=lambda entry: entry.next_offset) :]
        reached = [*(entry.first_offset for entry in some[1:]), extent.end]
        for entry, after in zip(some, reached, strict=False):
            if entry.first_offset >= last:
                break
            summary = entry.header.summary
            count += min(summary.count, entry.next_offset - start)
            if limit is not None and count > limit and result:
                break
            result.append(Block(topic, partition, entry.first_offset, after, entry.size, summary))
        return result

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
        """The records from offset `start` on (see `Log.read`). Ends where the partition ended at the call."""
        check_limit(limit)
        found, extent = self._partition(topic, partition, entries=False)
        check_offset(start, topic=topic, partition=partition, first=extent.first)
        last = extent.end if end is None else min(end, extent.end)
        batches = read_records(self._clients, found, partition, start, last, limit=limit, on_damage=on_damage)
        whole = found.index is None and last == extent.end and limit is None
        return self._noting_the_end(batches, (found.id, partition), start, last) if whole else batches

    def _noting_the_end(self, batches: Iterator[Batch], part: tuple[str, int], start: int, end: int) -> Iterator[Batch]:
        """Note from where on a topic without an index has nothing up to its end but ends of transactions."""
        for batch in batches:
            start = batch.records.column("offset")[-1].as_py() + 1
            yield batch
        self._nothing[part] = start, end

    def counts(self, starts: Positions, ends: Positions | None = None) -> dict[Partition, int]:
        extents = self._extents.of([self._topics.get(name) for name in dict.fromkeys(topic for topic, _ in starts)])
        return {part: extents[part].count(start, (ends or {}).get(part)) for part, start in starts.items()}

    def fingerprints(self, positions: Positions) -> dict[Partition, str | None]:
        """For each position a fingerprint of what was appended last before it, in this very topic."""
        topics = {name: self._topics.get(name) for name in dict.fromkeys(topic for topic, _ in positions)}
        extents = self._extents.of(list(topics.values()))
        found: dict[Partition, str | None] = {}
        for (name, partition), position in positions.items():
            topics[name].check_partition(partition)
            last = extents[name, partition].fingerprint(position)
            found[name, partition] = last and f"{topics[name].id}:{last}"
        return found

    def commit(self, group: str, positions: Positions) -> None:
        self._groups.commit(group, positions)

    def committed(self, group: str) -> dict[Partition, int]:
        return self._groups.committed(group)

    def groups(self) -> list[str]:
        return self._groups.names()

    def forget(self, group: str) -> None:
        self._groups.forget(group)

    def maintain(self, *, now: Instant | None = None) -> None:
        """Do nothing: brokers apply retention and compaction by themselves."""

    def wait(self, positions: Positions, timeout: float) -> bool:
        topics = [self._topics.get(name) for name in dict.fromkeys(topic for topic, _ in positions)]
        for topic in topics:
            for name, partition in positions:
                if name == topic.name:
                    topic.check_partition(partition)
        deadline = time.monotonic() + timeout
        pause, longest = _POLL_SECONDS
        while not self._readable(topics, positions):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 1.2, longest)
        return True

    def close(self) -> None:
        self._appender.close()
        self._clients.close()

    def _readable(self, topics: list[KafkaTopic], positions: Positions) -> bool:
        extents = self._extents.of(topics)
        ids = {topic.name: topic.id for topic in topics}
        for part, position in positions.items():
            start, end = self._nothing.get((ids[part[0]], part[1]), (0, -1))
            nothing = position >= start and extents[part].end == end
            if extents[part].holds_after(position) and not nothing:
                return True
        return False

    def _partition(self, topic: str, partition: int, *, entries: bool = True) -> tuple[KafkaTopic, Extent]:
        found = self._topics.get(topic)
        found.check_partition(partition)
        return found, self._extents.of([found], only=partition, entries=entries)[topic, partition]

    def _infos(self, topics: list[KafkaTopic]) -> list[TopicInfo]:
        extents = self._extents.of(topics)
        infos = []
        for topic, (retention, compact) in zip(topics, self._topics.settings(topics), strict=True):
            parts = [extents[topic.name, number] for number in range(topic.partitions)]
            entries = [entry for part in parts for entry in part.entries or ()]
            others = sum(part.end - part.first for part in parts if part.entries is None)
            infos.append(
                TopicInfo(
                    name=topic.name,
                    id=topic.id,
                    partitions=topic.partitions,
                    retention=retention,
                    compact=compact,
                    count=sum(entry.header.summary.count for entry in entries) + others,
                    size=sum(entry.size for entry in entries),
                    first_offsets=tuple(part.first for part in parts),
                    next_offsets=tuple(part.end for part in parts),
                    last_append=max((entry.append_time for entry in entries), default=None),
                )
            )
        return infos
