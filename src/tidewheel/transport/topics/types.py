"""Type definitions kept in the log, so that a reader can decode what its own program has never heard of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from tidewheel.errors import DefinitionError, TopicNotFoundError
from tidewheel.model.time import now
from tidewheel.topic_names import TYPES_TOPIC
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import Punctuation, TypeDefinition
from tidewheel.transport.events.registry import TypeRegistry, type_name
from tidewheel.transport.log.damage import pass_over
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.message_topic import MessageTopic

__all__ = [
    "carried_type",
    "definition_records",
    "definitions",
    "load_types",
    "make_types_topic",
    "publish_types",
    "type_version",
]

_MARKER = type_name(Punctuation)


def publish_types(log: Log, registry: TypeRegistry, names: Iterable[str]) -> list[str]:
    """Write the definitions of these types to the log, where they are missing or differ; returns what was written."""
    kept = definitions(log)
    wanted = {name: registry.definition(name) for name in names}
    changed = sorted(name for name, definition in wanted.items() if kept.get(name) != definition)
    if changed:
        make_types_topic(log)
        log.append(TYPES_TOPIC, definition_records({name: wanted[name] for name in changed}))
    return changed


def make_types_topic(log: Log) -> None:
    """Make the topic if it is missing."""
    _topic(log).make()


def definition_records(given: Mapping[str, bytes]) -> pa.RecordBatch:
    """Definitions by the types' names, ready to be appended."""
    at = now()
    values = [
        codec.encode(codec.pack(TypeDefinition(name=name, file_descriptor_set=definition), event_time=at))
        for name, definition in given.items()
    ]
    return records(values, keys=[name.encode() for name in given])


def load_types(log: Log, registry: TypeRegistry, *, broken: dict[str, str] | None = None) -> list[str]:
    """Register the types that the log defines and the registry lacks, or has another definition of; classes of the
    program stay. Returns their names. A definition that cannot be loaded is an error only for those who use that type;
    its name and the reason also go to `broken`."""
    added = []
    for name, definition in definitions(log).items():
        if name not in registry or registry.registered_definition(name) not in (None, definition):
            try:
                registry.register_definition(name, definition)
            except DefinitionError as error:
                registry.register_broken(name, error)
                if broken is not None:
                    broken[name] = str(error)
            else:
                added.append(name)
    return sorted(added)


def type_version(log: Log) -> tuple[str, str, int]:
    """Something that changes when the log gets other definitions."""
    try:
        info = log.topic_info(TYPES_TOPIC)
    except TopicNotFoundError:
        return log.identity, "", 0
    return log.identity, info.id, sum(info.next_offsets)


def definitions(log: Log) -> dict[str, bytes]:
    """The latest definition of each type that the log keeps."""
    return {message.name: message.file_descriptor_set for message in _topic(log).news()}


def carried_type(log: Log, topic: str) -> str | None:
    """The message type of the newest event of a topic; None if it holds none, or is not there."""
    try:
        info = log.topic_info(topic)
    except TopicNotFoundError:
        return None
    for partition, (first, end) in enumerate(zip(info.first_offsets, info.next_offsets, strict=True)):
        count = 100
        while end > first:  # further and further back: the newest may be markers, many of them
            start = max(first, end - count)
            names = [
                name
                for batch in log.read(topic, partition, start, end=end, on_damage=pass_over)
                for name in codec.decode_envelopes(batch.records.column("value")).columns["type"].to_pylist()
                if name and name != _MARKER
            ]
            if names:
                return str(names[-1])
            end, count = start, 2 * count
    return None


def _topic(log: Log) -> MessageTopic[TypeDefinition]:
    return MessageTopic(log, TYPES_TOPIC, TypeDefinition)
