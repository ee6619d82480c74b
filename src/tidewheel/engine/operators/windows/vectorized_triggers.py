"""Triggers in columns: the same state machines as the model's, for many windows at once.

A trigger becomes a tree of nodes; each node keeps its state in named numpy arrays, one place per window. What the model
does to one window is done here to those that a mask selects. Old windows that merge are grouped by polars before that:
every state column says how it merges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidewheel.engine.operators.windows.vectorized_trigger import (
    DEADLINE,
    NEVER_DUE,
    Arrays,
    Column,
    Mask,
    TriggerContext,
    VectorizedTrigger,
)
from tidewheel.model import triggers
from tidewheel.model.time import Instant
from tidewheel.model.triggers import Trigger

__all__ = ["compile_trigger", "expected_column", "waits_for_clock"]


@dataclass(frozen=True, slots=True)
class _Never(VectorizedTrigger):
    def columns(self) -> list[Column]:
        return []

    def on_elements(self, state: Arrays, where: Mask, counts: npt.NDArray[np.int64], clock: Instant) -> None:
        pass

    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        return np.zeros_like(at.passed)

    def on_fire(self, state: Arrays, where: Mask, at: TriggerContext) -> Mask:
        return np.zeros_like(where)


@dataclass(frozen=True, slots=True)
class _EachBatch(_Never):
    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        return at.touched.copy()


@dataclass(frozen=True, slots=True)
class _Count(VectorizedTrigger):
    name: str
    count: int

    def columns(self) -> list[Column]:
        return [Column(f"{self.name}.count", 0, "sum")]

    def on_elements(self, state: Arrays, where: Mask, counts: npt.NDArray[np.int64], clock: Instant) -> None:
        state[f"{self.name}.count"][where] += counts[where]

    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        result: Mask = state[f"{self.name}.count"] >= self.count
        return result

    def on_fire(self, state: Arrays, where: Mask, at: TriggerContext) -> Mask:
        return where.copy()


@dataclass(frozen=True, slots=True)
class _Completeness(_Count):
    """`expected` is the highest seen in the window, which the operator keeps in the column `expected`."""

    percent: float
    expected: str | int

    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        known = self.expected if isinstance(self.expected, int) else state[expected_column(self.expected)]
        counts = state[f"{self.name}.count"]
        result: Mask = (counts > 0) & (counts * 100 >= self.percent * known)
        return result if isinstance(self.expected, int) else result & (np.asarray(known) >= 0)


@dataclass(frozen=True, slots=True)
class _ProcessingTime(VectorizedTrigger):
    name: str
    trigger: triggers.AfterProcessingTime

    def columns(self) -> list[Column]:
        return [Column(f"{self.name}.at", NEVER_DUE, "min")]

    def _deadline(self, clock: Instant) -> int:
        trigger = self.trigger
        if trigger.period is not None:
            clock += trigger.period - (clock - trigger.offset) % trigger.period
        return clock + trigger.delay

    def on_elements(self, state: Arrays, where: Mask, counts: npt.NDArray[np.int64], clock: Instant) -> None:
        column = state[f"{self.name}.at"]
        column[where & (column == NEVER_DUE)] = self._deadline(clock)

    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        result: Mask = state[f"{self.name}.at"] <= at.clock
        return result

    def on_fire(self, state: Arrays, where: Mask, at: TriggerContext) -> Mask:
        return where.copy()

    def rearm(self, state: Arrays, where: Mask, clock: Instant) -> None:
        if self.trigger.unchanged:
            state[f"{self.name}.at"][where] = self._deadline(clock)


@dataclass(frozen=True, slots=True)
class _Watermark(VectorizedTrigger):
    name: str
    early: VectorizedTrigger
    late: VectorizedTrigger | None

    @property
    def _phase(self) -> str:
        return f"{self.name}.late"

    def columns(self) -> list[Column]:
        below = [column for child in self.children() for column in child.columns()]
        return [Column(self._phase, 0, "min"), *below]

    def children(self) -> Iterable[VectorizedTrigger]:
        return (self.early,) if self.late is None else (self.early, self.late)

    def on_elements(self, state: Arrays, where: Mask, counts: npt.NDArray[np.int64], clock: Instant) -> None:
        late = state[self._phase] == 1
        self.early.on_elements(state, where & ~late, counts, clock)
        if self.late is not None:
            self.late.on_elements(state, where & late, counts, clock)

    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        late = state[self._phase] == 1
        early = ~late & (at.passed | self.early.should_fire(state, at))
        result: Mask = early if self.late is None else early | (late & self.late.should_fire(state, at))
        return result

    def on_fire(self, state: Arrays, where: Mask, at: TriggerContext) -> Mask:
        late = state[self._phase] == 1
        early_fire = where & ~late & ~at.passed
        on_time = where & ~late & at.passed
        late_fire = where & late
        finished = self.early.on_fire(state, early_fire, at)
        self.early.reset(state, finished & early_fire, at.clock)
        if self.late is None:
            ended: Mask = on_time
            return ended
        for column in self.early.columns():
            state[column.name][on_time] = column.initial
        state[self._phase][on_time] = 1
        finished = self.late.on_fire(state, late_fire, at)
        self.late.reset(state, finished & late_fire, at.clock)
        return np.zeros_like(where)

    def rearm(self, state: Arrays, where: Mask, clock: Instant) -> None:
        self.early.rearm(state, where, clock)

    def on_merge(self, state: Arrays, merged: Mask, passed: Mask) -> None:
        again = merged & ~passed & (state[self._phase] == 1)
        state[self._phase][again] = 0
        if self.late is not None:
            early = merged & (state[self._phase] == 0)
            for column in self.late.columns():
                state[column.name][early] = column.initial
        late = merged & (state[self._phase] == 1)
        for column in self.early.columns():
            state[column.name][late] = column.initial
        for child in self.children():
            child.on_merge(state, merged, passed)


@dataclass(frozen=True, slots=True)
class _Repeatedly(VectorizedTrigger):
    child: VectorizedTrigger

    def columns(self) -> list[Column]:
        return self.child.columns()

    def children(self) -> Iterable[VectorizedTrigger]:
        return (self.child,)

    def on_elements(self, state: Arrays, where: Mask, counts: npt.NDArray[np.int64], clock: Instant) -> None:
        self.child.on_elements(state, where, counts, clock)

    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        return self.child.should_fire(state, at)

    def on_fire(self, state: Arrays, where: Mask, at: TriggerContext) -> Mask:
        finished = self.child.on_fire(state, where, at)
        self.child.reset(state, finished, at.clock)
        return np.zeros_like(where)


@dataclass(frozen=True, slots=True)
class _Together(VectorizedTrigger):
    """`any_of` and `all_of`."""

    parts: tuple[VectorizedTrigger, ...]
    every: bool

    def columns(self) -> list[Column]:
        return [column for child in self.parts for column in child.columns()]

    def children(self) -> Iterable[VectorizedTrigger]:
        return self.parts

    def on_elements(self, state: Arrays, where: Mask, counts: npt.NDArray[np.int64], clock: Instant) -> None:
        for child in self.parts:
            child.on_elements(state, where, counts, clock)

    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        answers = [child.should_fire(state, at) for child in self.parts]
        result: Mask = np.logical_and.reduce(answers) if self.every else np.logical_or.reduce(answers)
        return result

    def on_fire(self, state: Arrays, where: Mask, at: TriggerContext) -> Mask:
        return where.copy()


@dataclass(frozen=True, slots=True)
class _InOrder(VectorizedTrigger):
    name: str
    parts: tuple[VectorizedTrigger, ...]

    @property
    def _current(self) -> str:
        return f"{self.name}.current"

    def columns(self) -> list[Column]:
        return [Column(self._current, 0, "max"), *(column for child in self.parts for column in child.columns())]

    def children(self) -> Iterable[VectorizedTrigger]:
        return self.parts

    def on_elements(self, state: Arrays, where: Mask, counts: npt.NDArray[np.int64], clock: Instant) -> None:
        for number, child in enumerate(self.parts):
            child.on_elements(state, where & (state[self._current] == number), counts, clock)

    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        answers = [
            (state[self._current] == number) & child.should_fire(state, at) for number, child in enumerate(self.parts)
        ]
        result: Mask = np.logical_or.reduce(answers)
        return result

    def on_fire(self, state: Arrays, where: Mask, at: TriggerContext) -> Mask:
        current = state[self._current].copy()
        finished = np.zeros_like(where)
        for number, child in enumerate(self.parts):
            done = child.on_fire(state, where & (current == number), at)
            if number + 1 == len(self.parts):
                finished |= done
            else:
                for column in child.columns():
                    state[column.name][done] = column.initial
                state[self._current][done] = number + 1
        return finished

    def on_merge(self, state: Arrays, merged: Mask, passed: Mask) -> None:
        for number, child in enumerate(self.parts):
            elsewhere = merged & (state[self._current] != number)
            for column in child.columns():
                state[column.name][elsewhere] = column.initial
            child.on_merge(state, merged & ~elsewhere, passed)

    def rearm(self, state: Arrays, where: Mask, clock: Instant) -> None:
        self.parts[0].rearm(state, where, clock)


@dataclass(frozen=True, slots=True)
class _OrFinally(VectorizedTrigger):
    main: VectorizedTrigger
    last: VectorizedTrigger

    def columns(self) -> list[Column]:
        return [*self.main.columns(), *self.last.columns()]

    def children(self) -> Iterable[VectorizedTrigger]:
        return (self.main, self.last)

    def on_elements(self, state: Arrays, where: Mask, counts: npt.NDArray[np.int64], clock: Instant) -> None:
        self.main.on_elements(state, where, counts, clock)
        self.last.on_elements(state, where, counts, clock)

    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        return self.main.should_fire(state, at) | self.last.should_fire(state, at)

    def on_fire(self, state: Arrays, where: Mask, at: TriggerContext) -> Mask:
        finished = where & self.last.should_fire(state, at)
        again = self.main.on_fire(state, where & ~finished, at)
        self.main.reset(state, again, at.clock)
        return finished


def expected_column(name: str) -> str:
    """The column with the highest expected count that an operator has seen."""
    return f"trigger.expected.{name}"


def compile_trigger(trigger: Trigger, name: str = "trigger") -> VectorizedTrigger:
    """Compile the trigger to columns; `name` begins the names of its state columns."""

    def below(parts: Iterable[Trigger]) -> tuple[VectorizedTrigger, ...]:
        return tuple(compile_trigger(part, f"{name}.{number}") for number, part in enumerate(parts))

    match trigger:
        case triggers.Never():
            return _Never()
        case triggers.EachBatch():
            return _EachBatch()
        case triggers.AfterCount():
            return _Count(name, trigger.count)
        case triggers.Completeness():
            return _Completeness(name, 1, trigger.percent, trigger.expected)
        case triggers.AfterProcessingTime():
            return _ProcessingTime(name, trigger)
        case triggers.AfterWatermark():
            early = _Never() if trigger.early is None else compile_trigger(trigger.early, f"{name}.early")
            late = None if trigger.late is None else compile_trigger(trigger.late, f"{name}.after")
            return _Watermark(name, early, late)
        case triggers.Repeatedly():
            return _Repeatedly(compile_trigger(trigger.trigger, f"{name}.0"))
        case triggers.AnyOf():
            return _Together(below(trigger.triggers), every=False)
        case triggers.AllOf():
            return _Together(below(trigger.triggers), every=True)
        case triggers.InOrder():
            return _InOrder(name, below(trigger.triggers))
        case triggers.OrFinally():
            return _OrFinally(*below((trigger.main, trigger.last)))
    raise TypeError(f"a trigger of an unknown kind: {trigger!r}")


def waits_for_clock(trigger: Trigger) -> bool:
    """Whether it fires as time goes by, although no rows come."""
    return any(column.name.endswith(DEADLINE) for column in compile_trigger(trigger).columns())
