"""Transactions of the embedded log's SQLite file, and how long they wait for those of other processes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["BUSY_SECONDS", "busy_timeout", "closed_on_error", "transaction"]

BUSY_SECONDS = 60
"""How long a transaction waits for those of other processes."""
_LOCK_POLL_MS = 5


@contextmanager
def closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """Close a connection that fails before it is handed out."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


@contextmanager
def busy_timeout(connection: sqlite3.Connection, milliseconds: int) -> Iterator[None]:
    """Wait for other processes no longer than this."""
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1_000}")


def _lock(connection: sqlite3.Connection) -> None:
    """Begin a transaction that writes, as soon as the other writers let it.

    SQLite would ask more and more seldom, down to ten times a second, and so hardly ever get between the transactions
    of a busy writer. Asking every few milliseconds does.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    with busy_timeout(connection, _LOCK_POLL_MS):
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise


@contextmanager
def transaction(connection: sqlite3.Connection, *, writing: bool) -> Iterator[None]:
    """Run the block in a transaction: committed when it ends, rolled back if it raises."""
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
