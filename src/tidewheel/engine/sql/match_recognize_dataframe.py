"""The rows that a MATCH_RECOGNIZE clause gives over a DataFrame, as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import cast

import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from tidewheel.engine.execution.dataframe.output import as_dataframe
from tidewheel.engine.execution.input import DataFrameInput, polars_schema
from tidewheel.engine.operators.operator import LATE, RESULTS
from tidewheel.engine.operators.patterns.match_recognize import MatchRecognize, time_of
from tidewheel.engine.operators.patterns.recognizer import DROPPED
from tidewheel.engine.runtime.flow import Stage
from tidewheel.engine.spark.arrow_schema import arrow_schema, in_utc, spark_schema, to_spark
from tidewheel.engine.spark.worker import warm_worker
from tidewheel.engine.streams.result import Result, arrow_of, result_schema
from tidewheel.errors import DefinitionError, StatementError
from tidewheel.match_recognize.matching.matcher import ClauseMatcher
from tidewheel.match_recognize.syntax.clause import Clause
from tidewheel.model.key_hash import key_hash
from tidewheel.model.watermarks import Strategy

__all__ = ["check_keys", "recognized_rows"]

_numbers = count(1)


def recognized_rows(frame: DataFrame, clause: Clause, *, watermark: Strategy | None, limit: int) -> DataFrame:
    """The rows that the clause gives."""
    matcher = _matcher(frame, clause)
    if not matcher.schema:
        start, end = clause.span
        raise StatementError(
            "the clause gives no column; name some in MEASURES or PARTITION BY", text=clause.text, start=start, end=end
        )
    # What is not asked for is not even read.
    needed = frame.select(*(_column(name) for name in matcher.columns))
    if frame.isStreaming:
        return _of_stream(needed, frame.schema, clause, watermark, limit)
    return _of_table(needed, _matcher(needed, clause), _result_type(frame.schema, matcher))


def _matcher(frame: DataFrame, clause: Clause) -> ClauseMatcher:
    names = [name.lower() for name in frame.columns]
    twice = [name for name in frame.columns if names.count(name.lower()) > 1]
    if twice:
        raise DefinitionError(
            f"what MATCH_RECOGNIZE reads has two columns {twice[0]}; name its columns in a sub-select, with AS"
        )
    return ClauseMatcher(clause, polars_schema(arrow_schema(frame.schema)))


def _column(name: str) -> Column:
    return f.col("`" + name.replace("`", "``") + "`")


def _result_type(given: StructType, matcher: ClauseMatcher) -> StructType:
    """The columns of the result: those of the input as they are, the measures as Spark calls their types."""
    own = {field.name: field.dataType for field in given}
    made = spark_schema(arrow_of(matcher.schema))
    source = matcher.sources
    return StructType([StructField(one.name, own.get(source.get(one.name, ""), one.dataType)) for one in made])


def _of_table(frame: DataFrame, matcher: ClauseMatcher, target: StructType) -> DataFrame:
    """Match in each Spark partition, all partitions of the clause in it at once; without PARTITION BY there is one."""
    keys = [_column(name) for name in matcher.partition_by]
    partitioned = frame.repartition(*keys) if keys else frame.repartition(1)

    def in_spark_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        warm_worker()
        frames = [cast(pl.DataFrame, pl.from_arrow(in_utc(batch))) for batch in batches if batch.num_rows]
        if not frames:
            return
        rows = matcher.run(pl.concat(frames))
        exact = arrow_schema(target)
        for batch in rows.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches(max_chunksize=_CHUNK):
            yield to_spark(batch, exact)

    return partitioned.mapInArrow(in_spark_partition, target)


_CHUNK = 100_000


def _of_stream(
    frame: DataFrame, whole: StructType, clause: Clause, watermark: Strategy | None, limit: int
) -> DataFrame:
    """Through the engine, under names that no output has; what is late or given up is counted in the progress."""
    schema = polars_schema(arrow_schema(frame.schema))
    time = time_of(clause, schema)
    if hidden := [name for name in schema if name.startswith("__")]:
        raise DefinitionError(f"the column {hidden[0]!r}: names that begin with __ are kept for Tidewheel; rename it")
    matcher = ClauseMatcher(clause, schema)
    names = matcher.schema.names()
    select = tuple((name, f"c{place}") for place, name in enumerate(names))
    given = DataFrameInput.of(frame, time=time, watermark=watermark)
    operation = MatchRecognize(clause, schema, select, limit)
    check_keys(clause, matcher, schema)
    stage = Stage((), tuple(matcher.partition_by), operation, schema, time)
    result = Result(given, (stage,), (), result_schema(stage))
    counts = {
        "results": f.count_if(f.col("output") == RESULTS),
        LATE: f.count_if(f.col("output") == LATE),
        DROPPED: f.coalesce(f.sum(f.col(DROPPED)["dropped_rows"]), f.lit(0)),
    }
    outputs = as_dataframe(result, None, key_groups=None).observe(
        f"match_recognize_{next(_numbers)}", *(value.alias(name) for name, value in counts.items())
    )
    target = _result_type(whole, matcher)
    chosen = [f.col(own).cast(field.dataType).alias(field.name) for (_, own), field in zip(select, target, strict=True)]
    return outputs.where(f.col("output") == RESULTS).select(*chosen)


def check_keys(clause: Clause, matcher: ClauseMatcher, schema: dict[str, pl.DataType]) -> None:
    """Refuse columns in PARTITION BY that cannot be hashed."""
    for column, name in zip(clause.partition_by, matcher.partition_by, strict=True):
        try:
            key_hash(pl.DataFrame(schema=schema), [name])
        except DefinitionError as error:
            start, end = column.span
            raise StatementError(f"PARTITION BY: {error}", text=clause.text, start=start, end=end) from None
