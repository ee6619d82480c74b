"""Check what is asked of a log, with the same errors from every implementation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import pyarrow as pa

from tidewheel.errors import DataLossError, DefinitionError, LogError, TopicNotFoundError
from tidewheel.topic_names import check_topic_name
from tidewheel.transport.log.log_types import RECORDS, Retention, StartFrom

__all__ = [
    "check_batches",
    "check_group",
    "check_limit",
    "check_offset",
    "check_producer_name",
    "check_start",
    "check_topic",
    "chosen_sequence",
    "topic_not_found",
]

_LISTED = 20


def check_batches(batches: Mapping[str, pa.RecordBatch]) -> None:
    """Refuse what cannot be appended: names that no topic can have, and what is not records."""
    for topic, batch in batches.items():
        check_topic_name(topic)
        if not isinstance(batch, pa.RecordBatch):
            raise DefinitionError(
                f"records for {topic!r} must be a pyarrow RecordBatch, got {type(batch).__name__}; "
                f"tidewheel.records(values, ...) makes one"
            )
        if batch.schema.names != RECORDS.names or batch.schema.types != RECORDS.types:
            raise DefinitionError(
                f"records for {topic!r} must have the columns {_columns(RECORDS)}, got {_columns(batch.schema)}; "
                f"tidewheel.records(values, ...) makes them"
            )
        if batch.column("value").null_count:
            raise DefinitionError(
                f"records for {topic!r} have {batch.column('value').null_count} null values; a record without content "
                f"has the value b''"
            )


def check_topic(name: str, *, partitions: int, retention: Retention) -> None:
    """Refuse a topic that cannot be made."""
    check_topic_name(name)
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise DefinitionError(f"topic {name!r} needs at least 1 partition, got {partitions!r}")
    for what, limit in (("age", retention.age), ("size", retention.size)):
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise DefinitionError(f"retention {what} of topic {name!r} must be 0 or more, or None, got {limit!r}")


def check_offset(offset: int, *, topic: str, partition: int, first: int) -> None:
    """Refuse an offset that was never written, or whose records were removed by retention; `first` is the first that is
    there."""
    if offset < 0:
        raise DefinitionError(f"an offset is 0 or more, got {offset} for {topic!r} partition {partition}")
    if offset < first:
        raise DataLossError(
            f"{topic!r} partition {partition}: records {offset} to {first - 1} have left the log by "
            f"retention before they were read. Go on from {first} (start at 'earliest'; a group must be "
            f"forgotten first: tidewheel topics --forget) if they may be missed, and give the topic a longer retention."
        )


def check_start(start_from: StartFrom, *, topic: str, partition: int, first: int, end: int) -> int:
    """The offset that is given as a place to begin at, if reading can begin there."""
    if isinstance(start_from, bool) or not isinstance(start_from, int):
        raise DefinitionError(f"start_from must be 'earliest', 'latest', a datetime or an offset, got {start_from!r}")
    check_offset(start_from, topic=topic, partition=partition, first=first)
    if start_from > end:
        raise LogError(f"{topic!r} partition {partition} ends at offset {end}, got {start_from}; 'latest' is its end")
    return start_from


def check_limit(limit: int | None) -> None:
    """Refuse a limit below 0."""
    if limit is not None and limit < 0:
        raise DefinitionError(f"limit must be 0 or more, or None, got {limit}")


def check_group(group: str) -> None:
    """Refuse a name that a consumer group cannot have."""
    if not isinstance(group, str) or not group:
        raise DefinitionError(f"a consumer group's name is text that is not empty, got {group!r}")


def check_producer_name(name: str) -> None:
    """Refuse a name that a producer cannot have."""
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"a producer's name is text that is not empty, got {name!r}")


def chosen_sequence(sequence: int | None, *, producer: str, last: int | None) -> int:
    """The number of an append: the one that is given, or the next. `last` is the producer's last number; None if others
    may append under its name."""
    if sequence is None:
        if last is None:
            raise DefinitionError(
                f"producer {producer!r} was opened with fence=False, so others may append under its name "
                f"and the next number is not known: give sequence="
            )
        return last + 1
    if sequence < 0:
        raise DefinitionError(f"a sequence number is 0 or more, got {sequence}")
    return sequence


def topic_not_found(name: str, topics: Iterable[str]) -> TopicNotFoundError:
    """The error of a topic that does not exist, with those that do."""
    known = list(topics)
    if not known:
        return TopicNotFoundError(f"no topic {name!r}: the log has no topics yet; appending to one makes it")
    close = get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return TopicNotFoundError(f"no topic {name!r}{hint} There are: {', '.join(known[:_LISTED])}{more}")


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
