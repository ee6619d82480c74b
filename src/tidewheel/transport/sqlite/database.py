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
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from tidewheel.errors import DiskFullError, LogError
from tidewheel.transport.log.private_files import make_private_file
from tidewheel.transport.sqlite import transactions
from tidewheel.transport.sqlite.errors import NOT_SQLITE, sqlite_errors
from tidewheel.transport.sqlite.read_only import ReadOnlyMode, read_only_mode, why_read_only
from tidewheel.transport.sqlite.reserve import Reserve, room_beside
from tidewheel.transport.sqlite.schema import (
    VERSION,
    add_functions,
    check_tables,
    identity_of,
    is_log,
    make_log,
    scalar,
    shadow_old_tables,
    upgrade,
)
from tidewheel.transport.sqlite.transactions import busy_timeout, closed_on_error, transaction

__all__ = ["Database", "restore_plan"]

_T = TypeVar("_T")

_LEAST_BYTES = 512  # a SQLite file is at least a page
_LOOK_SECONDS = 60
_CHECKPOINT_BYTES = 16 << 20
_JOURNAL_SHARE = 15 / 16
"""How much of a journal of that length is kept to be written over; a longer one holds something for certain."""
_CHECKPOINT_WAIT_MS = 1_000
_TO_OPEN_BYTES = 1 << 20
"""What SQLite needs to open a log: it makes the files of the journal."""

_logger = logging.getLogger(__name__)


