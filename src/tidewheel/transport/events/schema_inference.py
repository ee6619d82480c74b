"""Message types made from columns: results get a type of their own without a .proto file."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from tidewheel.errors import DefinitionError
from tidewheel.transport.events.registry import TypeRegistry

__all__ = ["GENERATED", "define_message", "generated_type_name"]

GENERATED = "tidewheel.results."
"""What the names of such types begin with."""

_PACKAGE = GENERATED.rstrip(".")
_AFTER_A_DOT = re.compile(r"(?<=.)\.([a-z])", re.DOTALL)
_AFTER_A_HYPHEN = re.compile(r"(?<=.)-(?=[a-z0-9])", re.DOTALL)
_NEITHER = re.compile(r"(?<!\0)[A-Z]|[^A-Za-z0-9\0]")
_F = FieldDescriptorProto
_SCALARS: list[tuple[object, int]] = [
    (pa.types.is_boolean, _F.TYPE_BOOL),
    (pa.types.is_uint64, _F.TYPE_UINT64),
    (pa.types.is_int64, _F.TYPE_INT64),
    (pa.types.is_unsigned_integer, _F.TYPE_UINT32),
    (pa.types.is_signed_integer, _F.TYPE_INT32),
    (pa.types.is_float32, _F.TYPE_FLOAT),
    (pa.types.is_floating, _F.TYPE_DOUBLE),
    (
        lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_view(kind, "string"),
        _F.TYPE_STRING,
    ),
    (
        lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or _is_view(kind, "binary"),
        _F.TYPE_BYTES,
    ),
]
_SAME_BYTES = {
    (_F.TYPE_INT32, _F.TYPE_INT64),
    (_F.TYPE_UINT32, _F.TYPE_UINT64),
    (_F.TYPE_UINT32, _F.TYPE_INT64),
}
"""Types of a field, and the wider ones as which the bytes of old events mean the same."""
_HOLDS = {
    *((wide, narrow) for narrow, wide in _SAME_BYTES),
    (_F.TYPE_DOUBLE, _F.TYPE_FLOAT),
    *((_F.TYPE_DOUBLE, whole) for whole in (_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_UINT64)),
}
"""Types of a field, and those of columns that it can hold. Whether whole numbers of 64 bits are too large for a double
is seen when they are encoded."""


def define_message(
    registry: TypeRegistry,
    name: str,
    schema: pa.Schema,
    *,
    full: str | None = None,
    earlier: Mapping[str, bytes] | None = None,
    widen: bool = False,
) -> str:
    """Register a message type with these columns as its fields, numbered in their order; returns its full name.

    Nulls are kept: every scalar field is optional. `full` is the type's name, if it is not the one that is made of
    `name`. `earlier` are definitions by type name of what was written before: the fields of the type's earlier
    definition keep their numbers, and those without a column stay, so that old events are read rightly. A column that
    has another type than its field is refused; with `widen` only if neither can hold what the other holds: a field of
    32 bits becomes one of 64 where the bytes of old events mean the same, and a narrower column goes into a wider
    field.

    >>> registry = TypeRegistry()
    >>> define_message(registry, "visit-count", pa.schema({"cell": pa.uint64(), "count": pa.int64()}))
    'tidewheel.results.Visit_count'
    """
    full = full or generated_type_name(name)
    short = full.removeprefix(GENERATED)
    file = FileDescriptorProto(
        name=f"tidewheel/results/{short}.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/duration.proto"],
    )
    _fill(file.message_type.add(name=short), schema, where=name)
    _check_names(file.message_type[0], where=name)
    needed = [_file_of(timestamp_pb2), _file_of(duration_pb2), file]
    registry.register_definition(full, FileDescriptorSet(file=needed).SerializeToString(deterministic=True))
    if earlier and full in earlier:
        # Compared as the registry tells it, where names are whole.
        files = FileDescriptorSet.FromString(registry.definition(full))
        before = _message_of(full, earlier[full])
        _continue(before, files.file[-1].message_type[0], where=name, widen=widen)
        _check_names(before, where=name)
        files.file[-1].message_type[0].CopyFrom(before)
        registry.register_definition(full, files.SerializeToString(deterministic=True))
    return full


def generated_type_name(name: str) -> str:
    """The full name of the type that is made under a name, such as a topic's: another one for every other name.

    A dot becomes `_` before a capital, a hyphen `_` before a small letter or a digit; whatever else is no small letter
    or digit is written as `__` and its code.

    >>> generated_type_name("analytics.busy-routes")
    'tidewheel.results.Analytics_Busy_routes'
    >>> generated_type_name("late_3-6"), generated_type_name("late-36")
    ('tidewheel.results.Late__5f3_6', 'tidewheel.results.Late_36')
    """
    short = _AFTER_A_DOT.sub(lambda found: f"\0{found[1].upper()}", name)
    short = _AFTER_A_HYPHEN.sub("\0", short)
    short = _NEITHER.sub(lambda found: f"__{ord(found[0]):02x}", short).replace("\0", "_")
    # No other name is written with a second capital right after the first.
    return GENERATED + (short[0].upper() + short[1:] if short[:1].islower() else f"TYPE{short}")


def _message_of(full: str, definition: bytes) -> DescriptorProto:
    try:
        return FileDescriptorSet.FromString(definition).file[-1].message_type[0]
    except (DecodeError, IndexError) as error:
        raise DefinitionError(
            f"the log's definition of message type {full!r} is broken ({error}), so the results that it holds cannot "
            "be continued; write to another topic (tidewheel run --version v2), or delete this one first "
            "(tidewheel topics --delete)"
        ) from error


def _continue(message: DescriptorProto, made: DescriptorProto, *, where: str, widen: bool) -> None:
    """Add to a message the fields that only the other one has; those that both have must be of one type."""
    known = {field.name: field for field in message.field}
    parts = {part.name: part for part in message.nested_type}
    new_parts = {part.name: part for part in made.nested_type}
    number = max((field.number for field in message.field), default=0)
    for field in made.field:
        there = known.get(field.name)
        part = field.type_name.rpartition(".")[2]
        if there is None:
            number += 1
            added = message.field.add()
            added.CopyFrom(field)
            added.number = number
            if field.proto3_optional:
                added.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
            if part in new_parts:
                message.nested_type.add().CopyFrom(new_parts[part])
        elif widen and _kind(there) == _kind(field) and part in parts and part in new_parts:
            _continue(parts[part], new_parts[part], where=f"{where}.{field.name}", widen=True)
        elif widen and _widened(there, field):
            there.type = field.type if (there.type, field.type) in _SAME_BYTES else there.type
        elif _kind(there) != _kind(field) or parts.get(part) != new_parts.get(part):
            detail = f" ({_type_text(there)}, not {_type_text(field)})" if widen else ""
            raise DefinitionError(
                f"{where}: the log holds {'events' if widen else 'results'} whose column {field.name!r} is of another "
                f"type{detail}, and they could not be read any more; "
                + (
                    "cast the column, or write to another topic"
                    if widen
                    else "write to another topic (tidewheel run --version v2)"
                )
                + ", or delete this one first (tidewheel topics --delete)"
            )


def _check_names(message: DescriptorProto, *, where: str) -> None:
    """Refuse fields whose names differ only in case and underscores, as protobuf does: they are one in JSON."""
    known: dict[str, str] = {}
    for field in message.field:
        other = known.setdefault(field.name.replace("_", "").lower(), field.name)
        if other != field.name:
            raise DefinitionError(
                f"{where}: the columns {other!r} and {field.name!r} differ only in case and underscores, which a "
                "message does not distinguish; rename one"
            )
    for part in message.nested_type:
        _check_names(part, where=f"{where}.{part.name}")


def _widened(there: FieldDescriptorProto, field: FieldDescriptorProto) -> bool:
    """Whether one of the two types can hold what the other holds."""
    both = there.type, field.type
    return there.label == field.label and (both in _SAME_BYTES or both in _HOLDS)


def _type_text(field: FieldDescriptorProto) -> str:
    """The type of a field in words."""
    name = field.type_name.rpartition(".")[2] or _F.Type.Name(field.type).removeprefix("TYPE_")
    return f"a list of {name.lower()}" if field.label == _F.LABEL_REPEATED else name.lower()


def _kind(field: FieldDescriptorProto) -> tuple[object, ...]:
    return field.type, field.type_name, field.label


def _fill(message: DescriptorProto, schema: pa.Schema | pa.StructType, *, where: str) -> None:
    for number, column in enumerate(schema, start=1):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column.name):
            raise DefinitionError(
                f"{where}: the column {column.name!r} cannot be a field of a message; use letters, digits and _"
            )
        field = message.field.add(name=column.name, number=number, label=_F.LABEL_OPTIONAL)
        kind = column.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            field.label = _F.LABEL_REPEATED
            kind = kind.value_type
        _set_type(message, field, kind, where=f"{where}.{column.name}")
        if field.label == _F.LABEL_OPTIONAL and field.type != _F.TYPE_MESSAGE:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{column.name}")


def _set_type(message: DescriptorProto, field: FieldDescriptorProto, kind: pa.DataType, *, where: str) -> None:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        field.type = _F.TYPE_MESSAGE
        field.type_name = f".google.protobuf.{'Timestamp' if pa.types.is_timestamp(kind) else 'Duration'}"
    elif pa.types.is_struct(kind):
        nested = message.nested_type.add(name="".join(part.title() for part in field.name.split("_")) or "Part")
        _fill(nested, kind, where=where)
        field.type = _F.TYPE_MESSAGE
        field.type_name = nested.name
    else:
        found = next((code for test, code in _SCALARS if callable(test) and test(kind)), None)
        if found is None:
            raise DefinitionError(
                f"{where}: {kind} has no counterpart in protobuf; cast the column, to a string for example"
            )
        field.type = found  # type: ignore[assignment]


def _is_view(kind: pa.DataType, of: str) -> bool:
    return str(kind) == f"{of}_view"


def _file_of(module: object) -> FileDescriptorProto:
    proto = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(proto)  # type: ignore[attr-defined]
    return proto
