"""A flow: what happens to the rows of one input, from preparing them to the last stage that keeps state. Plain values,
no Spark: the same flow runs in a test, inside the log's reader, and in Spark's workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import polars as pl

from tidewheel.engine.counted import CountedOperator
from tidewheel.engine.definition import described
from tidewheel.engine.each_row import EachRow, EachRowOperator
from tidewheel.engine.looked_up import LookedUp, LookupOperator
from tidewheel.engine.match_book import BookMatch
from tidewheel.engine.matched import Matched
from tidewheel.engine.matching import BookOperator, MatchOperator
from tidewheel.engine.operator import Outputs, Store, Tick
from tidewheel.engine.partials import aggregates
from tidewheel.engine.process import ProcessOperator
from tidewheel.engine.repeats import RepeatsOperator
from tidewheel.engine.sliced import SlicedOperator, can_slice
from tidewheel.engine.trigger_columns import waits_for_clock
from tidewheel.engine.window_columns import ALL, TIME
from tidewheel.engine.windowed import WindowedOperator
from tidewheel.errors import JobError
from tidewheel.model.deduplicate import DUPLICATES
from tidewheel.model.process import Process
from tidewheel.model.repeats import Repeats
from tidewheel.model.time import Duration, Instant
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Count

__all__ = ["ARRIVAL", "Flow", "RowOp", "Stage", "StageOperator", "needed", "prepared", "timed"]

ARRIVAL = "_arrival"
"""The column with the time (µs) at which a row reached the log."""


@dataclass(frozen=True)
class RowOp:
    """Something done to each row by itself. `reason`: why rows are skipped, or must not be there at all; of rows that
    are set apart, the output that they go to."""

    kind: Literal["with_columns", "filter", "select", "skip", "apart", "refuse"]
    exprs: tuple[Any, ...]
    reason: str = ""

    def chosen(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that are set apart."""
        return frame.filter(expr.fill_null(False) for expr in self.exprs)

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Do it."""
        match self.kind:
            case "with_columns":
                return frame.with_columns(*self.exprs)
            case "filter":
                return frame.filter(*self.exprs)
            case "skip" | "apart":
                return frame.filter(~expr.fill_null(False) for expr in self.exprs)
            case "refuse":
                found = frame.filter(*self.exprs)
                if found.height:
                    raise JobError(f"{self.reason}. Got {found.row(0, named=True)}")
                return frame
            case _:
                # Nobody selects what the engine has put there: by it rows from the future are found.
                mine = [ARRIVAL] if ARRIVAL in frame.columns else []
                return frame.select(*self.exprs, *mine)

    def __repr__(self) -> str:
        name = f"{self.reason}=" if self.kind in ("skip", "apart") else ""
        return f"{self.kind}({name}{', '.join(map(str, self.exprs))})"


class StageOperator(Protocol):
    """An operator and the part of its work that needs no state."""

    takes_rows: bool
    late_by_slice: bool
    """Can be told of what `first_half` makes of rows, from its slice of time, whether they were too late?"""

    def judge(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The rows that are in time, and the others with the reason."""

    def first_half(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """What `step` takes."""

    def step(self, store: Store, rows: pl.DataFrame | None, tick: Tick) -> Outputs:
        """Take a batch's rows of this bucket and its time; give what comes out."""


@dataclass(frozen=True)
class Stage:
    """Rows prepared, keyed, and handed to an operator that keeps state."""

    ops: tuple[RowOp, ...]
    keys: tuple[str, ...]
    what: Windowing | Process | Matched | Repeats | EachRow | LookedUp
    schema: Mapping[str, pl.DataType]
    time: str = "event_time"

    @property
    def by(self) -> tuple[str, ...]:
        """The key columns in the frames; a stream without keys has a constant one."""
        return self.keys or (ALL,)

    @property
    def streams(self) -> tuple[str, ...]:
        """The outputs besides its results that have the columns of the results."""
        if isinstance(self.what, Repeats):
            return (DUPLICATES,)
        return self.what.streams if isinstance(self.what, Process) else ()

    @property
    def others(self) -> tuple[str, ...]:
        """The outputs besides its results that have columns of their own, but for late rows."""
        return self.what.others if isinstance(self.what, (Matched, LookedUp)) else ()

    def operator(self) -> StageOperator:
        """What runs it."""
        if isinstance(self.what, EachRow):
            return EachRowOperator()
        if isinstance(self.what, Process):
            return ProcessOperator(self.what, self.schema)
        if isinstance(self.what, Repeats):
            return RepeatsOperator(self.what, self.schema)
        if isinstance(self.what, LookedUp):
            return LookupOperator(self.what)
        if isinstance(self.what, BookMatch):
            return BookOperator(self.what, self.by)
        if isinstance(self.what, Matched):
            return MatchOperator(self.what, self.by)
        if isinstance(self.what.windows, Count):
            return CountedOperator(self.what, self.by)
        if can_slice(self.what):
            return SlicedOperator(self.what, self.by)
        return WindowedOperator(self.what, self.by)


def needed(stage: Stage) -> frozenset[str] | None:
    """The columns of the input that its results depend on; None if that cannot be told, or all of them."""
    names: set[str] = set()
    for op in stage.ops:
        for expr in op.exprs:
            if not isinstance(expr, pl.Expr) or expr.meta.has_multiple_outputs():
                return None
            names.update(expr.meta.root_names())
        if op.kind == "select":  # there is nothing else from here on
            return frozenset(names)
    what = stage.what
    if isinstance(what, (Process, Repeats, EachRow, LookedUp)):
        return None
    if isinstance(what, Matched):
        asked = set(what.columns)
    else:
        asked = {column for aggregate in aggregates(what).values() for column in aggregate.columns}
        asked.update(what.trigger.inputs)
    return frozenset({*names, *asked, *stage.keys, stage.time})


def prepared(stage: Stage, frame: pl.DataFrame, skipped: Counter[str] | None = None) -> pl.DataFrame:
    """Rows as the stage's operator takes them: columns made and left out, keys, and the time in µs. How many rows were
    skipped for which reason is added to `skipped`."""
    for op in stage.ops:
        before = frame.height
        frame = op.apply(frame)
        if skipped is not None and op.kind == "skip" and frame.height < before:
            skipped[op.reason] += before - frame.height
    return timed(stage, frame)


def timed(stage: Stage, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows to which all has been done, with keys and the time in µs."""
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
    """What is done to each result of the last stage."""

    @property
    def keeps_state(self) -> bool:
        """Does it remember anything from one batch to the next?"""
        return not all(isinstance(stage.what, EachRow) for stage in self.stages)

    @property
    def told(self) -> dict[int, BookMatch | LookedUp]:
        """The stages, by their depth, that a topic beside the input tells something: what to look for, or answers."""
        return {
            depth: stage.what
            for depth, stage in enumerate(self.stages)
            if isinstance(stage.what, (BookMatch, LookedUp))
        }

    def output(self, depth: int, name: str) -> str:
        """What an output of a stage is called: its own name, with a number if a stage before it has one of that
        name."""
        taken = any(name in stage.others for stage in self.stages[:depth])
        return f"{name}_{depth + 1}" if taken else name

    @property
    def waits_for_clock(self) -> bool:
        """Must it be called as time goes by, although nothing comes: for triggers and timers in processing time?"""
        questions = [stage.what for stage in self.stages]
        return any(
            (isinstance(what, Process) and bool(what.processing_timers))
            or (isinstance(what, Windowing) and waits_for_clock(what.trigger))
            for what in questions
        )

    def definition(self) -> Mapping[str, Any]:
        """What must not change while there is state: kept in the checkpoint and compared."""
        return {
            "topics": list(self.topics),
            "state": self.keeps_state,
            "stages": [
                {"ops": described(stage.ops), "keys": list(stage.keys), "what": described(stage.what)}
                for stage in self.stages
            ],
            **({"after": described(self.after)} if self.after else {}),
        }