class Database:
    """The file of a log, made if it is missing. May be used by several threads, and after a fork."""

    def __init__(self, path: Path, *, sync: str) -> None:
        self.path = path
        self._sync = sync
        self._wal = Path(f"{path.resolve()}-wal")  # beside the file, also where a link leads to it
        self.reserve = Reserve(path)
        self.read_only = why_read_only(path)
        """What keeps this process from writing; None if nothing does."""
        self._read_mode: ReadOnlyMode | None = None
        self._replaced = f"{path} has been replaced by another log; open it again with open_log"
        self._removed = f"{path} has been removed while it was open; open it again with open_log"
        self._checkpoint_at = _CHECKPOINT_BYTES
        self._look_at: dict[str, float] = {}
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
        with self._connection() as connection, transaction(connection, writing=False):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is durable when the block ends, and undone if the block raises."""
        self._check_writable()
        with self._writer, self._connection() as connection:  # threads queue here; processes have to poll
            with transaction(connection, writing=True):
                yield connection
            self._checkpoint(connection)

    def looks_through(self, table: str) -> bool:
        """Whether it is time to look through a table that may be long; at most once a minute."""
        if time.monotonic() < self._look_at.get(table, 0.0):
            return False
        self._look_at[table] = time.monotonic() + _LOOK_SECONDS
        return True

    @contextmanager
    def standstill(self) -> Iterator[None]:
        """Keep others from writing until the block ends; the log stays as it is. Keep it short: appends wait."""
        if self.read_only is not None:  # it stands still, as far as this process can tell
            yield
            return
        with self._writer, self._connection() as connection, transaction(connection, writing=True):
            yield

    def making_room(self, step: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do a step that makes room, in a transaction as of `writing`. On a full disk it may use the reserve."""
        try:
            with self.writing() as connection:
                return step(connection)
        except DiskFullError:
            if not self.reserve:
                raise
        with self.writing() as connection:
            self.reserve.give_up()  # now that no other writer can take it
            result = step(connection)
        self._empty_journal()
        return result

    def give_back(self, pages: int) -> None:
        """Return so many free pages at the end of the file to the file system. On a full disk it may use the reserve:
        what is at the end of the file is written elsewhere in it first."""
        self._check_writable()
        try:
            self._vacuum(pages)
        except DiskFullError:
            if not self.reserve:
                raise
            self.reserve.give_up()
            self._vacuum(pages)
            self._empty_journal()

    def _vacuum(self, pages: int) -> None:
        with self._writer, self._connection() as connection:
            # As a script, because `execute` would take the first step of it only, which is one page.
            connection.executescript(f"PRAGMA incremental_vacuum({pages})")
            self._checkpoint(connection)

    def _empty_journal(self) -> None:
        """Empty the journal, so that the next transactions write over it and need no further room."""
        with self._writer, self._connection() as connection:
            self._checkpoint(connection, always=True)

    def _check_writable(self) -> None:
        if self.read_only is not None:
            raise LogError(
                f"{self.path} can be read but not written: {self.read_only}. To write, take a copy elsewhere (with its "
                "journal, the file that ends in -wal, if there is one), or have it made writable and open it again"
            )

    def close(self) -> None:
        """Close the connections that are not in use; the others are closed when they are given back."""
        with self._state:
            self._closed = True
            _close_all(self._idle)

    def _establish(self) -> str:
        """Make the log or recognize it; returns its identity."""
        if not self.path.parent.is_dir():
            raise LogError(f"{self.path}: the folder {self.path.parent} does not exist; make it first")
        if self.path.is_dir():
            raise LogError(f"{self.path} is a folder; a log is a file, such as {self.path / 'city.tw'}")
        if restore_plan(self.path).exists():
            raise LogError(
                f"{self.path}: a restore of this log was cut short, or is at work; finish it first: "
                f"tidewheel restore --log {self.path}"
            )
        # Only SQLite may open the file: closing it any other way would take away the locks of all connections that this
        # process has to it, and another process would throw away the journal that they still write to.
        if self.path.is_file() and 0 < self.path.stat().st_size < _LEAST_BYTES:
            raise LogError(NOT_SQLITE.format(self.path))  # SQLite would take it for an empty one
        self._shadowed = False
        if self.read_only is None:
            try:
                make_private_file(self.path)  # SQLite gives its journal the permissions of the file
            except OSError as error:
                raise LogError(f"{self.path} cannot be made: {error.strerror}; choose another place") from None
        with sqlite_errors(self.path), closing(self._connected(self._connect)) as connection:
            with transaction(connection, writing=False):
                made = is_log(connection, self.path)
                old = made and scalar(connection, "PRAGMA user_version") < VERSION
                if made:
                    check_tables(connection)
            if old:
                self._upgrade(connection)
            if not made:
                if self.read_only is not None:
                    raise LogError(f"{self.path} is empty: there is nothing to read, and {self.read_only}")
                # Both must come before the first table, and the journal cannot be changed in a transaction.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("PRAGMA journal_mode = WAL")
                with transaction(connection, writing=True):
                    if not is_log(connection, self.path):  # another process may have been quicker
                        make_log(connection)
            self._file = self._place()
            return identity_of(connection)

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """Give the file of an older version the tables of this one. Programs of that version that have it open can read
        on what they know, and are refused when they write."""
        try:
            with transaction(connection, writing=True):
                if scalar(connection, "PRAGMA user_version") < VERSION:  # another process may have been quicker
                    upgrade(connection)
        except sqlite3.OperationalError as error:
            if "readonly" not in str(error):
                raise
            self._shadowed = True
            shadow_old_tables(connection)

    def _connect(self) -> sqlite3.Connection:
        mode = None if self.read_only is None else read_only_mode(self.path)
        self._read_mode = mode
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?{'mode=rw' if mode is None else mode.uri}",
            uri=True,
            timeout=transactions.BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        with closed_on_error(connection):
            if mode is not None and mode.own_index:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute(f"PRAGMA synchronous = {self._sync}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {int(_CHECKPOINT_BYTES * _JOURNAL_SHARE)}")
            connection.execute("PRAGMA secure_delete = OFF")
            connection.execute("PRAGMA cell_size_check = ON")  # a damaged page is noticed before it is used
            add_functions(connection)
            if self._shadowed:
                shadow_old_tables(connection)
        return connection

    def _connected(self, connect: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
        """A connection that has read something. On a full disk part of the reserve goes for the journal's files."""
        try:
            connection = connect()
            with closed_on_error(connection):
                scalar(connection, "SELECT count(*) FROM sqlite_master")
            return connection
        except sqlite3.Error:
            if self.read_only is not None or not self.reserve or not room_beside(self.path).full:
                raise
            self.reserve.give_up(_TO_OPEN_BYTES)
            return connect()

    def _connect_again(self) -> sqlite3.Connection:
        connection = self._connected(self._connect)
        with closed_on_error(connection):
            if identity_of(connection) != self.identity:
                raise LogError(self._replaced)
        return connection

    def _check_place(self) -> None:
        """Refuse a database file that was deleted or replaced: what is written to it is lost, without an error of
        SQLite's."""
        try:
            if self._place() != self._file:
                raise LogError(self._replaced)
        except FileNotFoundError:
            raise LogError(self._removed) from None

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
        connection = None
        try:
            with sqlite_errors(self.path):
                self._check_place()
                with self._state:
                    self._drop_outdated()
                    connection = self._idle.pop() if self._idle else None
                connection = connection or self._connect_again()
                yield connection
                self._check_unchanged()
        finally:
            with self._state:
                self._in_use -= 1
                if connection is not None:
                    if self._closed or connection.in_transaction:
                        connection.close()
                    else:
                        self._idle.append(connection)
                self._state.notify_all()

    def _mode_now(self) -> ReadOnlyMode:
        try:
            return read_only_mode(self.path)
        except FileNotFoundError:
            raise LogError(self._removed) from None

    def _drop_outdated(self) -> None:
        """Close connections that would not notice what others have written since."""
        if self._read_mode is not None and self._read_mode != self._mode_now():
            _close_all(self._idle)

    def _check_unchanged(self) -> None:
        if self._read_mode is not None and self._read_mode.state is not None and self._read_mode != self._mode_now():
            raise LogError(f"{self.path} was written to by somebody else while it was read; read it again")

    def _checkpoint(self, connection: sqlite3.Connection, *, always: bool = False) -> None:
        """Move what was written into the file when the journal has become long. The next commit begins it anew, and
        cuts it to what is kept."""
        try:
            size = self._wal.stat().st_size
        except FileNotFoundError:
            return
        if size < self._checkpoint_at and not always:
            return
        try:
            with busy_timeout(connection, _CHECKPOINT_WAIT_MS):
                blocked = scalar(connection, "PRAGMA wal_checkpoint(RESTART)")
        except sqlite3.Error as error:  # the transaction itself is durable, whatever happens here
            blocked = True
            _logger.warning("%s: the journal of %s bytes could not be moved into the file: %s", self.path, size, error)
        # Writers wait as long as this was tried: while a backup reads for minutes, not every few megabytes.
        self._checkpoint_at = size + max(_CHECKPOINT_BYTES, size // 4) if blocked else _CHECKPOINT_BYTES
        if not always:
            self.reserve.keep()

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


def restore_plan(path: Path) -> Path:
    """The file that is there while a log and its checkpoints are being replaced by those of a backup."""
    return Path(f"{path.resolve()}.restore") / "plan.json"


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


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
