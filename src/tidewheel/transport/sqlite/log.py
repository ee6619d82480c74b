"""The embedded log: one SQLite file, no server. Any number of processes of one machine read and write it at once."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pyarrow as pa

from tidewheel.errors import DefinitionError, LogError
from tidewheel.model.time import Instant, duration
from tidewheel.model.time import now as wall_clock
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
from tidewheel.transport.log.validation import check_group, check_topic
from tidewheel.transport.sqlite.backup import LogSnapshot, snapshot
from tidewheel.transport.sqlite.blocks import fingerprint
from tidewheel.transport.sqlite.database import Database
from tidewheel.transport.sqlite.maintenance import Maintenance
from tidewheel.transport.sqlite.producer import Appender, SqliteProducer
from tidewheel.transport.sqlite.reader import Reader
from tidewheel.transport.sqlite.schema import all_faults, check_names, sound_rows
from tidewheel.transport.sqlite.topics import find_partition, insert_topic, topic_infos

__all__ = ["SqliteLog"]

_POLL_SECONDS = (0.02, 0.05)


class SqliteLog(Log):
    """A log in a SQLite file, which is made if it is missing (unless `create` is False).

    `sync="full"` keeps what was appended through a power failure; `"normal"` only through the death of processes,
    and is faster. `future_tolerance`: how far an event's time may be ahead of the clock and still be believed by
    watermarks. `clock` gives the append times.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: Literal["full", "normal"] = "full",
        future_tolerance: str | timedelta | int = "1 min",
        clock: Callable[[], Instant] = wall_clock,
        create: bool = True,
    ) -> None:
        if sync not in ("full", "normal"):
            raise DefinitionError(f'sync must be "full" or "normal", got {sync!r}')
        tolerance = duration(future_tolerance, what="future_tolerance")
        self._given = os.fspath(path)
        self.address = str(Path(self._given).absolute())
        self._clock = clock
        if not create and not Path(self.address).exists():
            raise LogError(
                f"there is no log at {self.address} on this machine; check the path (a relative one begins where Spark "
                "started, and tasks on other machines do not see it)"
            )
        self._database = Database(Path(self.address), sync=sync)
        self.identity = self._database.identity
        self._reader = Reader(self._database)
        self._maintenance = Maintenance(self._database)
        self._appender = Appender(self._database, self._maintenance, clock=clock, future_tolerance=tolerance)

    def __repr__(self) -> str:
        return f"open_log({self._given!r})"

    def create_topic(
        self, name: str, *, partitions: int = 1, retention: Retention | None = None, compact: bool = False
    ) -> TopicInfo:
        retention = retention or Retention()
        check_topic(name, partitions=partitions, retention=retention)

        def change(connection: sqlite3.Connection) -> bool:
            changed = connection.execute(
                "UPDATE topic SET retention_age = ?, retention_size = ?, compact = ? WHERE name = ?",
                (retention.age, retention.size, compact, name),
            )
            return changed.rowcount > 0

        with self._database.reading() as connection:
            known = bool(sound_rows(connection, "topic", "name = ?", (name,)))
        if known and self._database.making_room(change):  # a limit that is set makes room, a new topic does not
            return self.topic_info(name)
        with self._database.writing() as connection:
            if not change(connection):
                insert_topic(connection, name, partitions=partitions, retention=retention, compact=compact)
            return topic_infos(connection, name)[0]

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all that is in it, and the positions of all groups in it."""

        def step(connection: sqlite3.Connection) -> int:
            topic_infos(connection, name)
            (number,) = connection.execute("SELECT id FROM topic WHERE name = ?", (name,)).fetchone()
            connection.execute("DELETE FROM cursor WHERE topic = ?", (number,))
            connection.execute("UPDATE topic SET name = NULL WHERE id = ?", (number,))
            return int(number)

        self._maintenance.purge(self._database.making_room(step))

    def topics(self) -> list[TopicInfo]:
        with self._database.reading() as connection:
            return topic_infos(connection)

    def topic_info(self, name: str) -> TopicInfo:
        with self._database.reading() as connection:
            return topic_infos(connection, name)[0]

    def producer(self, name: str, *, fence: bool = True) -> Producer:
        return SqliteProducer(self._database, self._appender, name, fence=fence)

    def append(self, topic: str, batch: pa.RecordBatch) -> Receipt:
        return self._appender.append({topic: batch})

    def position(self, topic: str, partition: int, start_from: StartFrom) -> int:
        return self._reader.position(topic, partition, start_from)

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
        """The blocks that hold records from offset `start` on (see `Log.blocks`)."""
        return self._reader.blocks(topic, partition, start, end=end, limit=limit, on_damage=on_damage)

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
        """Read the records from offset `start` on (and before `end`, at most `limit`), a block at a time.

        Ends at what was the partition's end when it was called.
        """
        return self._reader.read(topic, partition, start, end=end, limit=limit, on_damage=on_damage)

    def counts(self, starts: Positions, ends: Positions | None = None) -> dict[Partition, int]:
        with self._database.reading() as connection:
            lasts = {part: find_partition(connection, *part).next_offset for part in starts}
        return {part: max(0, (ends or {}).get(part, lasts[part]) - start) for part, start in starts.items()}

    def fingerprints(self, positions: Positions) -> dict[Partition, str | None]:
        """For each position a fingerprint of all that was appended before it (see `Log.fingerprints`)."""
        found = {}
        with self._database.reading() as connection:
            for (topic, partition), position in positions.items():
                row = find_partition(connection, topic, partition)
                known = row.first_offset <= position <= row.next_offset
                found[topic, partition] = fingerprint(connection, row.topic, partition, position) if known else None
        return found

    def faults(self) -> list[str]:
        """Damage that SQLite finds in the file, and rows with wrong checksums."""
        try:
            with self._database.reading() as connection:
                return all_faults(connection)
        except LogError as error:
            return [str(error)]

    def commit(self, group: str, positions: Positions) -> None:
        check_group(group)
        with self._database.writing() as connection:
            for (topic, partition), position in positions.items():
                row = find_partition(connection, topic, partition)
                if position < 0:
                    raise DefinitionError(
                        f"a position is 0 or more, got {position} for {topic!r} partition {partition}"
                    )
                connection.execute(
                    "INSERT OR REPLACE INTO cursor (consumer_group, topic, partition, position) VALUES (?, ?, ?, ?)",
                    (group, row.topic, partition, position),
                )

    def committed(self, group: str) -> dict[Partition, int]:
        with self._database.reading() as connection:
            names = {row[0]: row[1] for row in sound_rows(connection, "topic", "name IS NOT NULL")}
            rows = sound_rows(connection, "cursor", "consumer_group = ?", (group,))
            if not rows and self._database.looks_through("cursor"):
                check_names(connection, "cursor")
        found = {(names[topic], partition): position for _, topic, partition, position in rows if topic in names}
        return dict(sorted(found.items()))

    def groups(self) -> list[str]:
        with self._database.reading() as connection:
            return sorted({row[0] for row in sound_rows(connection, "cursor")})

    def forget(self, group: str) -> None:
        self._database.making_room(
            lambda connection: connection.execute("DELETE FROM cursor WHERE consumer_group = ?", (group,))
        )

    def maintain(self, *, now: Instant | None = None) -> None:
        """Apply retention and compaction. Appending does so too, at most once a minute."""
        self._maintenance.run(self._clock() if now is None else now)

    def wait(self, positions: Positions, timeout: float) -> bool:
        """Wait until a partition has records at or beyond its position, or `timeout` seconds have passed."""
        deadline = time.monotonic() + timeout
        pause, longest = _POLL_SECONDS
        while not self._readable(positions):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 1.1, longest)
        return True

    def _readable(self, positions: Positions) -> bool:
        with self._database.reading() as connection:
            return any(
                find_partition(connection, topic, partition).next_offset > position
                for (topic, partition), position in positions.items()
            )

    def standstill(self) -> AbstractContextManager[None]:
        """Keep all processes from writing to the log until the block ends: appends wait. Keep it short."""
        return self._database.standstill()

    def snapshot(self) -> AbstractContextManager[LogSnapshot]:
        """A snapshot of the log, to be copied while others go on writing."""
        return snapshot(self._database)

    def close(self) -> None:
        self._database.close()
