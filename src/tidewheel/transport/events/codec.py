"""Encode and decode events: whole columns or single events; binary, or JSON for people.

A reader tells the two encodings apart by the first byte: JSON begins with a brace, which no envelope in binary does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tidewheel.errors import DefinitionError, MalformedError
from tidewheel.model.time import Instant
from tidewheel.transport.events.event_json import from_json, parse_message, to_json
from tidewheel.transport.events.event_pb2 import Event, Punctuation
from tidewheel.transport.events.registry import TypeRegistry, type_name, types
from tidewheel.transport.log.log_types import records

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "ENVELOPE_COLUMNS",
    "Decoded",
    "Envelopes",
    "decode",
    "decode_columns",
    "decode_envelopes",
    "encode",
    "encode_columns",
    "pack",
    "punctuation",
    "timestamp",
    "unpack",
    "with_ingestion_time",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports


ENVELOPE_COLUMNS = ("event_time", "ingestion_time")
_TYPE_PREFIX = "/"  # the shortest that `Any` allows: it stands in every event
_INSTANTS = pa.timestamp("us", "UTC")
_MARKER = type_name(Punctuation)


def timestamp(instant: Instant) -> Timestamp:
    """The protobuf form of an instant."""
    seconds, micros = divmod(instant, 1_000_000)
    return Timestamp(seconds=seconds, nanos=micros * 1_000)


def pack(message: Message, *, event_time: Instant | None, ingestion_time: Instant | None = None) -> Event:
    """Make an event that carries the message.

    >>> pack(Punctuation(epoch="monday"), event_time=1_000_000).details.type_url
    '/tidewheel.v1.Punctuation'
    """
    event = Event()
    if event_time is not None:
        event.event_time.CopyFrom(timestamp(event_time))
    if ingestion_time is not None:
        event.ingestion_time.CopyFrom(timestamp(ingestion_time))
    event.details.Pack(message, type_url_prefix="")
    return event


def unpack(event: Event, *, registry: TypeRegistry = types) -> Message:
    """Return the message that an event carries; `UnknownTypeError` if the registry does not know its type."""
    name = event.details.type_url.rpartition("/")[2]
    return parse_message(registry.message_class(name), event.details.value)


def encode(event: Event, *, format: Literal["binary", "json"] = "binary", registry: TypeRegistry = types) -> bytes:
    """One event as bytes. JSON names the fields as the columns are named; what JSON cannot show (fields and types
    of a newer version) is in it as base64, so that it survives."""
    if format == "binary":
        return event.SerializeToString(deterministic=True)
    if format != "json":
        raise DefinitionError(f'format must be "binary" or "json", got {format!r}')
    return json.dumps(to_json(event, registry), ensure_ascii=False, separators=(",", ":")).encode()


def decode(value: bytes, *, registry: TypeRegistry = types) -> Event:
    """Decode one event in either encoding; `MalformedError` has the reason."""
    return from_json(value, registry) if value[:1] == b"{" else parse_message(Event, value)


def punctuation(at: Instant, *, epoch: str = "") -> pa.RecordBatch:
    """A marker, ready to be appended: its sender promises that everything before `at` has been sent."""
    value = encode(pack(Punctuation(epoch=epoch), event_time=at))
    return records([value], punctuations=[at])


def encode_columns(
    of: str | type[Message],
    columns: pa.RecordBatch | pl.DataFrame,
    *,
    event_time: pa.Array,
    ingestion_time: pa.Array | Instant | None = None,
    batch_time: Instant | None = None,
    registry: TypeRegistry = types,
) -> pa.Array:
    """Encode events from columns named like the message's fields; nulls and missing columns are unset fields.

    Args:
        of: The message type.
        columns: A row for each event.
        event_time: When each happened, in microseconds.
        ingestion_time: When each came in, or all of them.
        batch_time: The clock of the batch that they are results of.
        registry: Where the message type is looked up.

    >>> import polars as pl
    >>> from tidewheel.transport.events.event_pb2 import DeadLetter
    >>> values = encode_columns(DeadLetter, pl.DataFrame({"reason": ["too long"]}), event_time=pa.array([0]))
    >>> decode_columns(DeadLetter, values).columns["reason"].to_pylist()
    ['too long']
    """
    batch = _conform(type_name(of), _as_batch(columns), registry.schema(of))
    count = batch.num_rows
    details = registry.converter(of).encode(batch)
    if not isinstance(ingestion_time, (pa.Array, pa.ChunkedArray)):
        ingestion_time = pa.repeat(pa.scalar(ingestion_time, pa.int64()), count)
    envelope = {
        "event_time": _instants(event_time),
        "ingestion_time": _instants(ingestion_time),
        "details": pa.StructArray.from_arrays(
            [pa.repeat(_TYPE_PREFIX + type_name(of), count), details],
            fields=[pa.field("type_url", pa.string(), False), pa.field("value", pa.binary(), False)],
        ),
    }
    if batch_time is not None:
        envelope["batch_time"] = pa.repeat(pa.scalar(batch_time, _INSTANTS), count)
    return registry.converter(Event).encode(pa.RecordBatch.from_pydict(envelope))


def with_ingestion_time(values: pa.Array, at: Instant) -> pa.Array:
    """Binary events, none of which has an ingestion time, with this one: a field appended to a message is a field of
    it, so nothing is encoded again."""
    return pc.binary_join_element_wise(values, Event(ingestion_time=timestamp(at)).SerializeToString(), b"")


@dataclass(frozen=True, slots=True)
class Envelopes:
    """The envelopes of a batch. `columns`: event_time, ingestion_time, type, details (bytes) of the good rows, whose
    places in the input are `rows`; `errors`: place and reason of each of the others."""

    columns: pa.RecordBatch
    rows: pa.Array
    errors: Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Decoded:
    """The events of a batch in columns: event_time, ingestion_time, then the message's fields, of the good rows, whose
    places in the input are `rows`; `errors`: place and reason of each that is malformed or of another type. Markers
    (`Punctuation`) are only counted."""

    columns: pa.RecordBatch
    rows: pa.Array
    errors: Sequence[tuple[int, str]]
    markers: int = 0


def decode_envelopes(values: pa.Array, *, registry: TypeRegistry = types) -> Envelopes:
    """Open the envelopes of a batch in either encoding, whatever they carry."""
    values, errors = _binary(values, registry)
    batch, rows, bad = registry.converter(Event).decode_each(values)
    details = batch.column("details")
    url = pc.fill_null(pc.struct_field(details, "type_url"), "")
    columns = pa.RecordBatch.from_arrays(
        [
            batch.column("event_time"),
            batch.column("ingestion_time"),
            _type_names(url),
            pc.fill_null(pc.struct_field(details, "value"), b""),
        ],
        names=["event_time", "ingestion_time", "type", "details"],
    )
    if errors:  # the rows that failed as JSON stand in `values` as nulls and came out as empty envelopes
        keep = pc.invert(pc.is_in(rows, value_set=pa.array(list(errors), pa.int64())))
        columns, rows = columns.filter(keep), rows.filter(keep)
    return Envelopes(columns, rows, sorted({**bad, **errors}.items()))


def decode_columns(
    of: str | type[Message],
    values: pa.Array,
    *,
    only: frozenset[str] | None = None,
    carried: str | None = None,
    registry: TypeRegistry = types,
) -> Decoded:
    """Decode a batch of events that carry one type.

    Args:
        of: The message type.
        values: The events as bytes.
        only: The columns that are needed at least; by default all.
        carried: The type that all of them are known to carry, so that it need not be looked up in each (`Batch.type`).
        registry: Where the message type is looked up.
    """
    wanted = type_name(of)
    converter = registry.converter(of)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    taken = set(ENVELOPE_COLUMNS).intersection(converter.schema.names)
    if taken:
        raise DefinitionError(f"{wanted} has a field {', '.join(sorted(taken))}, which is the envelope's; rename it")
    whole = _at_once(wanted, values, only, registry, named=carried != wanted)
    if whole is not None:
        return Decoded(whole, pa.array(np.arange(whole.num_rows)), ())
    envelopes = decode_envelopes(values, registry=registry)
    columns, rows, errors = envelopes.columns, envelopes.rows, dict(envelopes.errors)
    markers = 0
    fits = pc.equal(columns.column("type"), wanted)
    if not pc.all(fits, min_count=0).as_py():
        strange = columns.filter(pc.invert(fits)).column("type").to_pylist()
        for row, name in zip(rows.filter(pc.invert(fits)).to_pylist(), strange, strict=True):
            if name == _MARKER:
                markers += 1
            else:
                errors[row] = f"carries {name or 'nothing'}, expected {wanted}"
        columns, rows = columns.filter(fits), rows.filter(fits)
    batch, good, bad = converter.decode_each(columns.column("details"))
    if bad:
        for row, reason in bad.items():
            errors[rows[row].as_py()] = f"{wanted}: {reason}"
        columns, rows = columns.take(good), rows.take(good)
    return Decoded(
        pa.RecordBatch.from_arrays(
            [columns.column("event_time"), columns.column("ingestion_time"), *batch.columns],
            names=[*ENVELOPE_COLUMNS, *batch.schema.names],
        ),
        rows,
        sorted(errors.items()),
        markers,
    )


def _at_once(
    wanted: str, values: pa.Array, only: frozenset[str] | None, registry: TypeRegistry, *, named: bool
) -> pa.RecordBatch | None:
    """Envelopes and what they carry in one pass, if nothing is unusual about any of them."""
    try:
        batch = registry.event_converter(wanted, only, named=named).decode(values)
    except MalformedError:  # malformed, another type, or JSON: to be distinguished with more care
        return None
    details = batch.column("details")
    if not len(details) or details.null_count:
        return None
    *urls, message = details.flatten()
    if message.null_count or not all(pc.all(pc.equal(url, (_TYPE_PREFIX + wanted).encode())).as_py() for url in urls):
        return None
    times = [name for name in ENVELOPE_COLUMNS if name in batch.schema.names]
    fields = [message.type.field(number).name for number in range(message.type.num_fields)]
    return pa.RecordBatch.from_arrays(
        [*(batch.column(name) for name in times), *message.flatten()], names=[*times, *fields]
    )


def _binary(values: pa.Array, registry: TypeRegistry) -> tuple[pa.Array, dict[int, str]]:
    """All events in binary; those that fail as JSON become null, with the reason."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    is_json = pc.fill_null(pc.starts_with(values, pattern=b"{"), False)
    if not pc.any(is_json, min_count=0).as_py():
        return values, {}
    errors: dict[int, str] = {}
    changed: list[bytes | None] = values.to_pylist()
    for row in pc.indices_nonzero(is_json).to_pylist():
        try:
            changed[row] = encode(from_json(changed[row] or b"", registry))
        except MalformedError as error:
            errors[row] = str(error)
            changed[row] = None
    return pa.array(changed, pa.binary()), errors


def _type_names(url: pa.Array) -> pa.Array:
    encoded = url.dictionary_encode()
    names = pa.array([text.rpartition("/")[2] for text in encoded.dictionary.to_pylist()], pa.string())
    if len(names) == 1:  # as nearly always: all events of a topic carry the same
        return pa.repeat(names[0], len(url))
    return names.take(encoded.indices)


def _as_batch(columns: pa.RecordBatch | pl.DataFrame) -> pa.RecordBatch:
    if isinstance(columns, pa.RecordBatch):
        return columns
    table = columns.to_arrow().combine_chunks()
    return pa.RecordBatch.from_arrays(
        [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns],
        names=table.column_names,
    )


def _conform(name: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns in the message's own types: ptars would pass over in silence what does not fit."""
    names, known = batch.schema.names, set(schema.names)
    strange = [column for column in names if column not in known]
    if strange:
        raise DefinitionError(
            f"{name} has no field {', '.join(map(repr, strange))}; its fields: {', '.join(schema.names)}"
        )
    if names == schema.names and batch.schema.types == schema.types:
        return batch
    arrays = []
    for column in names:
        wanted = schema.field(column).type
        array = batch.column(column)
        if array.type != wanted:
            try:
                array = array.cast(wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise DefinitionError(f"column {column!r} of {name} must be {wanted}: {error}") from None
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _instants(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return values if values.type == _INSTANTS else values.cast(_INSTANTS)
