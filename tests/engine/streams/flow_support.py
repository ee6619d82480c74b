"""Whole flows in this process: positions go in, and every output comes out."""

from __future__ import annotations

import polars as pl

from tidewheel.engine.operators.operator import BatchTime
from tidewheel.engine.runtime.exchange import Partitioner, Rows
from tidewheel.engine.runtime.stage_runner import StatefulStage
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries

S = 1_000_000


def outputs_of(result, frames, watermarks):
    """The rows of each output, from frames in batches with these watermarks after them."""
    flow = result.named("job").flow()
    depth = len(flow.stages)
    stateful_stages = [StatefulStage([flow], level, 1, last=level + 1 == depth) for level in range(depth)]
    states = [MemoryEntries() for _ in stateful_stages]
    partitioner, before = Partitioner([flow], 1), None
    found: dict[str, list[pl.DataFrame]] = {}
    for frame, watermark in zip(frames, watermarks, strict=True):
        exchange_batches: dict = {}
        batch_time = BatchTime(before, watermark, 0)
        partitioner.partition(exchange_batches, "job", [Rows(frame)], before)
        for stateful_stage, entries in zip(stateful_stages, states, strict=True):
            state = KeyGroupState(entries)
            out, exchange_batches = stateful_stage.step(
                state, 0, [exchange_batch.to_bytes() for exchange_batch in exchange_batches.values()], batch_time
            )
            state.save()
        for _, output, rows in out:
            found.setdefault(output, []).append(rows)
        before = watermark
    return {output: pl.concat(frames, how="diagonal") for output, frames in found.items()}


def positions(result, *rows):
    """Frames with all columns of the input, of rows (second, vehicle, speed)."""
    schema = result.input.schema()
    given = pl.DataFrame(rows, schema={"event_time": pl.Int64, "vehicle": pl.Int32, "speed": pl.Float32}, orient="row")
    given = given.with_columns((pl.col("event_time") * S).cast(pl.Datetime("us", "UTC")))
    return given.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in given.columns
    )
