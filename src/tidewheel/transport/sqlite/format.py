"""The identification of a log's SQLite file: its application id, version and identity."""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path
from typing import Any

from tidewheel.errors import DamagedLogError, LogError
from tidewheel.transport.sqlite.schema import VERSION, make_tables, sound_rows

__all__ = ["identity_of", "is_log", "make_log", "scalar"]

_APPLICATION_ID = 0x54574C47  # "TWLG"


def is_log(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is a log; False if there is nothing in it yet; anything else is refused."""
    application = scalar(connection, "PRAGMA application_id")
    version = scalar(connection, "PRAGMA user_version")
    tables = scalar(connection, "SELECT count(*) FROM sqlite_master")
    if application == 0 and version == 0 and tables == 0:
        return False
    if application != _APPLICATION_ID:
        raise LogError(
            f"{path} is not a Tidewheel log (it is a SQLite file with {tables} tables and application id "
            f"{application:#x}); choose another file"
        )
    if version > VERSION:
        raise LogError(
            f"{path} has format {version}, this Tidewheel knows formats up to {VERSION}: it was made by a "
            f"newer Tidewheel; upgrade with: pip install --upgrade tidewheel"
        )
    if version < 1:
        raise DamagedLogError(f"its format is {version}, which none is: restore a backup")
    return True


def make_log(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty file, and give the log its identity."""
    make_tables(connection)
    connection.executemany(
        "INSERT INTO property (name, value) VALUES (?, ?)", [("identity", str(uuid.uuid4())), ("maintained", 0)]
    )
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def identity_of(connection: sqlite3.Connection) -> str:
    """The identity that the log got when it was made."""
    rows = sound_rows(connection, "property", "name = 'identity'")
    if not rows:
        raise DamagedLogError("it has no identity: restore a backup")
    return str(rows[0][1])


def scalar(connection: sqlite3.Connection, query: str) -> Any:
    """The first column of the first row of a query's result."""
    return connection.execute(query).fetchone()[0]
