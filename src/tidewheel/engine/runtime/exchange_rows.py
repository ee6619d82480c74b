"""Exchange batches as rows of Spark: what a shuffle by key group carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from tidewheel.engine.operators.operator import BatchTime
from tidewheel.engine.runtime.exchange import ExchangeBatch
from tidewheel.engine.runtime.exchange_parts import Clock, Output, Watermark
from tidewheel.engine.runtime.row_op import ARRIVAL
from tidewheel.engine.runtime.stage_runner import Flows, StatefulStage
from tidewheel.model.panes import END_OF_TIME

__all__ = [
    "ARRIVED",
    "FRAMES_PER_TASK",
    "EXCHANGE",
    "EXCHANGE_ARROW",
    "OUT",
    "OUT_ARROW",
    "exchange_rows",
    "packed_outputs",
    "watermarks_reached",
]

EXCHANGE = (
    "key_group INT, task INT, catch_up ARRAY<STRING>, watermark_before BIGINT, watermark BIGINT, clock BIGINT, "
    "batch_bytes BINARY"
)
"""What travels to the key groups: the time of the batch, and frames. `catch_up` names the flows that they are for; none
means all that are not catching up."""

EXCHANGE_ARROW = pa.schema(
    [
        ("key_group", pa.int32()),
        ("task", pa.int32()),
        ("catch_up", pa.list_(pa.field("element", pa.string()))),
        ("watermark_before", pa.int64()),
        ("watermark", pa.int64()),
        ("clock", pa.int64()),
        ("batch_bytes", pa.binary()),
    ]
)

OUT = "batch_bytes BINARY"
"""What comes out in the end."""

OUT_ARROW = pa.schema([("batch_bytes", pa.binary())])

ARRIVED = pl.col("_append_time").cast(pl.Int64).alias(ARRIVAL)
"""When a row of the log reached it."""
FRAMES_PER_TASK = 10_000
"""More than any task has: by task and number exchange batches keep their order."""


def exchange_rows(
    exchange_batches: Mapping[int, ExchangeBatch],
    ids: Sequence[int],
    task: int,
    batch_time: BatchTime,
    *,
    everyone: bool,
    catch_up: Sequence[str] = (),
) -> pa.RecordBatch:
    """Make a row for each key group with an exchange batch; for `everyone` also for those that get only the time."""
    numbers = range(len(ids)) if everyone else sorted(exchange_batches)
    empty = ExchangeBatch().to_bytes()
    rows = [
        {
            "key_group": ids[number],
            "task": task,
            "catch_up": list(catch_up),
            "watermark_before": batch_time.watermark_before,
            "watermark": batch_time.watermark,
            "clock": batch_time.clock,
            "batch_bytes": exchange_batches[number].to_bytes() if number in exchange_batches else empty,
        }
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, schema=EXCHANGE_ARROW)


def packed_outputs(
    out: Sequence[tuple[str, str, pl.DataFrame]], batch_time: BatchTime, watermarks: Sequence[Watermark] = ()
) -> bytes:
    """Pack the outputs of the last stage (flow, output, frame) into one value, with the clock of the batch and the
    watermarks that flows have reached in it."""
    exchange_batch = ExchangeBatch()
    exchange_batch.add(Clock(batch_time.clock))
    for watermark in watermarks:
        exchange_batch.add(watermark)
    for flow, output, frame in out:
        exchange_batch.add(Output(flow, output), frame)
    return exchange_batch.to_bytes()


def watermarks_reached(stateful_stage: StatefulStage, batch_time: BatchTime, flows: Flows | None) -> list[Watermark]:
    """The watermark of each flow, for readers of its results, if it has moved."""
    reached = batch_time.watermark
    if reached is None or reached in (batch_time.watermark_before, END_OF_TIME):
        return []
    return [Watermark(flow, reached) for flow in stateful_stage.flows if flows is None or flow in flows]
