"""The outputs of a result as columns of a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidewheel.engine.operators.lateness import LATE_BY, REASON
from tidewheel.engine.operators.operator import RESULTS
from tidewheel.engine.runtime.exchange import ExchangeBatch
from tidewheel.engine.spark.arrow_schema import arrow_schema, spark_schema, to_spark
from tidewheel.errors import DefinitionError

__all__ = ["BATCH_ID", "OUTPUT", "OutputColumns", "as_columns", "check_output"]

OUTPUT = "output"
"""The column that names the output of each row, where there are several."""
BATCH_ID = "batch_id"
"""The column with the number of the micro-batch, as Spark counts them."""


def check_output(what: str, name: str, known: Sequence[str]) -> None:
    """Refuse the name of an output that does not exist."""
    if name not in known:
        raise DefinitionError(f"{what}: there is no output {name!r}; there are {', '.join(known)}")


@dataclass(frozen=True)
class OutputColumns:
    """Which columns a DataFrame of outputs has: those of the output `plain` by themselves, those of every other output
    in a struct of its name.

    >>> schemas = {"results": pa.schema({"n": pa.int64()}), "late": pa.schema({"v": pa.int64()})}
    >>> OutputColumns.of(schemas).schema.names
    ['output', 'batch_id', 'n', 'late']
    >>> OutputColumns.of(schemas, "late").schema.names
    ['v', 'batch_id']
    >>> OutputColumns.of(schemas, ["results", "late"]).schema.names
    ['output', 'batch_id', 'results', 'late']
    """

    schemas: Mapping[str, pa.Schema]
    plain: str | None
    numbered: bool = True
    """Whether input comes in micro-batches, which have numbers. Otherwise the number is null."""

    @classmethod
    def of(cls, schemas: Mapping[str, pa.Schema], outputs: str | Sequence[str] | None = None) -> OutputColumns:
        """The columns of all outputs, with those of the results plain; of one output alone; or of some, each in a
        struct."""
        known = list(schemas)
        if outputs is None:
            made = cls({name: _storable(schema) for name, schema in schemas.items()}, RESULTS)
        elif isinstance(outputs, str):
            check_output("df", outputs, known)
            made = cls({outputs: _storable(schemas[outputs])}, outputs)
        else:
            made = cls({name: _storable(schemas[name]) for name in outputs}, None)
        made._check_names()
        return made

    def static(self) -> OutputColumns:
        """The same for input that does not come in micro-batches."""
        return replace(self, numbered=False)

    @property
    def schema(self) -> pa.Schema:
        plain = [] if self.plain is None else list(self.schemas[self.plain])
        number = pa.field(BATCH_ID, pa.int64())
        if self._alone:
            return pa.schema([*plain, number])
        structs = [pa.field(name, pa.struct(list(of))) for name, of in self.schemas.items() if name != self.plain]
        return pa.schema([pa.field(OUTPUT, pa.string()), number, *plain, *structs])

    def rows(self, output: str, frame: pl.DataFrame) -> pa.RecordBatch:
        """The rows of an output, in the columns as Spark takes them."""
        exact = self._exact
        found = _arrow(_in_seconds(frame))
        if output != self.plain:
            kind = exact.field(output).type
            inner = to_spark(found, pa.schema(list(kind)))
            found = pa.RecordBatch.from_arrays(
                [pa.StructArray.from_arrays(inner.columns, fields=list(kind))], names=[output]
            )
        if not self._alone:
            found = found.append_column(OUTPUT, pa.repeat(output, found.num_rows))
        number = _micro_batch() if self.numbered else None
        found = found.append_column(BATCH_ID, pa.repeat(pa.scalar(number, pa.int64()), found.num_rows))
        return to_spark(found, exact)

    @cached_property
    def _exact(self) -> pa.Schema:
        return arrow_schema(spark_schema(self.schema))

    @property
    def _alone(self) -> bool:
        return self.plain is not None and len(self.schemas) == 1

    def _check_names(self) -> None:
        """Refuse a user's column that is called like one of ours, or like an output beside it."""
        plain = [] if self.plain is None else self.schemas[self.plain].names
        shown = list(self.schemas) if self.plain is None else [self.plain]
        numbered = [name for name in shown if BATCH_ID in self.schemas[name].names]
        if numbered:
            raise DefinitionError(
                f"the output {numbered[0]!r} has a column {BATCH_ID!r}, and a DataFrame of it gets one of that name, "
                "with the number of the micro-batch; rename yours, or drop it before"
            )
        if self._alone:
            return
        twice = [name for name in plain if name == OUTPUT or (name in self.schemas and name != self.plain)]
        if twice:
            raise DefinitionError(
                f"df: the results have a column {twice[0]!r}, and so has an output; rename it with select"
            )


def _storable(schema: pa.Schema) -> pa.Schema:
    """Convert how late a row was to seconds: Delta and other tables have no type for Spark's intervals."""
    if REASON not in schema.names or LATE_BY not in schema.names:
        return schema
    place = schema.get_field_index(LATE_BY)
    return schema.set(place, pa.field(LATE_BY, pa.float64())) if pa.types.is_duration(schema.types[place]) else schema


def _in_seconds(frame: pl.DataFrame) -> pl.DataFrame:
    if REASON not in frame.columns or not isinstance(frame.schema.get(LATE_BY), pl.Duration):
        return frame
    return frame.with_columns(pl.col(LATE_BY).dt.total_microseconds() / 1_000_000)


def _micro_batch() -> int | None:
    """The number of the micro-batch that this task is of; None outside streaming queries."""
    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    return int(number) if number else None


def _arrow(frame: pl.DataFrame) -> pa.RecordBatch:
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


def as_columns(exchange_batches: DataFrame, flow: str, outputs: OutputColumns) -> DataFrame:
    """The outputs of a flow in exchange batches, as plain columns."""

    def columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column("batch_bytes").to_pylist():
                for name, output, frame in ExchangeBatch.outputs(data):
                    if name == flow and output in outputs.schemas:
                        yield outputs.rows(output, frame)

    return exchange_batches.mapInArrow(columns, spark_schema(outputs.schema))
