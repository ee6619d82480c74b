"""The SQLite file under the embedded log: its tables, its connections, its transactions. Records are not known here.

Connections are pooled: each is used by one thread at a time. None stays open while the process forks, because a
child that inherits one can damage the file when either process closes it.

SQLite's own checkpoints run beside the writers of other connections, and up to SQLite 3.51.2 that can lose a
transaction (https://sqlite.org/wal.html#walresetbug). They are switched off here; `Database` checkpoints in a mode
that locks writers out.

The journal is written over then, not cut: a commit that need not make a file longer is durable in about half the
time.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tidewheel.errors import LogError

__all__ = ["Database"]

_LEAST_BYTES = 512  # a SQLite file is at least a page
_NOT_SQLITE = "{} is not a Tidewheel log, and not SQLite at all; choose another file"
_APPLICATION_ID = 0x54574C47  # "TWLG"
_VERSION = 1
_BUSY_SECONDS = 60
_LOCK_POLL_MS = 5
_CHECKPOINT_BYTES = 16 << 20
_KEPT = 15 / 16
"""How much of a journal of that length is kept to be written over; a longer one holds something for certain."""
_CHECKPOINT_WAIT_MS = 1_000
_SCHEMA = """
CREATE TABLE property (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE topic (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,  -- null: deleted, its blocks wait for maintenance
    partitions INTEGER NOT NULL,
    retention_age INTEGER,
    retention_size INTEGER,
    compact INTEGER NOT NULL
);
CREATE TABLE partition (
    topic INTEGER NOT NULL,
    number INTEGER NOT NULL,
    first_offset INTEGER NOT NULL DEFAULT 0,  -- what is below has left by retention
    next_offset INTEGER NOT NULL DEFAULT 0,
    count INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0,
    last_append INTEGER,
    compacted INTEGER NOT NULL DEFAULT 0,  -- the records below have been compared with all that are older
    PRIMARY KEY (topic, number)
) WITHOUT ROWID;
CREATE TABLE block (
    topic INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    count INTEGER NOT NULL,
    size INTEGER NOT NULL,
    append_time INTEGER NOT NULL,
    header BLOB NOT NULL,
    payload INTEGER NOT NULL,
    PRIMARY KEY (topic, partition, first_offset)
) WITHOUT ROWID;
CREATE INDEX block_by_time ON block (topic, partition, append_time, first_offset);
CREATE TABLE payload (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE producer (
    name TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    state BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE cursor (
    consumer_group TEXT NOT NULL,
    topic INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (consumer_group, topic, partition)
) WITHOUT ROWID;
"""

_logger = logging.getLogger(__name__)


class Database:
    """The file of a log, made if it is missing. May be used by several threads, and after a fork."""

    def __init__(self, path: Path, *, sync: str) -> None:
        self.path = path
        self._sync = sync
        self._wal = Path(f"{path}-wal")
        self._replaced = f"{path} has been replaced by another log; open it again with open_log"
        self._checkpoint_at = _CHECKPOINT_BYTES
        self._closed = False
        self._idle: list[sqlite3.Connection] = []
        self._in_use = 0
        self._start()
        with _opening:
            self.identity = self._establish()
            _databases.add(self)
        weakref.finalize(self, _close_all, self._idle)

    def _start(self) -> None:
        # Made anew in a forked child, where the threads that might hold them do not exist.
        self._state = threading.Condition()
        self._writer = threading.Lock()
        self._parked = False

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the log. Keep it short: it holds up the checkpoint."""
        with self._connection() as connection, _transaction(connection, writing=False):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is durable when the block ends, and undone if the block raises."""
        with self._writer, self._connection() as connection:  # threads queue here; processes have to poll
            with _transaction(connection, writing=True):
                yield connection
            self._checkpoint(connection)

    def give_back(self, pages: int) -> None:
        """Return so many free pages at the end of the file to the file system."""
        with self._writer, self._connection() as connection:
            # As a script, because `execute` would take the first step of it only, which is one page.
            connection.executescript(f"PRAGMA incremental_vacuum({pages})")
            self._checkpoint(connection)

    def close(self) -> None:
        """Close the connections that are not in use; the others are closed when they are given back."""
        with self._state:
            self._closed = True
            _close_all(self._idle)

    def _establish(self) -> str:
        """Make the log or recognise it, and tell its identity."""
        if not self.path.parent.is_dir():
            raise LogError(f"{self.path}: the folder {self.path.parent} does not exist; make it first")
        if self.path.is_dir():
            raise LogError(f"{self.path} is a folder; a log is a file, such as {self.path / 'city.tw'}")
        # Only SQLite may open the file: closing it any other way would take away the locks of all connections that this
        # process has to it, and another process would throw away the journal that they still write to.
        if self.path.is_file() and 0 < self.path.stat().st_size < _LEAST_BYTES:
            raise LogError(_NOT_SQLITE.format(self.path))  # SQLite would take it for an empty one
        with self._errors(), closing(self._connect(mode="rwc")) as connection:
            with _transaction(connection, writing=False):
                made = self._recognise(connection)
            if not made:
                # Both must come before the first table, and the journal cannot be changed in a transaction.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("PRAGMA journal_mode = WAL")
                with _transaction(connection, writing=True):
                    if not self._recognise(connection):  # another process may have been quicker
                        self._make(connection)
            self._file = self._place()
            return _identity(connection)

    def _recognise(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is a log; False if there is nothing in it yet; anything else is refused."""
        application = _value(connection, "PRAGMA application_id")
        version = _value(connection, "PRAGMA user_version")
        tables = _value(connection, "SELECT count(*) FROM sqlite_master")
        if application == 0 and version == 0 and tables == 0:
            return False
        if application != _APPLICATION_ID:
            raise LogError(
                f"{self.path} is not a Tidewheel log (it is a SQLite file with {tables} tables and application id "
                f"{application:#x}); choose another file"
            )
        if version > _VERSION:
            raise LogError(
                f"{self.path} has format {version}, this Tidewheel knows formats up to {_VERSION}: it was made by a "
                f"newer Tidewheel; upgrade with: pip install --upgrade tidewheel"
            )
        return True

    def _make(self, connection: sqlite3.Connection) -> None:
        for statement in _SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.executemany(
            "INSERT INTO property VALUES (?, ?)", [("identity", str(uuid.uuid4())), ("maintained", 0)]
        )
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        with _closed_on_error(connection):
            connection.execute(f"PRAGMA synchronous = {self._sync}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {int(_CHECKPOINT_BYTES * _KEPT)}")
            connection.execute("PRAGMA secure_delete = OFF")
        return connection

    def _connect_again(self) -> sqlite3.Connection:
        connection = self._connect()
        with _closed_on_error(connection):
            if _identity(connection) != self.identity:
                raise LogError(self._replaced)
        return connection

    def _check_place(self) -> None:
        """Whoever writes to a file that has no name any more loses it all, without an error of SQLite's."""
        try:
            if self._place() != self._file:
                raise LogError(self._replaced)
        except FileNotFoundError:
            raise LogError(f"{self.path} has been removed while it was open; open it again with open_log") from None

    def _place(self) -> tuple[int, int]:
        status = self.path.stat()
        return status.st_dev, status.st_ino

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with self._state:
            while self._parked:
                self._state.wait()
            if self._closed:
                raise LogError(f"{self.path}: this log object is closed; open the log again with open_log")
            self._in_use += 1
            connection = self._idle.pop() if self._idle else None
        try:
            with self._errors():
                self._check_place()
                connection = connection or self._connect_again()
                yield connection
        finally:
            with self._state:
                self._in_use -= 1
                if connection is not None:
                    if self._closed or connection.in_transaction:
                        connection.close()
                    else:
                        self._idle.append(connection)
                self._state.notify_all()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            reason = str(error)
            if "file is not a database" in reason:
                raise LogError(_NOT_SQLITE.format(self.path)) from error
            if "locked" in reason:
                reason = f"another process has held the log for more than {_BUSY_SECONDS} s ({reason})"
            raise LogError(f"{self.path}: {reason}") from error

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Move what was written into the file when the journal has become long. The next commit begins it anew, and
        cuts it to what is kept."""
        try:
            size = self._wal.stat().st_size
        except FileNotFoundError:
            return
        if size < self._checkpoint_at:
            return
        try:
            with _busy_timeout(connection, _CHECKPOINT_WAIT_MS):
                blocked = _value(connection, "PRAGMA wal_checkpoint(RESTART)")
        except sqlite3.Error as error:  # the transaction itself is durable, whatever happens here
            blocked = True
            _logger.warning("%s: the journal of %s bytes could not be moved into the file: %s", self.path, size, error)
        self._checkpoint_at = size + _CHECKPOINT_BYTES if blocked else _CHECKPOINT_BYTES

    def _park(self) -> None:
        """Close all connections, and give out none before `_unpark`."""
        with self._state:
            self._parked = True
            while self._in_use:
                self._state.wait()
            _close_all(self._idle)

    def _unpark(self) -> None:
        with self._state:
            self._parked = False
            self._state.notify_all()


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


def _value(connection: sqlite3.Connection, query: str) -> Any:
    return connection.execute(query).fetchone()[0]


def _identity(connection: sqlite3.Connection) -> str:
    return str(_value(connection, "SELECT value FROM property WHERE name = 'identity'"))


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


@contextmanager
def _busy_timeout(connection: sqlite3.Connection, milliseconds: int) -> Iterator[None]:
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1_000}")


def _lock(connection: sqlite3.Connection) -> None:
    """Begin a transaction that writes, as soon as the other writers let it.

    SQLite would ask more and more seldom, down to ten times a second, and so hardly ever get between the transactions
    of a busy writer. Asking every few milliseconds does.
    """
    deadline = time.monotonic() + _BUSY_SECONDS
    with _busy_timeout(connection, _LOCK_POLL_MS):
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise


@contextmanager
def _transaction(connection: sqlite3.Connection, *, writing: bool) -> Iterator[None]:
    if writing:
        _lock(connection)
    else:
        connection.execute("BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):  # it is closed then, which undoes the transaction too
                connection.execute("ROLLBACK")
        raise


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_opening = threading.Lock()  # no log is being opened while the process forks
_parked: list[Database] = []


def _before_fork() -> None:
    _opening.acquire()
    _parked.extend(_databases)
    for database in _parked:
        database._park()


def _after_fork_in_parent() -> None:
    for database in _parked:
        database._unpark()
    _parked.clear()
    _opening.release()


def _after_fork_in_child() -> None:
    global _opening
    for database in _parked:
        database._start()
    _parked.clear()
    _opening = threading.Lock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
