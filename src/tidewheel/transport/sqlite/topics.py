"""The topics of the embedded log: their rows in the file, and the errors of a topic that does not exist."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from tidewheel.errors import DamagedLogError, LogError
from tidewheel.transport.log.log_types import Retention, TopicInfo
from tidewheel.transport.log.validation import topic_not_found
from tidewheel.transport.sqlite.schema import sound_rows

__all__ = ["PartitionRow", "find_partition", "insert_topic", "topic_infos", "topic_names"]


class PartitionRow(NamedTuple):
    """A partition in the file; `topic` is the topic's number, which is never used again."""

    topic: int
    first_offset: int
    next_offset: int


def insert_topic(
    connection: sqlite3.Connection, name: str, *, partitions: int, retention: Retention, compact: bool
) -> int:
    """Make a topic and return its number."""
    number = connection.execute(
        "INSERT INTO topic (name, partitions, retention_age, retention_size, compact) VALUES (?, ?, ?, ?, ?)",
        (name, partitions, retention.age, retention.size, compact),
    ).lastrowid
    assert number is not None
    connection.executemany(
        "INSERT INTO partition (topic, number) VALUES (?, ?)", [(number, each) for each in range(partitions)]
    )
    return number


def find_partition(connection: sqlite3.Connection, topic: str, partition: int) -> PartitionRow:
    """Find the row of a partition; an error that helps if there is none."""
    named = sound_rows(connection, "topic", "name = ?", (topic,))
    if named and isinstance(partition, int):
        rows = sound_rows(connection, "partition", "topic = ? AND number = ?", (named[0][0], partition))
        if rows:
            number, _, first_offset, next_offset, *_ = rows[0]
            return PartitionRow(number, first_offset, next_offset)
    (info,) = topic_infos(connection, topic)
    raise LogError(f"topic {topic!r} has partitions 0 to {info.partitions - 1}, got {partition!r}")


def topic_names(connection: sqlite3.Connection) -> list[str]:
    """The names of all topics, in order."""
    return [name for (name,) in connection.execute("SELECT name FROM topic WHERE name IS NOT NULL ORDER BY name")]


def topic_infos(connection: sqlite3.Connection, name: str | None = None) -> list[TopicInfo]:
    """The topic of this name, or all of them by name."""
    if name is None:
        topics = sound_rows(connection, "topic", "name IS NOT NULL ORDER BY name")
    else:
        topics = sound_rows(connection, "topic", "name = ?", (name,))
    if name is not None and not topics:
        raise topic_not_found(name, topic_names(connection))
    return [_info(connection, *topic) for topic in topics]


def _info(
    connection: sqlite3.Connection,
    number: int,
    name: str,
    partitions: int,
    age: int | None,
    size: int | None,
    compact: int,
) -> TopicInfo:
    rows = sound_rows(connection, "partition", "topic = ? ORDER BY number", (number,))
    if [row[1] for row in rows] != list(range(partitions)):
        raise DamagedLogError(
            f"of the {partitions} partitions of topic {name!r} there are {len(rows)}: restore a backup"
        )
    _, _, firsts, nexts, counts, sizes, appends, _ = zip(*rows, strict=True)
    return TopicInfo(
        name=name,
        id=str(number),
        partitions=partitions,
        retention=Retention(age=age, size=size),
        compact=bool(compact),
        count=sum(counts),
        size=sum(sizes),
        first_offsets=firsts,
        next_offsets=nexts,
        last_append=max((append for append in appends if append is not None), default=None),
    )
