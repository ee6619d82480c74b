"""A topic of patterns: what jobs that read it look for, changed while they run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.time import now
from tidewheel.patterns.define.builder import Pattern
from tidewheel.patterns.serde.pattern_json import pattern_from_json, pattern_to_json
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import PatternDefinition
from tidewheel.transport.log.log import Topic
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.message_topic import MessageTopic

__all__ = ["PatternEntry", "PatternRegistry", "name_fault"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


def name_fault(name: Any) -> str | None:
    """Say why a pattern's name is invalid, if it is."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return f"a pattern's name is 1 to 200 letters, digits, dots, hyphens and underscores, got {str(name)[:60]!r}"


@dataclass(frozen=True)
class PatternEntry:
    """A pattern of a registry."""

    name: str
    version: int
    pattern: Pattern
    measures: Mapping[str, pl.Expr] = field(default_factory=dict)


class PatternRegistry:
    """The patterns in a topic, for the jobs that `match_from` it. Every change has a version, which rises.

    >>> import tempfile
    >>> import tidewheel as tw
    >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
    >>> registry = PatternRegistry(log.topic("control.patterns"))
    >>> registry.put("halt", tw.pattern("fast", pl.col("speed") > 10).next("standing", pl.col("speed") < 1))
    1
    >>> jam = tw.pattern("slow", pl.col("speed") < 2).times(3)
    >>> registry.put("jam", jam, measures={"route": tw.measures.last("route")})
    2
    >>> [(entry.name, entry.version) for entry in registry.list()]
    [('halt', 1), ('jam', 2)]
    >>> registry.remove("halt")
    3
    """

    def __init__(self, topic: Topic) -> None:
        if not isinstance(topic, Topic):
            raise DefinitionError(f'expected a topic like log.topic("control.patterns"), got {topic!r}')
        self.topic = topic

    def put(self, name: str, pattern: Pattern, *, measures: Mapping[str, pl.Expr] | None = None) -> int:
        """Add a pattern, or replace the one of this name; returns its version. An identical pattern keeps its
        version."""
        definition = pattern_to_json(pattern, measures)
        return self._write(name, definition)

    def remove(self, name: str) -> int:
        """Take a pattern away; returns the version of that change."""
        return self._write(name, None)

    def list(self) -> tuple[PatternEntry, ...]:
        """List the patterns in force, by name."""
        found = []
        for name, message in sorted(self._latest().items()):
            if not message.removed:
                pattern, measures = pattern_from_json(message.definition)
                found.append(PatternEntry(name, message.version, pattern, measures))
        return tuple(found)

    def _write(self, name: str, definition: str | None) -> int:
        fault = name_fault(name)
        if fault is not None:
            raise DefinitionError(fault)
        log, topic = self.topic.log, self.topic.name
        while True:
            # The number of an append under this name is taken once: who comes second looks again.
            producer = log.producer(f"patterns:{topic}", fence=False)
            latest = self._latest()
            there = latest.get(name)
            in_force = there is not None and not there.removed
            if definition is None and not in_force:
                known = ", ".join(sorted(other for other, one in latest.items() if not one.removed)) or "none"
                raise DefinitionError(f"there is no pattern {name!r} in {topic}; there are: {known}")
            if there is not None and in_force and there.definition == definition:
                return int(there.version)
            version = max([producer.sequence, *(message.version for message in latest.values())]) + 1
            version = max(version, 1)
            message = PatternDefinition(
                name=name, version=version, definition=definition or "", removed=definition is None
            )
            at = now()
            value = codec.encode(codec.pack(message, event_time=at, ingestion_time=at))
            batch = records([value], keys=[name.encode()], event_times=[at])
            if not producer.append({topic: batch}, sequence=version).duplicate:
                return version

    def _latest(self) -> dict[str, PatternDefinition]:
        """The last sound definition of each name."""
        found: dict[str, PatternDefinition] = {}
        for message in MessageTopic(self.topic.log, self.topic.name, PatternDefinition).news():
            known = found.get(message.name)
            if (known is None or message.version > known.version) and _sound(message):
                found[message.name] = message
        return found

    def __repr__(self) -> str:
        return f"PatternRegistry({self.topic!r})"


def _sound(message: PatternDefinition) -> bool:
    if name_fault(message.name) is not None or not 0 < message.version < 2**63 - 1:
        return False
    if message.removed:
        return not message.definition
    try:
        pattern_from_json(message.definition)
    except DefinitionError:
        return False
    return True
