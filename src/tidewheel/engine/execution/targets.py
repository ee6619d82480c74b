"""The targets of outputs: topics, and the message types of their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from google.protobuf.message import Message

from tidewheel.engine.datasource.options import METADATA
from tidewheel.engine.datasource.output_encoding import OutputEncoding
from tidewheel.engine.execution.computation import C, Computation
from tidewheel.engine.execution.input import LogInput
from tidewheel.engine.execution.log_reader import topics_read
from tidewheel.engine.operators.operator import METRICS, RESULTS
from tidewheel.engine.spark.worker import registry_for
from tidewheel.errors import DefinitionError, TopicNotFoundError
from tidewheel.transport.events.codec import ENVELOPE_COLUMNS
from tidewheel.transport.events.registry import TypeRegistry, type_name, types
from tidewheel.transport.events.schema_inference import GENERATED, define_message, generated_type_name
from tidewheel.transport.log.log import Log, Topic
from tidewheel.transport.topics.types import carried_type, definitions, publish_types

__all__ = ["Target", "check", "prepared_targets", "written_topics"]


@dataclass(frozen=True)
class Target:
    """The topic of an output, and the message type of its events; by default a type is made from the columns."""

    topic: Topic
    type: str | type[Message] | None = None
    key: tuple[str, ...] = ()
    """The columns that make the key of a record; those of the last stage if none are named."""


def check(results: Mapping[C, Mapping[str, Target]], log: Log, *, read: Log | None = None) -> list[str]:
    """Return the topics of results that are to run together; refuse those that cannot. They write to the log, and read
    it too, unless another one is named."""
    names: set[str] = set()
    topics: set[str] = set()
    for result, targets in results.items():
        if not isinstance(result.input, LogInput) or result.input.log.identity != (read or log).identity:
            raise DefinitionError(f"{result!r} does not read this log; results that run together read one log")
        if not result.name:
            raise DefinitionError(f'{result!r} needs a name to run beside others: result.named("delays")')
        if result.name in names:
            raise DefinitionError(f"two results are named {result.name!r}; give each its own name")
        # State is kept under `name/depth/…`, and Spark carries an error as the text `name: reason`.
        if "/" in result.name or ":" in result.name:
            raise DefinitionError(f"a result's name has no / and no :, got {result.name!r}")
        names.add(result.name)
        topics |= {topic for topic, _, _ in topics_read([result])}
        for target in targets.values():
            if target.topic.log.identity != log.identity:
                raise DefinitionError(f"{result.name}: results go to the log that is read; give a topic of that log")
    return sorted(topics)


def written_topics(results: Mapping[C, Mapping[str, Target]]) -> set[str]:
    """The topics that would hold everything twice if two runs wrote it; metrics say which run they are of."""
    return {
        target.topic.name for targets in results.values() for output, target in targets.items() if output != METRICS
    }


def prepared_targets(
    results: Mapping[C, Mapping[str, Target]], log: Log, topics: Sequence[str]
) -> dict[tuple[str, str], OutputEncoding]:
    """The targets of the outputs of results; creates the topics and publishes their types to the log."""
    targets = encodings(results, log)
    for topic in (*topics, *(target.topic for target in targets.values())):
        log.ensure_topic(topic)
    read = {message for _, message, _ in topics_read(results)}
    known = {*read, *(target.type for target in targets.values())}
    # Those that this program does not know came from the log.
    publish_types(log, types, sorted(name for name in known if name in types and not name.startswith(GENERATED)))
    return targets


def encodings(results: Mapping[C, Mapping[str, Target]], log: Log) -> dict[tuple[str, str], OutputEncoding]:
    found: dict[tuple[str, str], OutputEncoding] = {}
    made = TypeRegistry()
    defined = definitions(log)
    for result, targets in results.items():
        schemas = result.schemas()
        keys = result.stages[-1].keys
        for output, target in targets.items():
            fields = [field for field in schemas[output] if field.name not in (*ENVELOPE_COLUMNS, *METADATA.names)]
            if target.type is None:
                known = generated_type_name(target.topic.name)
                if known not in defined:
                    # Results that are there keep their type, by the name that earlier versions gave it.
                    there = carried_type(log, target.topic.name)
                    known = there if there and there.startswith(GENERATED) else known
                earlier = {known: defined[known]} if known in defined and _holds(log, target.topic.name) else {}
                kind = define_message(made, target.topic.name, pa.schema(fields), full=known, earlier=earlier)
                columns = tuple(field.name for field in fields)
            else:
                if not isinstance(target.type, str):
                    types.register(target.type)
                kind = type_name(target.type)
                message = (types if kind in types else registry_for(log.address, kind)).schema(kind)
                columns = _fitting(kind, message.names, [field.name for field in fields], result)
            key = target.key or tuple(name for name in keys if name in schemas[output].names)
            lost = [name for name in key if name not in schemas[output].names]
            if lost:
                raise DefinitionError(
                    f"{result.name}: the key names a column {lost[0]!r} that the results lack; they have "
                    f"{', '.join(schemas[output].names)}"
                )
            found[str(result.name), output] = OutputEncoding(target.topic.name, kind, columns, key, output == RESULTS)
    publish_types(log, made, made.names())
    return found


def _holds(log: Log, topic: str) -> bool:
    try:
        return log.topic_info(topic).count > 0
    except TopicNotFoundError:
        return False


def _fitting(kind: str, fields: Sequence[str], there: Sequence[str], result: Computation) -> tuple[str, ...]:
    """The columns that fill the message: all of its fields must be there, and it must have room for what was asked."""
    missing = [name for name in fields if name not in there]
    if missing:
        raise DefinitionError(f"{kind} has a field {missing[0]!r} that the results lack; they have {', '.join(there)}")
    stage = result.stages[-1]
    asked = [*stage.keys, *stage.operation.computed]
    homeless = [name for name in asked if name in there and name not in fields]
    if homeless:
        raise DefinitionError(f"{kind} has no field for the column {homeless[0]!r}; its fields: {', '.join(fields)}")
    if result.retracting and "retraction" not in fields:
        instead = stage.operation.unretracted or "a stage that retracts nothing"
        raise DefinitionError(
            f"{kind} has no field 'retraction', and {result.name} may retract results: those would look like "
            f"results. Add `bool retraction` to it, or {instead}; if it reads a topic that has no retractions, say "
            "stream(..., retracting=False)"
        )
    return tuple(fields)
