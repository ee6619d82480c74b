"""A flow: what happens to the rows of one input, from preparing them to the last stage that keeps state. Plain values,
no Spark: the same flow runs in a test, inside the log's reader, and in Spark's workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from tidewheel.engine.checkpoint.definition import described
from tidewheel.engine.operators.operator import Operation, Schema, SideInput, StageOperator
from tidewheel.engine.runtime.row_op import RowOp
from tidewheel.model.columns import ALL, TIME
from tidewheel.model.time import Duration

__all__ = ["Flow", "Stage", "needed", "prepared", "timed"]


@dataclass(frozen=True)
class Stage:
    """One step of a flow: rows are prepared, keyed, and handed to an operator."""

    ops: tuple[RowOp, ...]
    keys: tuple[str, ...]
    operation: Operation
    schema: Mapping[str, pl.DataType]
    time: str = "event_time"

    @property
    def by(self) -> tuple[str, ...]:
        """The key columns in the frames; a stream without keys has a constant one."""
        return self.keys or (ALL,)

    @property
    def others(self) -> tuple[str, ...]:
        """The names of its outputs besides results and late rows."""
        return self.operation.others

    def outputs(self) -> dict[str, Schema]:
        """The columns of its outputs, `results` first, without those of late rows."""
        return self.operation.outputs(self)

    def operator(self) -> StageOperator:
        """Make its operator."""
        return self.operation.operator(self)


def needed(stage: Stage) -> frozenset[str] | None:
    """The columns of the input that its results depend on; None if that is not known, or all of them."""
    names: set[str] = set()
    for op in stage.ops:
        for expr in op.exprs:
            if not isinstance(expr, pl.Expr) or expr.meta.has_multiple_outputs():
                return None
            names.update(expr.meta.root_names())
        if op.selects:  # there is nothing else from here on
            return frozenset(names)
    asked = stage.operation.needed(stage)
    return None if asked is None else frozenset({*names, *asked, *stage.keys, stage.time})


def prepared(stage: Stage, frame: pl.DataFrame, skipped: Counter[str] | None = None) -> pl.DataFrame:
    """Prepare rows for the stage's operator: columns added and dropped, keys, and the time in µs. The numbers of
    skipped rows are added to `skipped`, by reason."""
    for op in stage.ops:
        before = frame.height
        frame = op.apply(frame)
        if skipped is not None and op.skipped_as is not None and frame.height < before:
            skipped[op.skipped_as] += before - frame.height
    return timed(stage, frame)


def timed(stage: Stage, frame: pl.DataFrame) -> pl.DataFrame:
    """Add keys and the time in µs to rows that are prepared otherwise."""
    made = [pl.col(stage.time).cast(pl.Datetime("us", "UTC")).cast(pl.Int64).alias(TIME)]
    if not stage.keys:
        made.append(pl.lit(0, pl.Int8).alias(ALL))
    return frame.with_columns(made)


@dataclass(frozen=True)
class Flow:
    """A named chain of stages over the topics that it reads."""

    name: str
    topics: tuple[str, ...]
    stages: tuple[Stage, ...]
    future: Duration | None = None
    after: tuple[RowOp, ...] = ()
    """The steps that are applied to each result of the last stage."""

    @property
    def keeps_state(self) -> bool:
        """Whether a stage keeps state from one batch to the next."""
        return any(stage.operation.keeps_state for stage in self.stages)

    @property
    def side_inputs(self) -> dict[int, SideInput]:
        """The side inputs of the stages, by their depth."""
        inputs = ((depth, stage.operation.side_input) for depth, stage in enumerate(self.stages))
        return {depth: found for depth, found in inputs if found is not None}

    def output(self, depth: int, name: str) -> str:
        """The name of an output of a stage: its own name, with a number if an earlier stage has one of that name."""
        taken = any(name in stage.others for stage in self.stages[:depth])
        return f"{name}_{depth + 1}" if taken else name

    @property
    def waits_for_clock(self) -> bool:
        """Whether it must be called as time goes by, although no rows come: triggers and timers in processing time."""
        return any(stage.operation.waits_for_clock for stage in self.stages)

    def definition(self) -> Mapping[str, Any]:
        """The part that must not change while there is state: stored in the checkpoint and compared."""
        return {
            "topics": list(self.topics),
            "state": self.keeps_state,
            "stages": [
                {"ops": described(stage.ops), "keys": list(stage.keys), "what": stage.operation.definition()}
                for stage in self.stages
            ],
            **({"after": described(self.after)} if self.after else {}),
        }
