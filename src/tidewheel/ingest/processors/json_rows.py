"""The JSON processor: each message is an object, and its fields are the columns of a topic."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from google.protobuf.message import Message as ProtobufMessage

from tidewheel.errors import DefinitionError, TopicNotFoundError
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Dead, Processed, joined
from tidewheel.model.time import EARLIEST, LATEST, Instant
from tidewheel.transport.events.row_type import RowType, grow_row_type, row_type
from tidewheel.transport.events.rows import RESERVED, key_of, row_records, time_of
from tidewheel.transport.log.log import Log, check_topic_name
from tidewheel.transport.topics.types import type_version

__all__ = ["JsonProcessor"]

_DECODER: Final = msgspec.json.Decoder()
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEEPEST: Final = 20
_INSTANT: Final = pa.timestamp("us", "UTC")
_DECLARED: Final = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": _INSTANT,
}
_TAKEN: Final = RESERVED | {"event_time", "ingestion_time"}


class _UnfitError(Exception):
    """An object that cannot be a row of the topic."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class JsonProcessor:
    """Takes JSON objects, one a message, as rows of one topic; their type is made of their fields and kept by the log
    (see `Log.append_rows`). A field that is new becomes a column, one that is missing or null is null.

    Args:
        topic: Where to.
        time: The field that tells when it happened: ISO text with a zone, or a number since 1970 whose unit is beyond
            doubt. It becomes the event's `event_time`, and stays a column.
        key: The field, or fields, whose values are the record's key.
        fields: Types of fields, which otherwise follow from the first value: bool, int, double, string or timestamp. A
            whole number is an int: say double where fractions may follow.
        subscriptions: What to subscribe to, as MQTT topic filters; `tidewheel/<topic>` by default.
        max_fields: The topic gets no more columns than that, those within objects counted: whoever may send must not be
            able to make the type grow without end.

    >>> JsonProcessor(topic="input.order", time="ts", key="user")
    JsonProcessor(topic='input.order', time='ts', key=('user',), fields={}, max_fields=500)
    """

    name = "json"
    types: Sequence[type[ProtobufMessage]] = ()

    def __init__(
        self,
        *,
        topic: str,
        time: str,
        key: str | Sequence[str] = (),
        fields: Mapping[str, str] | None = None,
        subscriptions: Sequence[str] | None = None,
        max_fields: int = 500,
    ) -> None:
        check_topic_name(topic)
        if isinstance(subscriptions, str):
            raise DefinitionError(f"subscriptions must be a list of MQTT topic filters, got {subscriptions!r}")
        for name, kind in (fields or {}).items():
            if kind not in _DECLARED:
                raise DefinitionError(f"the field {name!r} must be {', '.join(_DECLARED)}, got {kind!r}")
        self.topic = topic
        self.time = time
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.fields = dict(fields or {})
        self.max_fields = max_fields
        self.subscriptions: Sequence[str] = (f"tidewheel/{topic}",) if subscriptions is None else tuple(subscriptions)
        self._log: Log | None = None
        self._kind: RowType | None = None
        self._seen: object = None
        self._lock = threading.Lock()

    def attach(self, log: Log) -> None:
        """Note the declared fields in the log: one that has another type there is refused."""
        self._log = log
        if self.fields:
            declared = pa.schema({name: _DECLARED[kind] for name, kind in self.fields.items()})
            self._kind = grow_row_type(log, self.topic, declared)

    def process(self, messages: Sequence[Message]) -> Processed:
        """Send each object to the topic; kinds of dead letters: `bad-json` (no object), `bad-time` (missing, without a
        zone, of an unknown unit), `bad-type` (not of its column's type), `bad-field` (a name or a value that cannot be
        a column, or one too many)."""
        if self._log is None:
            raise DefinitionError("the JSON processor keeps types in the log: use it in a Pipeline, or attach(log) it")
        dead: list[Dead] = []
        found: list[tuple[Message, dict[str, Any]]] = []
        for message in messages:
            try:
                found.append((message, _object(message.payload)))
            except _UnfitError as error:
                dead.append(Dead(message, error.kind, str(error)))
        with self._lock:  # pipelines that share the processor make one type
            processed = self._rows(self._log, found)
        return joined([processed, Processed(dead=dead)])

    def _rows(self, log: Log, found: Sequence[tuple[Message, dict[str, Any]]]) -> Processed:
        """The objects as rows; those that do not fit are dead."""
        self._kind = kind = self._current(log)
        known: Mapping[str, pa.DataType] = {} if kind is None else {field.name: field.type for field in kind.schema}
        columns = known
        dead, good, times = [], [], []
        for message, fields in found:
            try:
                times.append(self._time_of(fields))
                columns = self._widened(columns, fields)
                good.append((message, fields))
            except _UnfitError as error:
                del times[len(good) :]
                dead.append(Dead(message, error.kind, str(error)))
        if not good:
            return Processed(dead=dead)
        if kind is None or columns is not known:
            try:
                self._kind = kind = grow_row_type(log, self.topic, pa.schema(columns))
            except DefinitionError as error:
                if type_version(log) != self._seen:  # others have added columns meanwhile
                    return self._rows(log, found)
                if len(good) == 1:  # the type is not ours to grow
                    return Processed(dead=[*dead, Dead(good[0][0], "bad-type", str(error))])
                return joined([Processed(dead=dead), *(self._rows(log, [each]) for each in good)])
        return Processed(topics={self.topic: self._records(kind, good, times)}, dead=dead)

    def _current(self, log: Log) -> RowType | None:
        """The type of the topic's rows, with what others have added to it; one of a topic that was deleted since is not
        taken for it."""
        try:
            there = log.topic_info(self.topic).id
        except TopicNotFoundError:
            return None
        version = type_version(log)
        if self._kind is None or self._kind.topic_id != there or version != self._seen:
            self._seen = version
            return row_type(log, self.topic)
        return self._kind

    def _time_of(self, fields: Mapping[str, Any]) -> Instant:
        value = fields.get(self.time)
        if value is None:
            raise _UnfitError("bad-time", f"the time {self.time!r} is missing")
        try:
            found = time_of(value)
        except ValueError as error:
            raise _UnfitError("bad-time", f"the time {self.time!r}: {error}") from None
        if not EARLIEST <= found <= LATEST:
            raise _UnfitError(
                "bad-time", f"the time {self.time!r} must lie between the years 1 and 9999, got {value!r}"
            )
        return found

    def _widened(self, columns: Mapping[str, pa.DataType], fields: Mapping[str, Any]) -> Mapping[str, pa.DataType]:
        """The columns with room for an object as well: the same ones if they have it."""
        widened: dict[str, pa.DataType] = {}
        for name, value in fields.items():
            kind = columns.get(name)
            if kind is not None and (value is None or _is_plain(kind, value)):
                continue
            if name in self.key and isinstance(value, (list, dict)):
                raise _UnfitError("bad-type", f"{name!r} is a part of the key, so it cannot be a list or an object")
            if name == "event_time" == self.time:
                continue
            if name in _TAKEN:
                raise _UnfitError("bad-field", f"{name!r} is what reading the log calls a column of its own; rename it")
            wider = _with_room(kind, value, name)
            if wider is not None and wider != kind:
                widened[name] = wider
        if not widened:
            return columns
        together = {**columns, **widened}
        count = sum(map(_count, together.values()))
        if count > self.max_fields and count > sum(map(_count, columns.values())):
            raise _UnfitError(
                "bad-field", f"{self.topic} would have {count} columns; at most {self.max_fields} are made"
            )
        return together

    def _records(
        self, kind: RowType, rows: Sequence[tuple[Message, Mapping[str, Any]]], times: Sequence[Instant]
    ) -> pa.RecordBatch:
        schema = kind.schema
        names = [name for name in schema.names if any(name in fields for _, fields in rows)]
        arrays = [_array([fields.get(name) for _, fields in rows], schema.field(name).type) for name in names]
        # The key may be made of the time, which is no field of the message if it is called event_time.
        parts = [pa.array([_text(fields.get(name)) for _, fields in rows], pa.string()) for name in self.key]
        records = row_records(
            kind,
            pa.RecordBatch.from_arrays(arrays, names=names) if names else _no_columns(len(rows)),
            times=pa.array(times, _INSTANT),
            ingestion_time=pa.array([message.received_at for message, _ in rows], _INSTANT),
        )
        return records.set_column(0, records.schema.field(0), key_of(parts)) if parts else records

    def __repr__(self) -> str:
        return (
            f"JsonProcessor(topic={self.topic!r}, time={self.time!r}, key={self.key!r}, fields={self.fields!r}, "
            f"max_fields={self.max_fields})"
        )


