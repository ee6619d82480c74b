"""Rows of any table as events: the columns are the fields of a type that the log keeps (see `row_type`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.errors import DefinitionError
from tidewheel.model.time import EARLIEST, LATEST, Instant, instant, now
from tidewheel.transport.events.codec import ENVELOPE_COLUMNS, encode_columns
from tidewheel.transport.events.row_type import RowType, grow_row_type
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Receipt, records

__all__ = [
    "RESERVED",
    "append_rows",
    "arrow_table",
    "check_columns",
    "conform",
    "event_times",
    "key_of",
    "row_records",
    "time_of",
]

_INSTANT = pa.timestamp("us", "UTC")
RESERVED = frozenset({"_topic", "_partition", "_offset", "_key", "_append_time", "_clock"})
"""What reading a topic may add to the columns."""
_ZONE = re.compile(r"[T ]\d.*(?:[Zz]|[+-]\d\d(?::?\d\d)?)$")
_UNITS = {10**9: 1_000_000, 10**12: 1_000, 10**15: 1, 10**18: 0}
"""The smallest number of each unit that is taken for a time since 1970, and its microseconds (0: nanoseconds). Below
ten times that, all of them lie between 2001 and 2286, and none could be of another unit."""


def append_rows(
    log: Log,
    topic: str,
    rows: Any,
    *,
    time: str,
    key: str | Sequence[str] = (),
    producer: str | None = None,
    sequence: int | None = None,
) -> Receipt:
    """Append rows as events (see `Log.append_rows`)."""
    if (producer is None) != (sequence is None):
        raise DefinitionError("append_rows: producer and sequence belong together; give both or none")
    table = arrow_table(rows)
    if not table.num_columns:
        return Receipt(-1 if sequence is None else sequence)
    keys = (key,) if isinstance(key, str) else tuple(key)
    fields = check_columns(table.schema, time=time, key=keys, what="append_rows")
    kind = grow_row_type(log, topic, pa.schema(fields))
    at = now()
    try:
        parts = [
            row_records(kind, batch, times=event_times(batch.column(time), name=time), key=keys, ingestion_time=at)
            for batch in table.to_batches(max_chunksize=100_000)
        ]
        batch = pa.concat_batches(parts) if parts else records([])
    except pa.ArrowInvalid as error:
        raise DefinitionError(f"append_rows: these rows are too much for one append, append fewer: {error}") from None
    if producer is None or sequence is None:
        return log.append(topic, batch)
    return log.producer(producer, fence=False).append({topic: batch}, sequence=sequence)


def arrow_table(rows: Any) -> pa.Table:
    """A DataFrame of pandas, polars or Spark, an Arrow table or a list of dicts as an Arrow table.

    >>> arrow_table([{"user": "anna"}, {"user": "ben", "amount": 2}]).to_pydict()
    {'user': ['anna', 'ben'], 'amount': [None, 2]}
    """
    kind = f"{type(rows).__module__.partition('.')[0]}.{type(rows).__name__}"
    try:
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows])
        if kind == "pandas.DataFrame":
            return pa.Table.from_pandas(rows, preserve_index=False)
        if kind == "pyspark.DataFrame":
            if rows.isStreaming:
                raise DefinitionError(
                    "append_rows takes what is there; write a streaming DataFrame with "
                    'df.writeStream.format("tidewheel")'
                )
            return rows.toArrow()
        if kind == "polars.LazyFrame":
            raise DefinitionError("append_rows takes what is there; say rows.collect()")
        if kind == "polars.DataFrame":
            return rows.to_arrow()
        if hasattr(rows, "__arrow_c_stream__"):  # DuckDB and others; Arrow itself
            return pa.table(rows)
        if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
            names = dict.fromkeys(name for row in rows for name in row)
            strange = [name for name in names if not isinstance(name, str)]
            if strange:
                raise DefinitionError(f"append_rows: the name of a column must be text, got {strange[0]!r}")
            return pa.table({name: _column(name, [row.get(name) for row in rows]) for name in names})
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DefinitionError(f"append_rows: the rows cannot be made columns of: {error}") from None
    raise DefinitionError(
        f"append_rows takes a DataFrame (pandas, polars, Spark), an Arrow table or a list of dicts, got "
        f"{type(rows).__name__}"
    )


def check_columns(schema: pa.Schema, *, time: str, key: Sequence[str], what: str) -> list[pa.Field]:
    """The columns that are fields of the message, without those that have no type yet, since all of their values are
    null; all that is wrong with them is said before the first row."""
    names = schema.names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DefinitionError(f"{what}: there are two columns {twice[0]!r}; rename one")
    for name in (time, *key):
        if name not in names:
            role = "time" if name == time else "key"
            raise DefinitionError(
                f"{what}: {role} names a column {name!r} that is not there; there are {', '.join(names)}"
            )
    if time != "event_time" and "event_time" in names:
        raise DefinitionError(
            f"{what}: the rows have a column event_time beside {time!r}, and the event time of events is called so; "
            'rename it, or say time="event_time"'
        )
    taken = sorted(RESERVED.intersection(names))
    if taken:
        raise DefinitionError(f"{what}: {taken[0]!r} is what reading the log calls a column of its own; rename it")
    arrived = schema.get_field_index("ingestion_time")
    if arrived >= 0 and not pa.types.is_timestamp(schema.field(arrived).type):
        raise DefinitionError(
            f"{what}: ingestion_time is when an event came, so it must be a timestamp, got "
            f"{schema.field(arrived).type}; rename the column"
        )
    _check_time(schema.field(time).type, time)
    known = ((field, _known(field.type)) for field in schema if field.name not in ENVELOPE_COLUMNS)
    return [field.with_type(kind) for field, kind in known if kind is not None]


def row_records(
    kind: RowType,
    batch: pa.RecordBatch,
    *,
    times: pa.Array,
    key: Sequence[str] = (),
    ingestion_time: pa.Array | Instant | None = None,
) -> pa.RecordBatch:
    """Make records from rows with event times; every column must have a field, or only nulls. A column `ingestion_time`
    takes precedence over the argument."""
    schema = kind.schema
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    names = [name for name in columns if name in schema.names]
    fields = [conform(columns[name], schema.field(name).type, where=name) for name in names]
    arrived = columns.get("ingestion_time")
    message = (
        pa.RecordBatch.from_arrays(fields, names=names)
        if names
        else pa.RecordBatch.from_struct_array(pa.StructArray.from_arrays([], fields=[], mask=_none(len(times))))
    )
    values = encode_columns(
        kind.name,
        message,
        event_time=times,
        ingestion_time=ingestion_time if arrived is None else conform(arrived, _INSTANT, where="ingestion_time"),
        registry=kind.registry,
    )
    keys = key_of([columns[name] for name in key]) if key else None
    return records(values, keys=keys, event_times=times, type=kind.name)


def key_of(columns: Sequence[pa.Array]) -> pa.Array:
    """The key that columns make: joined by a slash, bytes as they are and all else as text; nulls are empty.

    >>> key_of([pa.array(["anna", None]), pa.array([7, 8])]).to_pylist()
    [b'anna/7', b'/8']
    """
    return pc.binary_join_element_wise(*map(_key_part, columns), b"/")


def event_times(column: pa.Array, *, name: str) -> pa.Array:
    """The event times in a column: timestamps (without a zone: UTC), or text and numbers as `time_of` takes them."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    _check_time(kind, name)
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise DefinitionError(
            f"the time {name!r} of {column.null_count} rows is missing, as of row {row}; leave such rows out"
        )
    if pa.types.is_timestamp(kind):
        found = conform(column, _INSTANT, where=name)
    else:
        values = column.to_pylist()
        try:
            found = pa.array([time_of(value) for value in values], pa.int64())
        except ValueError as error:
            raise DefinitionError(f"the time {name!r}: {error}") from None
        if not _is_text(kind) and len({_unit(value) for value in values}) > 1:
            raise DefinitionError(f"the time {name!r}: some numbers look like one unit and some like another; cast it")
        found = found.cast(_INSTANT)
    numbers = found.cast(pa.int64())
    if len(numbers) and not EARLIEST <= pc.min(numbers).as_py() <= pc.max(numbers).as_py() <= LATEST:
        raise DefinitionError(f"the time {name!r} must lie between the years 1 and 9999")
    return found


