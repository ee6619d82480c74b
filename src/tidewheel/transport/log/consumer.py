"""A consumer: reads topics from where its group left off, and follows them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from tidewheel.errors import DamagedBlockError, DataLossError, DefinitionError, TopicNotFoundError
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Batch, OnDamage, Partition, StartFrom, TopicInfo

__all__ = ["Consumer"]

_FOLLOW_SECONDS = 1.0
_FOLLOW_RECORDS = 10_000
_DISCOVERY_SECONDS = 0.1


class Consumer:
    """Reads topics of a log in the order of each partition; works with every implementation of `Log`.

    A topic that is not there yet is read from its beginning once it appears. A consumer belongs to one thread.

    Args:
        log: The log.
        topics: The topic, or several.
        group: It begins where this group last committed, and commits for it.
        start_from: Where it begins otherwise; looked up when the consumer is made.
        partitions: Only these numbers, for several consumers that share a topic: they are not shared out by themselves.
        skip_lost: Pass over records that left by retention before they were read, and count them; a topic that was
            deleted and made anew while it was read is then read from its beginning. Otherwise both are a
            `DataLossError`.
        on_damage: Called for each damaged block; what follows is read. Without it the damage is raised.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> from tidewheel.transport.log.log_types import records
    >>> log = open_log(tempfile.mkdtemp() + "/city.tw")
    >>> receipt = log.append("news", records([b"one", b"two"]))
    >>> consumer = Consumer(log, "news", group="readers", start_from="earliest")
    >>> [batch.records.column("value").to_pylist() for batch in consumer.poll(timeout=0)]
    [[b'one', b'two']]
    >>> consumer.commit()
    >>> Consumer(log, "news", group="readers").positions
    {('news', 0): 2}
    """

    def __init__(
        self,
        log: Log,
        topics: str | Sequence[str],
        *,
        group: str | None = None,
        start_from: StartFrom = "latest",
        partitions: Sequence[int] | None = None,
        skip_lost: bool = False,
        on_damage: OnDamage | None = None,
    ) -> None:
        self.log = log
        self.group = group
        self._start_from = start_from
        self._partitions = partitions
        self._skip_lost = skip_lost
        self._on_damage = on_damage
        self.lost = 0
        """How many records were passed over because they had left."""
        self._positions: dict[Partition, int] = {}
        self._ids: dict[str, str] = {}
        self._awaited = [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
        if not self._awaited:
            raise DefinitionError("a consumer needs at least one topic")
        self._discover(start_from)

    @property
    def positions(self) -> dict[Partition, int]:
        """The offset of the next record to be handed out, for each partition that is there."""
        return dict(self._positions)

    def poll(self, timeout: float, *, limit: int = 10_000) -> list[Batch]:
        """Return what has come, at most `limit` records of each partition; waits up to `timeout` seconds if nothing
        has."""
        if limit < 1:
            raise DefinitionError(f"limit must be at least 1, got {limit}")
        if not self._wait(timeout):
            return []
        before = self.positions
        try:
            batches = list(self._available(limit))
        except BaseException:
            # A damaged block was passed over behind batches that nobody gets now.
            self._positions = before
            raise
        for batch in batches:
            self._advance(batch)
        return batches

    def commit(self) -> None:
        """Note for the group that all that was handed out is done with."""
        if self.group is None:
            raise DefinitionError("a consumer without a group cannot commit; give it group=")
        self._check_topics()
        self.log.commit(self.group, self._positions)

    def __iter__(self) -> Iterator[Batch]:
        """Every batch, now and in the future: never ends by itself."""
        while True:
            if self._wait(_FOLLOW_SECONDS):
                for batch in self._available(_FOLLOW_RECORDS):
                    self._advance(batch)
                    yield batch

    def _available(self, limit: int) -> Iterator[Batch]:
        for part, position in self.positions.items():
            on_damage = None if self._on_damage is None else self._pass_over
            yield from self.log.read(*part, self._first_available(part, position), limit=limit, on_damage=on_damage)

    def _pass_over(self, damaged: DamagedBlockError) -> None:
        assert self._on_damage is not None
        self._on_damage(damaged)
        self._reach((damaged.topic, damaged.partition), damaged.next_offset)

    def _first_available(self, part: Partition, position: int) -> int:
        """The first offset, from the position on, at which there is something to read."""
        first = self.log.position(*part, "earliest") if self._skip_lost else position
        if first > position:
            self.lost += first - position
            self._positions[part] = first
        return max(first, position)

    def _advance(self, batch: Batch) -> None:
        self._reach((batch.topic, batch.partition), batch.records.column("offset")[-1].as_py() + 1)

    def _reach(self, part: Partition, position: int) -> None:
        # A damaged block behind a batch may have been passed over before that batch is handed out.
        self._positions[part] = max(self._positions.get(part, 0), position)

    def _wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            self._check_topics()
            # Whatever a new topic holds came after the consumer was made.
            self._discover("earliest" if self._start_from == "latest" else self._start_from)
            left = max(deadline - time.monotonic(), 0)
            step = _DISCOVERY_SECONDS if self._awaited else _FOLLOW_SECONDS
            try:
                found = self.log.wait(self._positions, min(left, step))
                self._check_topics()
            except TopicNotFoundError:
                if not self._skip_lost:
                    raise
                found = False
            if found:
                return True
            if time.monotonic() >= deadline:
                return False

    def _check_topics(self) -> None:
        """Check that the topics are the same: positions mean nothing in another one of the same name."""
        for topic, known in list(self._ids.items()):
            try:
                info = self.log.topic_info(topic)
                if info.id == known:
                    self._check_ends(info)
                    continue
            except TopicNotFoundError:
                if not self._skip_lost:
                    raise
            if not self._skip_lost:
                raise DataLossError(
                    f"{topic!r} was deleted and made anew while it was read; what had not been read is lost. Make a "
                    "new consumer that starts at 'earliest'"
                )
            del self._ids[topic]
            self._positions = {part: at for part, at in self._positions.items() if part[0] != topic}
            awaited, self._awaited = self._awaited, [topic]
            self._discover("earliest")
            self._awaited += awaited

    def _check_ends(self, info: TopicInfo) -> None:
        """Check that no position is beyond its partition's end."""
        for number, end in enumerate(info.next_offsets):
            position = self._positions.get((info.name, number), 0)
            if position > end:
                raise DataLossError(
                    f"{info.name!r} partition {number} ends at offset {end}, and had been read up to {position}: the "
                    "log is older than that (restored from a backup, or copied). Make a new consumer that starts where "
                    "it ends now, at 'latest', or at 'earliest'"
                )

    def _discover(self, start_from: StartFrom) -> None:
        """Take up the awaited topics that are there by now."""
        missing = []
        for topic in self._awaited:
            try:
                info = self.log.topic_info(topic)
            except TopicNotFoundError:
                missing.append(topic)
                continue
            self._ids[topic] = info.id
            committed = {} if self.group is None else self.log.committed(self.group)
            for number in range(info.partitions) if self._partitions is None else self._partitions:
                at: StartFrom = committed.get((topic, number), start_from)
                if isinstance(at, int):
                    at = self._first_available((topic, number), at)
                self._positions[topic, number] = self.log.position(topic, number, at)
        self._awaited = missing