def _object(payload: bytes) -> dict[str, Any]:
    try:
        found = _DECODER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _UnfitError("bad-json", f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _UnfitError("bad-json", f'an object is wanted, like {{"user": "anna"}}, got {_shown(found)}')
    return found


def _with_room(kind: pa.DataType | None, value: Any, where: str, depth: int = 0) -> pa.DataType | None:
    """The type that can hold a column's values and this value as well; None while there are only nulls."""
    if depth == 0 and not _NAME.fullmatch(where):
        raise _UnfitError("bad-field", f"the field {where!r:.200} cannot be a column; use letters, digits and _")
    if depth > _DEEPEST:
        raise _UnfitError("bad-field", f"{where:.200} is nested too deep: more than {_DEEPEST} levels")
    if value is None:
        return kind
    if isinstance(value, dict):
        return _struct_with_room(kind, value, where, depth)
    if isinstance(value, list):
        return _list_with_room(kind, value, where, depth)
    if kind is None and isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _UnfitError("bad-type", f"{where} is too large for a whole number of 64 bits: {value}; send it as text")
    if kind is None:
        return pa.bool_() if isinstance(value, bool) else _FIRST[type(value)]
    wider = _holding(kind, value)
    if wider is None:
        hint = ""
        if isinstance(value, float) and pa.types.is_integer(kind):
            hint = f"; where fractions may come, say so before the first event: --field {where}=double"
        raise _UnfitError("bad-type", f"{where} is {_named(kind)} in the log, got {_shown(value)}{hint}")
    return wider


def _struct_with_room(kind: pa.DataType | None, value: Mapping[str, Any], where: str, depth: int) -> pa.DataType | None:
    if kind is not None and not pa.types.is_struct(kind):
        raise _UnfitError("bad-type", f"{where} is {_named(kind)} in the log, got an object")
    fields = {} if kind is None else {field.name: field.type for field in kind}
    for name, part in value.items():
        if not _NAME.fullmatch(name):
            raise _UnfitError(
                "bad-field", f"the field {name!r:.200} of {where} cannot be a column; use letters, digits and _"
            )
        found = _with_room(fields.get(name), part, f"{where}.{name}", depth + 1)
        if found is not None:
            fields[name] = found
    if kind is not None and list(fields.values()) == [field.type for field in kind]:
        return kind
    return pa.struct(list(fields.items())) if fields else None


def _list_with_room(kind: pa.DataType | None, value: Sequence[Any], where: str, depth: int) -> pa.DataType | None:
    if kind is not None and not pa.types.is_list(kind):
        raise _UnfitError("bad-type", f"{where} is {_named(kind)} in the log, got a list")
    items = None if kind is None else kind.value_type
    for place, item in enumerate(value):
        if item is None or isinstance(item, list):
            raise _UnfitError("bad-field", f"{where} is a list with {_shown(item)} in it, which an event cannot hold")
        if kind is None and isinstance(item, float) and items == pa.int64():
            items = pa.float64()
            for earlier in value[:place]:
                _with_room(items, earlier, f"{where}[]", depth + 1)
        items = _with_room(items, item, f"{where}[]", depth + 1)
    if kind is not None and items == kind.value_type:
        return kind
    return None if items is None else pa.list_(items)


def _holding(kind: pa.DataType, value: Any) -> pa.DataType | None:
    """The type of a column if it can hold the value, or the wider one that it can become; None if there is none."""
    if pa.types.is_timestamp(kind):
        try:
            return kind if EARLIEST <= time_of(value) <= LATEST else None
        except ValueError:
            return None
    if isinstance(value, bool):
        return kind if pa.types.is_boolean(kind) else None
    if isinstance(value, str):
        return kind if pa.types.is_string(kind) else None
    if isinstance(value, int) and value.bit_length() > 1_023:
        return None  # not even a double is as large
    if pa.types.is_float64(kind):
        return kind if isinstance(value, float) or int(float(value)) == value else None
    if pa.types.is_float32(kind):
        return kind if pa.scalar(float(value), pa.float32()).as_py() == value else None
    if not pa.types.is_integer(kind) or value != int(value):
        return None
    bits = kind.bit_width
    signed = pa.types.is_signed_integer(kind)
    if (-(2 ** (bits - 1)) <= value < 2 ** (bits - 1)) if signed else (0 <= value < 2**bits):
        return kind
    return pa.int64() if bits == 32 and -(2**63) <= value < 2**63 else None


def _is_plain(kind: pa.DataType, value: Any) -> bool:
    """Whether a value is of the type that its column nearly always has: a closer look takes several times as long."""
    of = type(value)
    return _PLAIN.get(kind.id) is of and (of is not int or -(2**63) <= value < 2**63)


def _value(value: Any, kind: pa.DataType) -> Any:
    """A value as Arrow takes it for the type of its column."""
    if value is None:
        return [] if pa.types.is_list(kind) else None
    if pa.types.is_timestamp(kind):
        return time_of(value)
    if pa.types.is_struct(kind):
        return {field.name: _value(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_value(item, kind.value_type) for item in value]
    if pa.types.is_floating(kind):
        return float(value)  # Arrow takes no whole number beyond 2**53 for a double, not even one that is exact
    return int(value) if pa.types.is_integer(kind) else value


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values of a column, all of which fit."""
    of = _PLAIN.get(kind.id)
    if of is None or any(type(value) is not of and value is not None for value in values):
        values = [_value(value, kind) for value in values]
    return pa.array(values, kind)


def _text(value: Any) -> str | None:
    """A part of the key: text as it is, anything else as JSON."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def _count(kind: pa.DataType) -> int:
    """Columns, with those within."""
    if pa.types.is_list(kind):
        return _count(kind.value_type)
    return 1 + sum(_count(field.type) for field in kind) if pa.types.is_struct(kind) else 1


def _no_columns(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


_PLAIN: Final = {
    pa.bool_().id: bool,
    pa.int64().id: int,
    pa.float64().id: float,
    pa.string().id: str,
}
_FIRST: Final = {int: pa.int64(), float: pa.float64(), str: pa.string()}


def _named(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "an object"
    if pa.types.is_list(kind):
        return "a list"
    if pa.types.is_timestamp(kind):
        return "a time (ISO text with a zone, or a number since 1970)"
    return f"{'an' if str(kind)[0] in 'aeiou' else 'a'} {kind}"


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    return f"{value!r:.100}"