def time_of(value: object) -> Instant:
    """Parse an unambiguous instant from text or a number: ISO text with a zone, or seconds, milliseconds, microseconds
    or nanoseconds since 1970 between 2001 and 2286. Anything else is a `ValueError` with the reason.

    >>> time_of("2026-01-31T12:00:00+01:00") == time_of(1769857200) == time_of(1769857200_000) == time_of(1769857200.0)
    True
    >>> time_of("2026-01-31T12:00:00")
    Traceback (most recent call last):
    ...
    ValueError: '2026-01-31T12:00:00' names no time zone; add Z for UTC, or like +02:00
    """
    if isinstance(value, str):
        try:
            found = instant(value)
        except (DefinitionError, OverflowError):
            raise ValueError(f"{value!r:.100} is no ISO text like 2026-01-31T12:00:00Z") from None
        if not _ZONE.search(value.strip()):
            raise ValueError(f"{value!r:.100} names no time zone; add Z for UTC, or like +02:00")
        return found
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        unit = _unit(value)
        if unit is None:
            raise ValueError(
                f"{value!r:.100} could be of several units; a number must be seconds, milliseconds, microseconds or "
                "nanoseconds since 1970, between 2001 and 2286"
            )
        return round(value * unit) if unit else int(value) // 1_000
    raise ValueError(f"a time is ISO text or a number, got {value!r:.100}")


