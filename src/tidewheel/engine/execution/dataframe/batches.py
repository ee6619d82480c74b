"""Rows of any DataFrame as exchange batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame

from tidewheel.engine.datasource.clock_source import ticks
from tidewheel.engine.execution.dataframe.watermark_hint import expected
from tidewheel.engine.operators.operator import BatchTime
from tidewheel.engine.runtime.exchange import (
    ExchangeBatch,
    Partitioner,
    Rows,
)
from tidewheel.engine.runtime.exchange_rows import ARRIVED, EXCHANGE, EXCHANGE_ARROW, FRAMES_PER_TASK, exchange_rows
from tidewheel.engine.runtime.flow import Flow
from tidewheel.engine.runtime.key_groups import key_group_ids
from tidewheel.engine.runtime.row_op import ARRIVAL
from tidewheel.engine.spark.arrow_schema import in_utc, spark_schema
from tidewheel.engine.spark.worker import CachedClosure, warm_worker
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.time import Duration, Instant, now

__all__ = ["dataframe_batches", "with_ticks"]


def dataframe_batches(
    frame: DataFrame,
    flows: Sequence[Flow],
    key_groups: int,
    *,
    clock: Instant,
    ended: bool,
    marked: Callable[[pl.DataFrame], Instant | None],
    as_read: Mapping[str, pl.DataType] | None = None,
    hold: Duration | None = 0,
) -> DataFrame:
    """Partition rows of any DataFrame into exchange batches. For a stream with a column `mark`, the time from which
    Spark's watermark follows (`marked` finds it in a frame); with `ended`, the whole input, with the time of its end.
    By the clock of whoever reads a stream its rows are from the future or not. Rows that were once read from a log have
    the columns `as_read` again, and are late or not by when they reached it. The batches of a stream have the mark as
    their watermark, and as the one before it what Spark's watermark was expected to reach at most (see `expected`); it
    is `hold` behind ours, or (None) follows other rows, of which nothing is known."""
    partitioner = _RowPartitioner(flows, key_groups, watermark_known=ended)
    names = [flow.name for flow in flows]
    ids = key_group_ids(key_groups)
    schema = EXCHANGE_ARROW.append(pa.field("mark", pa.timestamp("us", "UTC")))
    arrival = ARRIVAL if as_read is not None or not ended else None

    def map_side(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        warm_worker()
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        reached = None if ended or hold is None else expected()
        bound = None if reached is None or hold is None else reached + hold
        first = True
        for number, batch in enumerate(batches):
            rows = cast(pl.DataFrame, pl.from_arrow(in_utc(batch)))
            if as_read is not None:
                rows = rows.cast(dict(as_read)).with_columns(ARRIVED)  # type: ignore[arg-type]
            elif not ended:
                rows = rows.with_columns(pl.lit(now(), pl.Int64).alias(ARRIVAL))
            exchange_batches: dict[int, ExchangeBatch] = {}
            for name in names:
                spare = (task + number) % key_groups
                partitioner.partition(
                    exchange_batches, name, [Rows(rows)], None, arrival=arrival, spare=spare, bound=bound
                )
            mark = marked(rows)
            batch_time = BatchTime(None, END_OF_TIME, clock) if ended else BatchTime(bound, mark, clock)
            # Every key group hears of the time, whatever it gets; and it gets what a task gives in its order.
            out = exchange_rows(
                exchange_batches, ids, task * FRAMES_PER_TASK + number, batch_time, everyone=first or not ended
            )
            yield out.append_column("mark", pa.repeat(pa.scalar(mark, pa.timestamp("us", "UTC")), out.num_rows))
            first = False
        if first and ended:
            out = exchange_rows({}, ids, task, BatchTime(None, END_OF_TIME, clock), everyone=True)
            yield out.append_column("mark", pa.nulls(out.num_rows, pa.timestamp("us", "UTC")))

    return frame.mapInArrow(map_side, spark_schema(schema))


def with_ticks(exchange_batches: DataFrame, key_groups: int) -> DataFrame:
    """Add to the batches of a stream every second one for each key group in which is nothing."""
    time_only = exchange_rows({}, key_group_ids(key_groups), 0, BatchTime(None, None, 0), everyone=True)
    return exchange_batches.union(ticks(exchange_batches.sparkSession, time_only, EXCHANGE))


class _RowPartitioner(CachedClosure, Partitioner):
    """A partitioner, as tasks that read rows take it along."""
