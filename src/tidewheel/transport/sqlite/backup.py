"""Copy a log's file as it was at one moment, while others go on writing.

A snapshot is a transaction that reads. SQLite's backup runs inside it: what is committed meanwhile is not in the copy,
and does not make it begin anew. The journal grows as long as that takes, because the snapshot is still being read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from tidewheel.errors import BackupError, MalformedError
from tidewheel.transport.sqlite.blocks import Damage, StoredBlock, blocks_after
from tidewheel.transport.sqlite.database import Database
from tidewheel.transport.sqlite.schema import all_faults

__all__ = ["LogSnapshot", "check_copy", "is_in_use", "snapshot"]

_STEP_PAGES = 4_096


class LogSnapshot:
    """A log as it was at one moment."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        # The first statement decides which moment it is.
        self.topics, self.records = connection.execute(
            "SELECT count(DISTINCT topic.id), coalesce(sum(partition.count), 0) "
            "FROM topic JOIN partition ON partition.topic = topic.id WHERE topic.name IS NOT NULL"
        ).fetchone()
        self._page, pages = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count"))
        self.size: int = self._page * pages

    def copy(self, target: Path, *, progress: Callable[[int, int], None]) -> None:
        """Write the log to a new file; `progress` is called with the bytes that are done and their total."""

        def step(_: int, remaining: int, total: int) -> None:
            progress((total - remaining) * self._page, total * self._page)

        try:
            with closing(sqlite3.connect(target, isolation_level=None)) as copy:
                # If this is interrupted, nobody will want to go on with the file.
                copy.execute("PRAGMA journal_mode = OFF")
                copy.execute("PRAGMA synchronous = OFF")
                self._connection.backup(copy, pages=_STEP_PAGES, progress=step, sleep=0)
        except sqlite3.Error as error:
            raise BackupError(f"the log could not be copied to {target}: {error}") from error


@contextmanager
def snapshot(database: Database) -> Iterator[LogSnapshot]:
    """A snapshot of the log as it is now, valid until the block ends."""
    with database.reading() as connection:
        yield LogSnapshot(connection)


def check_copy(path: Path, identity: str, *, skip_damaged: bool = False) -> list[str]:
    """Refuse a copy of a log that is damaged, or of another log. With `skip_damaged` blocks may be damaged, and are
    returned. Leaves no files beside it."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True)) as connection:
            faults = all_faults(connection)
            (name,) = connection.execute("SELECT value FROM property WHERE name = 'identity'").fetchone()
            damaged = [] if faults else list(_damaged_blocks(connection))
    except (sqlite3.Error, TypeError) as error:
        faults = [str(error)]
    if faults:
        raise BackupError(f"the log is damaged, and its backup would be, too ({faults[0]}); keep the existing backups")
    if damaged and not skip_damaged:
        raise BackupError(
            f"the log is damaged, and its backup would be, too ({damaged[0]}; {len(damaged):,} blocks in all): keep "
            "the existing backups. To back it up anyway: --skip-damaged (skip_damaged=True)"
        )
    if name != identity:
        raise BackupError(f"{path} is a copy of the log {name}, not of {identity}: it was replaced meanwhile")
    return damaged


def _damaged_blocks(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(
        "SELECT topic.name, topic.id, number, first_offset, next_offset FROM partition "
        "JOIN topic ON topic.id = partition.topic WHERE topic.name IS NOT NULL ORDER BY topic.name, number"
    ).fetchall()
    for name, topic, partition, first, end in rows:
        for block in blocks_after(connection, topic, partition, first, end):
            reason = block.reason if isinstance(block, Damage) else _fault(block)
            if reason is not None:
                yield f"{name} partition {partition}, offsets {block.first_offset} to {block.next_offset - 1}: {reason}"


def _fault(block: StoredBlock) -> str | None:
    try:
        block.check()
    except MalformedError as error:
        return str(error)
    return None


def is_in_use(path: Path) -> bool:
    """Whether any process has the log open, this one included. A file that SQLite cannot read is not in use."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=0, isolation_level=None)) as own:
        try:
            own.execute("PRAGMA locking_mode = EXCLUSIVE")
            own.execute("BEGIN EXCLUSIVE")  # every open connection stands in its way, also one that is idle
            own.execute("ROLLBACK")
        except sqlite3.Error as error:
            return "locked" in str(error) or "busy" in str(error)
    return False
