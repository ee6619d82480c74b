"""The message type of a topic's rows: made of their columns, kept by the log, and grown when they get new ones."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidewheel.errors import DefinitionError, LogError, TopicNotFoundError
from tidewheel.topic_names import TYPES_TOPIC
from tidewheel.transport.events import event_pb2
from tidewheel.transport.events.registry import TypeRegistry, types
from tidewheel.transport.events.schema_inference import GENERATED, define_message, generated_type_name
from tidewheel.transport.log.log import Log
from tidewheel.transport.topics.types import (
    carried_type,
    definition_records,
    definitions,
    load_types,
    make_types_topic,
)

__all__ = ["RowType", "grow_row_type", "row_type"]

_ATTEMPTS = 1_000


@dataclass(frozen=True)
class RowType:
    """The type of a topic's rows as it was when it was asked for. What others add to it later leaves it valid."""

    name: str
    registry: TypeRegistry
    topic_id: str
    """The topic that it belongs to: one of the same name that is made later begins anew."""

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self.registry.schema(self.name)


def row_type(log: Log, topic: str) -> RowType | None:
    """The type of a topic's rows; None if it has none yet."""
    try:
        info = log.topic_info(topic)
    except TopicNotFoundError:
        return None
    name = _noted(log.producer(_producer(topic), fence=False).state, info.id) or carried_type(log, topic)
    return None if name is None else RowType(name, _registry(log, name), info.id)


def grow_row_type(log: Log, topic: str, schema: pa.Schema) -> RowType:
    """The type that holds rows of these columns, and all that the topic holds already: made if there is none, with a
    new field for a column that is new. A column that its field cannot hold is refused (see `define_message`). Writers
    that do this at the same time come to one type.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> log = open_log(tempfile.mkdtemp() + "/shop.tw")
    >>> grow_row_type(log, "input.order", pa.schema({"user": pa.string()})).name
    'tidewheel.results.Input_Order'
    >>> grow_row_type(log, "input.order", pa.schema({"amount": pa.float64()})).schema.names
    ['user', 'amount']
    """
    log.ensure_topic(topic)
    make_types_topic(log)
    for _ in range(_ATTEMPTS):
        # First of all: if another writer publishes after this, the number that follows is not ours any more.
        turn = log.producer(_producer(topic), fence=False)
        info = log.topic_info(topic)
        noted = _noted(turn.state, info.id)
        there = noted or carried_type(log, topic)
        if there is not None and not there.startswith(GENERATED):
            return _filled(RowType(there, _registry(log, there), info.id), topic, schema)
        name = there or generated_type_name(topic)
        defined = definitions(log)
        # A topic that was deleted and made anew may have other columns.
        earlier = {name: defined[name]} if there is not None and name in defined else {}
        made = TypeRegistry()
        made.register(event_pb2)
        define_message(made, topic, schema, full=name, earlier=earlier, widen=True)
        made.schema(name)  # what cannot be made columns of must not be kept: nobody could append any more
        definition = made.definition(name)
        if noted and defined.get(name) == definition:
            return RowType(name, made, info.id)
        receipt = turn.append(
            {TYPES_TOPIC: definition_records({name: definition})},
            sequence=turn.sequence + 1,
            state=f"{info.id} {name}".encode(),
        )
        if not receipt.duplicate:
            return RowType(name, made, info.id)
    raise LogError(f"{topic}: other writers add columns to it all the time; try again")


def _filled(found: RowType, topic: str, schema: pa.Schema) -> RowType:
    """Refuse columns that a type defined by hand has no fields for."""
    fields = found.schema.names
    strange = [name for name in schema.names if name not in fields]
    if strange:
        raise DefinitionError(
            f"{topic} holds events of {found.name}, which has no field {', '.join(map(repr, strange))}; its fields: "
            f"{', '.join(fields)}"
        )
    return found


def _registry(log: Log, name: str) -> TypeRegistry:
    """A registry that knows the type: what was made of columns is the log's own."""
    if name in types and not name.startswith(GENERATED):
        return types
    found = TypeRegistry()
    found.register(event_pb2)
    load_types(log, found)
    return found


def _producer(topic: str) -> str:
    return f"type:{topic}"


def _noted(state: bytes, topic_id: str) -> str | None:
    """The type that writers of rows have agreed on for this very topic."""
    of, _, name = state.decode().partition(" ")
    return name if of == topic_id else None
