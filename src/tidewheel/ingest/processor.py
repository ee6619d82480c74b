"""Processors turn messages into records of the log. They know formats, not transports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa
from google.protobuf.message import Message as ProtobufMessage

from tidewheel.ingest.message import Message
from tidewheel.model.time import Duration, Instant
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import RECORDS

__all__ = ["Dead", "LogProcessor", "Processed", "Processor", "Replayable", "joined"]


@dataclass(frozen=True, slots=True)
class Dead:
    """A message that could not be processed. `kind` is a short name to count by, `reason` is for a person."""

    message: Message
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Processed:
    """The outcome of some messages: each is a record of a topic, filtered by a named rule, or a dead letter."""

    topics: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    dead: Sequence[Dead] = ()

    @property
    def count(self) -> int:
        """The number of messages that are accounted for."""
        written = sum(int(batch.num_rows) for batch in self.topics.values())
        return written + sum(self.filtered.values()) + len(self.dead)


def joined(parts: Sequence[Processed]) -> Processed:
    """Combine the outcomes of several processors."""
    batches: dict[str, list[pa.RecordBatch]] = {}
    filtered: Counter[str] = Counter()
    for part in parts:
        filtered.update(part.filtered)
        for topic, batch in part.topics.items():
            batches.setdefault(topic, []).append(batch)
    return Processed(
        {topic: _concatenated(some) for topic, some in batches.items()},
        filtered,
        [dead for part in parts for dead in part.dead],
    )


def _concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    columns = [pa.concat_arrays([batch.column(place) for batch in batches]) for place in range(len(RECORDS))]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


@runtime_checkable
class Processor(Protocol):
    """Turns messages into records. Never raises for what a message holds; keeps no state between calls."""

    name: str
    """Names the dead-letter topic (`dead.<name>`) and the account (`ingested.<name>`)."""
    subscriptions: Sequence[str]
    """What to subscribe to, as MQTT topic filters."""
    types: Sequence[type[ProtobufMessage]]
    """The message types it writes."""

    def process(self, messages: Sequence[Message]) -> Processed:
        """Turn each message into a record, a filtered count or a dead letter, exactly once. Order is kept within a
        topic."""


@runtime_checkable
class LogProcessor(Protocol):
    """A processor that needs the log: for the message types that it keeps, or to keep more there."""

    def attach(self, log: Log) -> None:
        """Called by each pipeline that uses the processor, before messages come. All of them write to one log."""


@runtime_checkable
class Replayable(Protocol):
    """A processor whose messages can be moved in time and multiplied, for replays."""

    def event_time(self, message: Message) -> Instant | None:
        """The message's event time, if it is known."""

    def moved(self, message: Message, *, by: Duration, copy: int) -> Message:
        """Return the message with its event time and arrival moved by this much, and (copy > 0) with its keys shifted
        so that it belongs to the copy-th replica. A message that cannot be read is returned as it is."""
