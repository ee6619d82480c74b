"""Arrow columns as Spark's types: it has no unsigned numbers, and all columns may be null."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["arrow_schema", "in_utc", "spark_schema", "to_spark"]


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of Arrow columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema([pa.field(field.name, _signed(field.type)) for field in schema]))


def arrow_schema(schema: StructType) -> pa.Schema:
    """The exact Arrow schema that Spark expects of such rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same instants in UTC. Spark hands rows over in the time zone of its session; neither rows that wait in the
    state nor expressions over hours may depend on that.

    >>> noon = pa.array([43_200_000_000], pa.timestamp("us", "Europe/Berlin"))
    >>> in_utc(pa.RecordBatch.from_arrays([noon], names=["at"])).schema.field("at").type
    TimestampType(timestamp[us, tz=UTC])
    """
    schema = pa.schema([field.with_type(_with_utc(field.type)) for field in batch.schema])
    return batch if schema.equals(batch.schema) else to_spark(batch, schema)


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, by name and in its exact types; those that the batch lacks are null."""
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            column = batch.column(index)
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_utc(kind: pa.DataType) -> pa.DataType:
    """The type with all instants in UTC."""
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_utc(kind.key_type), kind.item_field.with_type(_with_utc(kind.item_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_with_utc(kind.value_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_utc(kind.value_type)))
    return kind


def _signed(kind: pa.DataType) -> pa.DataType:
    """The type with unsigned numbers as the next larger signed ones, and without nanoseconds."""
    if pa.types.is_uint32(kind):
        return pa.int64()
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _signed(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_signed(kind.key_type), _signed(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_signed(kind.value_type))
    return kind
