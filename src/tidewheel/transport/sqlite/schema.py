"""The format of the embedded log's file: what makes a SQLite file a log, its tables, and how a file of an older version
gets those of this one.

Blocks have checksums of their own (see `block_header`). The rows of the small tables, which say where everything is,
have one each since version 2, kept up by triggers: a program that does not know how to make it cannot write to them.
"""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path
from typing import Any

from tidewheel.errors import DamagedLogError, LogError
from tidewheel.transport.log.block_header import checksum

__all__ = [
    "VERSION",
    "add_functions",
    "all_faults",
    "check_names",
    "check_tables",
    "identity_of",
    "is_log",
    "make_log",
    "scalar",
    "shadow_old_tables",
    "sound_rows",
    "upgrade",
]

VERSION = 2
_APPLICATION_ID = 0x54574C47  # "TWLG"
_TABLES = """
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
_COLUMNS = {
    "property": ("name", "value"),
    "topic": ("id", "name", "partitions", "retention_age", "retention_size", "compact"),
    "partition": (
        "topic",
        "number",
        "first_offset",
        "next_offset",
        "count",
        "size",
        "last_append",
        "compacted",
    ),
    "producer": ("name", "epoch", "sequence", "state"),
    "cursor": ("consumer_group", "topic", "partition", "position"),
}
"""What the checksum of a row is made of."""
_MANY = ("producer", "cursor")
"""Tables whose rows are not all looked through when a log is opened."""
_KEYS = {
    "property": ("name",),
    "topic": ("id",),
    "partition": ("topic", "number"),
    "producer": ("name",),
    "cursor": ("consumer_group", "topic", "partition"),
}
_REMEDY = "restore a backup, or copy what can still be read into a new log"


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
    """Make the tables of an empty file, as an upgrade would leave them, and give the log its identity."""
    for statement in _TABLES.split(";\n"):
        connection.execute(statement)
    upgrade(connection)
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


def upgrade(connection: sqlite3.Connection) -> None:
    """Give a file of version 1 what version 2 has: to be called in a transaction."""
    for table, columns in _COLUMNS.items():
        connection.execute(f"ALTER TABLE {table} ADD COLUMN checksum INTEGER")
        connection.execute(f"UPDATE {table} SET checksum = row_checksum({', '.join(columns)})")
        old, new = (", ".join(f"{row}.{column}" for column in columns) for row in ("old", "new"))
        same = " AND ".join(f"{key} = new.{key}" for key in _KEYS[table])
        # A row that was damaged must not look right because something else in it was changed.
        sound = f"CASE WHEN old.checksum = row_checksum({old}) THEN row_checksum({new}) ELSE old.checksum END"
        for event, value in (("INSERT", f"row_checksum({new})"), (f"UPDATE OF {', '.join(columns)}", sound)):
            connection.execute(
                f"CREATE TRIGGER {table}_after_{event[:6].lower()} AFTER {event} ON {table} "
                f"BEGIN UPDATE {table} SET checksum = {value} WHERE {same}; END"
            )
    connection.execute(f"PRAGMA user_version = {VERSION}")


def shadow_old_tables(connection: sqlite3.Connection) -> None:
    """Let a file of version 1 that cannot be written to be read as if its rows had checksums that are not known."""
    for table in _COLUMNS:
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *, NULL AS checksum FROM main.{table}")


def add_functions(connection: sqlite3.Connection) -> None:
    """Register the functions that the triggers call."""
    connection.create_function("row_checksum", -1, _row_checksum, deterministic=True)


def check_tables(connection: sqlite3.Connection) -> None:
    """Look through the small tables for rows that cannot be found, and through those that lead to blocks for rows that
    are damaged: `DamagedLogError` if there are."""
    for table in _COLUMNS:
        if sqlite3.sqlite_version_info >= (3, 33):  # older ones look through the whole file, which may be large
            found = connection.execute(f"PRAGMA main.integrity_check({table})").fetchall()
            if found != [("ok",)]:
                raise DamagedLogError(f"the table {table} is damaged ({str(found[0][0]).strip()}): {_REMEDY}")
        if table not in _MANY and scalar(connection, "PRAGMA user_version") >= VERSION:
            sound_rows(connection, table)


def all_faults(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the file as SQLite sees it, and with the rows of the small tables."""
    found = [str(text).strip() for (text,) in connection.execute("PRAGMA main.integrity_check(20)") if text != "ok"]
    for table in _COLUMNS if scalar(connection, "PRAGMA user_version") >= VERSION else ():
        try:
            sound_rows(connection, table)
        except DamagedLogError as error:
            found.append(str(error))
    return found


def sound_rows(
    connection: sqlite3.Connection, table: str, where: str = "true", values: tuple[Any, ...] = ()
) -> list[Any]:
    """The rows of a small table that meet a condition, with all columns in their order; `DamagedLogError` if one of
    them is not as it was written."""
    columns = ", ".join(_COLUMNS[table])
    rows = connection.execute(f"SELECT {columns}, checksum FROM {table} WHERE {where}", values).fetchall()
    for row in rows:
        if row[-1] is not None and row[-1] != _row_checksum(*row[:-1]):
            raise DamagedLogError(
                f"a row of the table {table} is damaged ({', '.join(map(_shown, row[:-1]))}): {_REMEDY}"
            )
    return [row[:-1] for row in rows]


def check_names(connection: sqlite3.Connection, table: str) -> None:
    """Raise `DamagedLogError` if there is a row under a name that is not its own any more: it would not be found. Looks
    through the whole table."""
    sound_rows(connection, table, f"checksum <> row_checksum({', '.join(_COLUMNS[table])})")


def scalar(connection: sqlite3.Connection, query: str) -> Any:
    """The first column of the first row of a query's result."""
    return connection.execute(query).fetchone()[0]


def _row_checksum(*values: Any) -> int:
    return checksum(b"".join(map(_bytes, values)))


def _bytes(value: Any) -> bytes:
    """A value as nothing else is written."""
    if value is None:
        return b"n"
    if isinstance(value, int):
        return b"i%d;" % value
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    return b"%s%d:%s" % (b"b" if isinstance(value, bytes) else b"s", len(data), data)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
