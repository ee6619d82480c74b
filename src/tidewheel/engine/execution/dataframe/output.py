"""Results as DataFrames, and as streaming queries with a sink for each output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import cast

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidewheel.engine.execution.computation import Computation, state_fingerprint_of
from tidewheel.engine.execution.dataframe.batch_sinks import BatchSinks, Sink
from tidewheel.engine.execution.dataframe.batches import dataframe_batches, with_ticks
from tidewheel.engine.execution.dataframe.output_columns import OutputColumns, as_columns
from tidewheel.engine.execution.dataframe.watermark import INHERITED_HOLD, behind, carrying, hold
from tidewheel.engine.execution.input import DataFrameInput, LogInput
from tidewheel.engine.execution.log_reader import from_log
from tidewheel.engine.execution.session import check_reach, session
from tidewheel.engine.execution.state_operator import in_memory, with_state
from tidewheel.engine.execution.state_settings import (
    check_state_store,
    key_group_count,
    partition_each_key_group,
    warn_of_empty_partitions,
)
from tidewheel.engine.execution.worker_python import check_workers
from tidewheel.engine.operators.operator import RESULTS
from tidewheel.engine.runtime.flow import Flow, prepared
from tidewheel.engine.spark.worker import CachedClosure
from tidewheel.errors import DefinitionError
from tidewheel.model.columns import TIME
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME
from tidewheel.model.time import Duration, Instant, duration, now
from tidewheel.model.watermarks import Bounded, Inherited

__all__ = ["HighestTime", "as_dataframe", "write_stream"]


def as_dataframe(
    result: Computation,
    spark: SparkSession | None,
    *,
    key_groups: int | None,
    outputs: str | Sequence[str] | None = None,
) -> DataFrame:
    """The outputs of a result as a DataFrame: all of them, one alone, or some, each in a struct."""
    flow = result.flow()
    source = result.input
    shown = OutputColumns.of(result.schemas(), outputs)
    if isinstance(source, LogInput):
        spark = session(spark)
        check_reach(spark, source.log)
        check_workers(spark)
        check_state_store(spark)
        number = key_group_count(spark, key_groups)
        warn_of_empty_partitions(spark, number, key_groups)
        exchange_batches = from_log(spark, [result], [result], number, {})
        return as_columns(
            with_state(exchange_batches, [flow], number, state_fingerprint=state_fingerprint_of(result, number)),
            flow.name,
            shown,
        )
    check_workers(source.spark)
    number = key_group_count(source.spark, key_groups)
    if not source.frame.isStreaming:
        exchange_batches = dataframe_batches(
            source.frame, [flow], number, clock=now(), ended=True, marked=lambda rows: None
        )
        return as_columns(in_memory(exchange_batches, [flow], number), flow.name, shown.static())
    check_state_store(source.spark)
    warn_of_empty_partitions(source.spark, number, key_groups)
    return _streaming(result, source, number, shown)


def _streaming(result: Computation, source: DataFrameInput, key_groups: int, shown: OutputColumns) -> DataFrame:
    """The outputs of a result over a streaming DataFrame, by the watermark that it has or gets."""
    flow = result.flow()
    late = behind(flow)
    watermark = source.watermark
    if isinstance(watermark, Inherited):
        exchange_batches = dataframe_batches(
            source.frame, [flow], key_groups, clock=0, ended=False, marked=lambda rows: None, hold=None
        ).drop("mark")
        delay, held = None, INHERITED_HOLD
        # Nothing can hold that watermark back. Results that may be behind it do not carry it: Spark's next operator
        # would drop them and say nothing; without it, Spark refuses such an operator.
        carried = 0 if late == 0 else None
    else:
        assert isinstance(watermark, Bounded)
        delay, held = watermark.delay, 0 if late is None else hold(late)
        marked = HighestTime(flow, watermark.future)
        rows = dataframe_batches(source.frame, [flow], key_groups, clock=0, ended=False, marked=marked, hold=held)
        exchange_batches = rows.withWatermark("mark", f"{delay + held} microseconds").drop("mark")
        carried = None if late is None else delay + held
    if flow.waits_for_clock:
        exchange_batches = with_ticks(exchange_batches, key_groups)
    state_fingerprint = state_fingerprint_of(result, key_groups)
    stateful = with_state(
        exchange_batches,
        [flow],
        key_groups,
        delay=delay,
        hold=held,
        inherited=delay is None,
        state_fingerprint=state_fingerprint,
    )
    columns = as_columns(stateful, flow.name, shown)
    # Of the other outputs, late rows above all are behind it.
    return columns if carried is None or shown.plain != RESULTS else carrying(columns, carried)


def write_stream(
    result: Computation,
    sinks: Mapping[str, Sink],
    *,
    checkpoint: str | Path,
    available_now: bool,
    trigger: str | timedelta | None,
    name: str | None,
    spark: SparkSession | None,
    key_groups: int | None,
) -> StreamingQuery:
    """Start one query that writes every output to a sink of its own."""
    if not isinstance(result.input, LogInput) and not result.input.frame.isStreaming:
        raise DefinitionError('writeStream: the DataFrame is not streaming; write it with df("results").write')
    if available_now and trigger is not None:
        raise DefinitionError("writeStream: give available_now or trigger, not both")
    written = BatchSinks.of(sinks, list(result.schemas()), str(checkpoint))
    owner = session(spark) if isinstance(result.input, LogInput) else result.input.spark
    with partition_each_key_group(owner, key_group_count(owner, key_groups)):
        frame = as_dataframe(result, owner, key_groups=key_groups, outputs=list(sinks))
        writer = frame.writeStream.foreachBatch(written).outputMode("append")
        writer = writer.option("checkpointLocation", str(checkpoint))
        if name is not None:
            writer = writer.queryName(name)
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            every = duration(trigger, what="trigger")
            writer = writer.trigger(processingTime=f"{max(every // 1_000, 1)} milliseconds")
        return writer.start()


class HighestTime(CachedClosure):
    """The highest event time of rows that are plausible: Spark's watermark follows it."""

    def __init__(self, flow: Flow, future: Duration | None) -> None:
        self._flow = flow
        self._future = future

    def __call__(self, rows: pl.DataFrame) -> Instant | None:
        """The highest event time of these rows; None if none is plausible."""
        times = prepared(self._flow.stages[0], rows)[TIME]
        limit = END_OF_TIME - 1 if self._future is None else now() + self._future
        return cast("Instant | None", times.filter((times >= START_OF_TIME) & (times <= limit)).max())
