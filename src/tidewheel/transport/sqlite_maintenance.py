"""Keeping the embedded log small: retention, compaction, deleted topics, and space given back.

Everything happens in small transactions, each of which leaves a log that is right: writers wait for one of them at
most, a crash loses nothing but time, and several processes may do it at once.
"""

from __future__ import annotations

import logging
import sqlite3
import time

from tidewheel.errors import LogError
from tidewheel.model.time import Instant, duration
from tidewheel.transport.sqlite_blocks import remove_blocks
from tidewheel.transport.sqlite_compaction import compact
from tidewheel.transport.sqlite_database import Database

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
        """Do all of it; `eager` compacts even where few records are new."""
        with self._database.reading() as connection:
            topics = connection.execute(
                "SELECT id, name, partitions, retention_age, retention_size, compact FROM topic"
            ).fetchall()
        for topic, name, partitions, age, size, compacted in topics:
            if name is None:
                self.purge(topic)
                continue
            for partition in range(partitions):
                if age is not None or size is not None:
                    self._retain(topic, partition, oldest=None if age is None else now - age, size=size)
                if compacted:
                    compact(self._database, topic, partition, eager=eager)
        self._give_back()

    def purge(self, topic: int) -> None:
        """Remove the blocks of a deleted topic, then its last traces."""
        while True:
            with self._database.writing() as connection:
                blocks = connection.execute(
                    "SELECT partition, first_offset, payload FROM block WHERE topic = ? LIMIT ?",
                    (topic, _STEP_BLOCKS),
                ).fetchall()
                remove_blocks(connection, topic, blocks)
                if not blocks:
                    connection.execute("DELETE FROM partition WHERE topic = ?", (topic,))
                    connection.execute("DELETE FROM topic WHERE id = ?", (topic,))
                    return

    def _retain(self, topic: int, partition: int, *, oldest: Instant | None, size: int | None) -> None:
        """Remove the oldest blocks: those older than `oldest`, and those that make the partition larger than `size`."""
        while True:
            with self._database.reading() as connection:
                if not _expired(connection, topic, partition, oldest, size):
                    return
            with self._database.writing() as connection:
                gone = _expired(connection, topic, partition, oldest, size)
                if not gone:
                    return
                remove_blocks(connection, topic, [(partition, block[0], block[4]) for block in gone])
                connection.execute(
                    "UPDATE partition SET first_offset = ?, count = count - ?, size = size - ? "
                    "WHERE topic = ? AND number = ?",
                    (gone[-1][1], sum(block[2] for block in gone), sum(block[3] for block in gone), topic, partition),
                )

    def _give_back(self) -> None:
        """Shrink the file while more than a quarter of it is free; what is free below that is used again."""
        while True:
            with self._database.reading() as connection:
                free, pages = (
                    connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")
                )
            if free <= max(_SPARE_PAGES, pages // 4):
                return
            self._database.give_back(_STEP_PAGES)


def _expired(
    connection: sqlite3.Connection, topic: int, partition: int, oldest: Instant | None, size: int | None
) -> list[tuple[int, int, int, int, int]]:
    """The first few of the blocks to remove: first offset, next offset, count, size and payload number of each."""
    row = connection.execute("SELECT size FROM partition WHERE topic = ? AND number = ?", (topic, partition)).fetchone()
    if row is None:
        return []
    excess = 0 if size is None else row[0] - size
    gone = []
    for *block, append_time in connection.execute(
        "SELECT first_offset, next_offset, count, size, payload, append_time FROM block "
        "WHERE topic = ?1 AND partition = ?2 AND first_offset < "
        "(SELECT max(first_offset) FROM block WHERE topic = ?1 AND partition = ?2) ORDER BY first_offset LIMIT ?3",
        (topic, partition, _STEP_BLOCKS),
    ):
        if excess <= 0 and not (oldest is not None and append_time < oldest):
            break
        gone.append(tuple(block))
        excess -= block[3]
    return gone
