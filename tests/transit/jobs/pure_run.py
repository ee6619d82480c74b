"""Results without Spark: the operators of all their stages, in this process, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from tidewheel.engine.operators.operator import BatchTime
from tidewheel.engine.runtime.exchange import ExchangeBatch, Partitioner, Rows
from tidewheel.engine.runtime.stage_runner import StatefulStage
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries
from tidewheel.engine.streams.result import Result
from tidewheel.model.panes import END_OF_TIME

Outputs = dict[str, pl.DataFrame]


@dataclass
class PureRun:
    """One result, fed with batches; `outputs` has all that came out of each output, in its order."""

    result: Result
    key_groups: int = 2
    watermark: int | None = None
    frames: dict[str, list[pl.DataFrame]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flow = self.result.flow()
        depth = len(self.flow.stages)
        self.partitioner = Partitioner([self.flow], self.key_groups)
        self.stateful_stages = [
            StatefulStage([self.flow], level, self.key_groups, last=level + 1 == depth) for level in range(depth)
        ]
        self.states = [[MemoryEntries() for _ in range(self.key_groups)] for _ in range(depth)]

    def step(self, rows: pl.DataFrame, watermark: int | None, clock: int = 0) -> None:
        """A batch: rows judged by the watermark before it, and the watermark that it moves to."""
        before = self.watermark
        self.watermark = max((mark for mark in (before, watermark) if mark is not None), default=None)
        batch_time = BatchTime(before, self.watermark, clock)
        exchange_batches: dict[int, ExchangeBatch] = {}
        self.partitioner.partition(exchange_batches, self.flow.name, [Rows(rows)], before)
        here = {key_group: [exchange_batch.to_bytes()] for key_group, exchange_batch in exchange_batches.items()}
        for stateful_stage, entries in zip(self.stateful_stages, self.states, strict=True):
            onward: dict[int, list[bytes]] = {}
            for key_group in range(self.key_groups):
                state = KeyGroupState(entries[key_group])
                out, forward = stateful_stage.step(state, key_group, here.get(key_group, []), batch_time)
                state.save()
                for _, output, frame in out:
                    self.frames.setdefault(output, []).append(frame)
                for to, exchange_batch in forward.items():
                    onward.setdefault(to, []).append(exchange_batch.to_bytes())
            here = onward

    def end(self) -> None:
        """The input has ended."""
        self.step(pl.DataFrame(schema=self.result.input.schema()), END_OF_TIME)

    @property
    def outputs(self) -> Outputs:
        return {output: pl.concat(frames) for output, frames in self.frames.items()}


def run_pure(result: Result, batches: Sequence[tuple[pl.DataFrame, int | None]], *, ended: bool = True) -> Outputs:
    """All that comes out of these batches of rows, each with the watermark that it moves to."""
    running = PureRun(result)
    for number, (rows, watermark) in enumerate(batches):
        running.step(rows, watermark, clock=number * 1_000_000)
    if ended:
        running.end()
    return running.outputs
