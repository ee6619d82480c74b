"""Results without Spark: the operators of all their stages, in this process, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from tidewheel.engine.bucket_store import BucketState, MemoryEntries
from tidewheel.engine.halves import Dealer, Parcel, Rows, SecondHalf
from tidewheel.engine.operator import Tick
from tidewheel.engine.result import Result
from tidewheel.model.panes import END_OF_TIME

Outputs = dict[str, pl.DataFrame]


@dataclass
class PureRun:
    """One result, fed with batches; `outputs` has all that came out of each output, in its order."""

    result: Result
    buckets: int = 2
    watermark: int | None = None
    frames: dict[str, list[pl.DataFrame]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flow = self.result.flow()
        depth = len(self.flow.stages)
        self.dealer = Dealer([self.flow], self.buckets)
        self.halves = [SecondHalf([self.flow], level, self.buckets, last=level + 1 == depth) for level in range(depth)]
        self.states = [[MemoryEntries() for _ in range(self.buckets)] for _ in range(depth)]

    def step(self, rows: pl.DataFrame, watermark: int | None, clock: int = 0) -> None:
        """A batch: rows judged by the watermark before it, and the watermark that it moves to."""
        before = self.watermark
        self.watermark = max((mark for mark in (before, watermark) if mark is not None), default=None)
        tick = Tick(before, self.watermark, clock)
        parcels: dict[int, Parcel] = {}
        self.dealer.deal(parcels, self.flow.name, [Rows(rows)], before)
        here = {bucket: [parcel.to_bytes()] for bucket, parcel in parcels.items()}
        for half, entries in zip(self.halves, self.states, strict=True):
            onward: dict[int, list[bytes]] = {}
            for bucket in range(self.buckets):
                state = BucketState(entries[bucket])
                out, forward = half.step(state, bucket, here.get(bucket, []), tick)
                state.save()
                for _, port, frame in out:
                    self.frames.setdefault(port, []).append(frame)
                for to, parcel in forward.items():
                    onward.setdefault(to, []).append(parcel.to_bytes())
            here = onward

    def end(self) -> None:
        """The input has ended."""
        self.step(pl.DataFrame(schema=self.result.input.schema()), END_OF_TIME)

    @property
    def outputs(self) -> Outputs:
        return {port: pl.concat(frames) for port, frames in self.frames.items()}


def run_pure(result: Result, batches: Sequence[tuple[pl.DataFrame, int | None]], *, ended: bool = True) -> Outputs:
    """All that comes out of these batches of rows, each with the watermark that it moves to."""
    running = PureRun(result)
    for number, (rows, watermark) in enumerate(batches):
        running.step(rows, watermark, clock=number * 1_000_000)
    if ended:
        running.end()
    return running.outputs
