"""Whole flows in this process: positions go in, and every output comes out."""

from __future__ import annotations

import polars as pl

from tidewheel.engine.bucket_store import BucketState, MemoryEntries
from tidewheel.engine.halves import Dealer, Rows, SecondHalf
from tidewheel.engine.operator import Tick

S = 1_000_000


def outputs_of(result, frames, watermarks):
    """The rows of each output, from frames in batches with these watermarks after them."""
    flow = result.named("job").flow()
    depth = len(flow.stages)
    halves = [SecondHalf([flow], level, 1, last=level + 1 == depth) for level in range(depth)]
    states = [MemoryEntries() for _ in halves]
    dealer, before = Dealer([flow], 1), None
    found: dict[str, list[pl.DataFrame]] = {}
    for frame, watermark in zip(frames, watermarks, strict=True):
        parcels: dict = {}
        tick = Tick(before, watermark, 0)
        dealer.deal(parcels, "job", [Rows(frame)], before)
        for half, entries in zip(halves, states, strict=True):
            state = BucketState(entries)
            out, parcels = half.step(state, 0, [parcel.to_bytes() for parcel in parcels.values()], tick)
            state.save()
        for _, port, rows in out:
            found.setdefault(port, []).append(rows)
        before = watermark
    return {port: pl.concat(frames, how="diagonal") for port, frames in found.items()}


def positions(result, *rows):
    """Frames with all columns of the input, of rows (second, vehicle, speed)."""
    schema = result.input.schema()
    given = pl.DataFrame(rows, schema={"event_time": pl.Int64, "vehicle": pl.Int32, "speed": pl.Float32}, orient="row")
    given = given.with_columns((pl.col("event_time") * S).cast(pl.Datetime("us", "UTC")))
    return given.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in given.columns
    )
