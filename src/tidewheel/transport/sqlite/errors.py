"""Errors of SQLite's, translated into the log's own: what happened, and what can be done about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidewheel.errors import DamagedBlockError, DamagedLogError, DiskFullError, LogError
from tidewheel.transport.sqlite import transactions
from tidewheel.transport.sqlite.reserve import full_disk_remedy, room_beside

__all__ = ["NOT_SQLITE", "sqlite_errors"]

NOT_SQLITE = (
    "{} is not a Tidewheel log, and not SQLite at all; choose another file, or restore a backup if it once was one"
)
_DAMAGED = ("malformed", "no such column", "no such table", "Could not decode")  # what SQLite says of a damaged file


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Raise what SQLite raises about the log at `path` as errors of the log."""
    try:
        yield
    except DamagedBlockError:
        raise
    except DamagedLogError as error:
        raise DamagedLogError(f"{path}: {error}") from error
    except sqlite3.Error as error:
        reason = str(error)
        if any(each in reason for each in _DAMAGED):
            raise DamagedLogError(
                f"{path} is damaged ({reason}): see what of it with tidewheel topics --verify, and restore a backup"
            ) from error
        if "file is not a database" in reason:
            raise LogError(NOT_SQLITE.format(path)) from error
        if "disk is full" in reason or (("I/O error" in reason or "unable to open" in reason) and _is_full(path)):
            reason = reason if "disk is full" in reason else f"the disk is full ({reason})"
            raise DiskFullError(
                f"{path}: {reason}. Nothing of this was written, and all that was appended before is safe. "
                f"There are {room_beside(path)}: {full_disk_remedy(path)}"
            ) from error
        if "locked" in reason:
            reason = f"another process has held the log for more than {transactions.BUSY_SECONDS} s ({reason})"
        raise LogError(f"{path}: {reason}") from error


def _is_full(path: Path) -> bool:
    with suppress(OSError):
        return room_beside(path).full
    return False