def conform(column: pa.Array, wanted: pa.DataType, *, where: str) -> pa.Array:
    """Convert a column to the type of its field. Missing fields of a struct become null; a null list becomes empty,
    since a message cannot distinguish them."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == wanted and not pa.types.is_nested(wanted):
        return column
    try:
        if pa.types.is_struct(wanted):
            return _conform_struct(column, wanted, where)
        if pa.types.is_list(wanted):
            return _conform_list(column, wanted, where)
        # Microseconds are what the system keeps: what is finer is cut off.
        return column.cast(wanted, safe=not pa.types.is_timestamp(wanted) and not pa.types.is_duration(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise DefinitionError(f"column {where!r} must be {wanted}, got {column.type}: {error}") from None


def _conform_struct(column: pa.Array, wanted: pa.StructType, where: str) -> pa.Array:
    if pa.types.is_null(column.type):
        column = pa.nulls(len(column), pa.struct([]))
    names = [field.name for field in column.type]
    children = []
    for field in wanted:
        child = (
            pc.struct_field(column, names.index(field.name))
            if field.name in names
            else pa.nulls(len(column), pa.null())
        )
        children.append(conform(child, field.type, where=f"{where}.{field.name}"))
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=column.is_null())


def _conform_list(column: pa.Array, wanted: pa.ListType, where: str) -> pa.Array:
    if pa.types.is_null(column.type):
        column = pa.nulls(len(column), pa.list_(pa.null()))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    offsets = [0]
    for length in lengths:
        offsets.append(offsets[-1] + length)
    items = column.flatten()
    if items.null_count:
        raise DefinitionError(
            f"column {where!r} has lists with nulls in them, which a message cannot hold; leave them out"
        )
    values = conform(items, wanted.value_type, where=where)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=wanted)


def _column(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise DefinitionError(f"append_rows: the column {name!r} has values of several types: {error}") from None


def _check_time(kind: pa.DataType, name: str) -> None:
    """Refuse a type that cannot be an event time."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not (pa.types.is_timestamp(kind) or pa.types.is_null(kind) or number or _is_text(kind)):
        raise DefinitionError(f"the time {name!r} must be a timestamp, got {kind}; cast the column")


def _known(kind: pa.DataType) -> pa.DataType | None:
    """The type as far as it is known: a column of nulls has none, and categories have the type of their values."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = _known(kind.value_type)
        return None if items is None else pa.list_(items)
    if pa.types.is_struct(kind):
        fields = ((field.name, _known(field.type)) for field in kind)
        return pa.struct([pa.field(name, of) for name, of in fields if of is not None]) or None
    return None if pa.types.is_null(kind) else kind


def _key_part(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    try:
        part = column if is_bytes else column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DefinitionError(f"a column of type {column.type} cannot be a part of the key") from None
    return pc.fill_null(part.cast(pa.binary()), b"")


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"


def _unit(value: float) -> int | None:
    """Microseconds in the unit that a number since 1970 must be of; 0 for nanoseconds."""
    return next((unit for least, unit in _UNITS.items() if least <= value < 10 * least), None)


def _none(count: int) -> pa.Array:
    return pa.array([False] * count, pa.bool_())
