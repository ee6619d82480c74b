"""Keeping the embedded log small: retention, compaction, deleted topics, and space given back.

Everything happens in small transactions, each of which leaves a log that is right: writers wait for one of them at
most, a crash loses nothing but time, and several processes may do it at once.
"""

from __future__ import annotations

import logging
import sqlite3
import time

from tidewheel.errors import DiskFullError, LogError, MalformedError
from tidewheel.model.clock_jump import is_ahead
from tidewheel.model.time import Instant, duration
from tidewheel.transport.sqlite.blocks import Damage, StoredBlock, blocks_after, blocks_of, last_block, remove_blocks
from tidewheel.transport.sqlite.clock import correct_append_times, last_append, proved_clock
from tidewheel.transport.sqlite.compaction import compact
from tidewheel.transport.sqlite.database import Database
from tidewheel.transport.sqlite.schema import sound_rows

__all__ = ["Maintenance"]

_INTERVAL = duration("1 min")
_STEP_BLOCKS = 32
_STEP_PAGES = 1_024
_SPARE_PAGES = 2_048

_logger = logging.getLogger(__name__)


class Maintenance:
    """Maintains a log's file: when asked, and by itself at most once a minute while records are appended."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._look_at = 0.0

    def claim(self, connection: sqlite3.Connection, now: Instant) -> bool:
        """In an append's transaction: whether it falls to this append, of all processes', to maintain the log."""
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + _INTERVAL / 1_000_000
        changed = connection.execute(
            "UPDATE property SET value = ?1 WHERE name = 'maintained' AND (value <= ?1 - ?2 OR value > ?1)",
            (now, _INTERVAL),
        )
        return changed.rowcount == 1

    def run_after_append(self, now: Instant) -> None:
        """Do what is worth it. Never raises a `LogError`: the append has succeeded, whatever happens here."""
        try:
            self.run(now, eager=False)
        except LogError as error:
            _logger.warning("maintenance of %s was cut short: %s", self._database.path, error)

    def run(self, now: Instant, *, eager: bool = True) -> None:
        """Do all of it; `eager` compacts even where few records are new, and believes a clock that leapt ahead."""
        with self._database.reading() as connection:
            last, proved = last_append(connection), now if eager else proved_clock(connection, now)
            topics = sound_rows(connection, "topic")
        if last is not None and is_ahead(last, now):
            self._database.making_room(lambda connection: correct_append_times(connection, now))
        # What only removes comes first, since a full disk may not have room for more.
        for topic, name, partitions, age, size, _ in topics:
            if name is None:
                self.purge(topic)
                continue
            if age is not None or size is not None:
                for partition in range(partitions):
                    self._retain(topic, partition, oldest=None if age is None else proved - age, size=size)
        for topic, name, partitions, _, _, compacted in topics:
            for partition in range(partitions) if name is not None and compacted else ():
                if not compact(self._database, topic, partition, eager=eager):
                    _logger.warning(
                        "maintenance of %s left damaged blocks of %r partition %d as they are; see which with: "
                        "tidewheel topics --verify",
                        self._database.path,
                        name,
                        partition,
                    )
        self._give_back()
        self._database.reserve.keep()

    def purge(self, topic: int) -> None:
        """Remove the blocks of a deleted topic, then its last traces."""

        def step(connection: sqlite3.Connection) -> bool:
            blocks = blocks_of(connection, topic, _STEP_BLOCKS)
            remove_blocks(connection, [block for _, block in blocks if block is not None])
            # The others without their payloads, whose numbers cannot be believed.
            connection.executemany(
                "DELETE FROM block WHERE topic = ? AND partition = ? AND first_offset = ?",
                [(topic, place.partition, place.first_offset) for place, block in blocks if block is None],
            )
            if not blocks:
                connection.execute("DELETE FROM partition WHERE topic = ?", (topic,))
                connection.execute("DELETE FROM topic WHERE id = ?", (topic,))
            return bool(blocks)

        while self._database.making_room(step):
            pass

    def _retain(self, topic: int, partition: int, *, oldest: Instant | None, size: int | None) -> None:
        """Remove the oldest blocks: those older than `oldest`, and those that make the partition larger than `size`."""

        def step(connection: sqlite3.Connection) -> None:
            gone = _expired(connection, topic, partition, oldest, size)
            if gone:
                _remove(connection, topic, partition, gone)

        while True:
            with self._database.reading() as connection:
                if not _expired(connection, topic, partition, oldest, size):
                    return
            self._database.making_room(step)

    def _give_back(self) -> None:
        """Shrink the file while more than a quarter of it is free; what is free below that is used again."""
        while True:
            with self._database.reading() as connection:
                free, pages = (
                    connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")
                )
            if free <= max(_SPARE_PAGES, pages // 4):
                return
            try:
                self._database.give_back(_STEP_PAGES)
            except DiskFullError as error:  # what is free in the file is used again all the same
                _logger.warning("the file does not become smaller yet: %s", error)
                return


def _expired(
    connection: sqlite3.Connection, topic: int, partition: int, oldest: Instant | None, size: int | None
) -> list[StoredBlock | Damage]:
    """The first few of the blocks to remove; what is damaged leaves with what is next to it."""
    rows = sound_rows(connection, "partition", "topic = ? AND number = ?", (topic, partition))
    if not rows:
        return []
    _, _, first, _, _, held, _, _ = rows[0]
    try:
        newest = last_block(connection, topic, partition)
    except MalformedError:
        return []  # where it begins is not known
    gone: list[StoredBlock | Damage] = []
    excess = 0 if size is None else held - size
    for block in blocks_after(connection, topic, partition, first, newest.first_offset if newest else 0, data=False):
        appended = block.append_time if isinstance(block, Damage) else block.place.append_time
        old = oldest is not None and appended is not None and appended < oldest
        if len(gone) == _STEP_BLOCKS or (excess <= 0 and not old):
            break
        gone.append(block)
        excess -= 0 if isinstance(block, Damage) else block.place.size
    return gone


def _remove(connection: sqlite3.Connection, topic: int, partition: int, gone: list[StoredBlock | Damage]) -> None:
    sound = [each for each in gone if isinstance(each, StoredBlock)]
    remove_blocks(connection, sound)
    connection.execute(
        "UPDATE partition SET first_offset = ?, count = count - ?, size = size - ? WHERE topic = ? AND number = ?",
        (
            gone[-1].next_offset,
            sum(each.place.records for each in sound),
            sum(each.place.size for each in sound),
            topic,
            partition,
        ),
    )
    for each in gone:
        if isinstance(each, Damage):  # its payload stays without an owner: its number cannot be believed
            connection.execute(
                "DELETE FROM block WHERE topic = ? AND partition = ? AND first_offset >= ? AND first_offset < ?",
                (topic, partition, each.first_offset, each.next_offset),
            )
            connection.execute(
                "UPDATE partition SET (count, size) = (SELECT coalesce(sum(count), 0), coalesce(sum(size), 0) "
                "FROM block WHERE topic = ?1 AND partition = ?2) WHERE topic = ?1 AND number = ?2",
                (topic, partition),
            )
