"""Run the NFA by itself: events in, matches out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tidewheel.model.time import Instant
from tidewheel.patterns.compile.bound_program import BoundProgram
from tidewheel.patterns.compile.compiler import compile_pattern
from tidewheel.patterns.compile.conditions import check_columns
from tidewheel.patterns.define.builder import Pattern
from tidewheel.patterns.nfa.nfa import NFA
from tidewheel.patterns.nfa.partial_match import Path, steps_of

__all__ = ["Harness"]

Stages = dict[str, list[int]]
"""The numbers of the events that each stage has taken."""


class Harness:
    """Steps the NFA of a pattern for one key. Events are numbered from 0 in the order in which they come.

    >>> from tidewheel.patterns.define.builder import pattern
    >>> rising = pattern("low", pl.col("x") < 3).next("high", pl.col("x") > 7).within("8 us")
    >>> harness = Harness(rising, {"x": pl.Int64})
    >>> for time, x in enumerate([1, 2, 9, 8]):
    ...     harness.add({"x": x}, time=time)
    >>> harness.matches
    [{'low': [1], 'high': [2]}]
    >>> harness.completed_at, harness.order
    ([2], [(1, 2, 2, [1.0, 2.0, inf], [0, 1])])
    >>> harness.add_all([(4, {"x": 1}), (5, {"x": 2})])
    >>> harness.partial
    [{'low': [5]}]
    >>> harness.advance(20)
    >>> harness.timed_out, harness.dropped
    ([({'low': [5]}, 13)], [])
    """

    def __init__(
        self, pattern: Pattern, schema: Mapping[str, pl.DataType | type[pl.DataType]], *, limit: int = 10_000
    ) -> None:
        self._frame = pl.DataFrame(schema=dict(schema))
        check_columns(pattern.columns(), self._frame.schema)
        self._bound = BoundProgram(compile_pattern(pattern), dict(self._frame.schema))
        self._nfa = NFA(self._bound, limit=limit)
        self._count = 0

    def add(self, event: Mapping[str, Any], *, time: Instant) -> None:
        """Add the next event, in the order of time."""
        self.add_all([(time, event)])

    def add_all(self, events: Sequence[tuple[Instant, Mapping[str, Any]]]) -> None:
        """Add the next events with their times, in order."""
        new = pl.DataFrame([dict(event) for _, event in events], schema=self._frame.schema)
        bits = self._bound.conditions.bits(new).tolist()
        self._frame = self._frame.vstack(new)
        self._bound.conditions.load(self._frame)
        for (time, _), holds in zip(events, bits, strict=True):
            self._nfa.advance(time)
            self._nfa.event(self._count, time, holds)
            self._count += 1

    def advance(self, watermark: Instant) -> None:
        """Move time: all events before this time have come."""
        self._nfa.advance(watermark)

    @property
    def matches(self) -> list[Stages]:
        """The matches so far."""
        return [self._stages(match.path) for match in self._nfa.matches]

    @property
    def order(self) -> list[tuple[object, ...]]:
        """The sort key of matches that are complete at the same time."""
        return [match.order for match in self._nfa.matches]

    @property
    def completed_at(self) -> list[Instant]:
        """When each match was complete."""
        return [match.completed_at for match in self._nfa.matches]

    @property
    def timed_out(self) -> list[tuple[Stages, Instant]]:
        """The timed-out partial matches, with their times."""
        return [(self._stages(one.path), one.at) for one in self._nfa.timed_out]

    @property
    def dropped(self) -> list[tuple[Stages, Instant]]:
        """The partial matches that were one too many, and when."""
        return [(self._stages(one.path), one.at) for one in self._nfa.dropped]

    @property
    def partial(self) -> list[Stages]:
        """The partial matches that are open."""
        return [self._stages(run.path) for run in self._nfa]

    def _stages(self, path: Path) -> Stages:
        found: Stages = {}
        for event, position in steps_of(path):
            found.setdefault(self._bound.stages[position], []).append(event)
        return found
