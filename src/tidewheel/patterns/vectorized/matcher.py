"""Patterns on columns: all keys of a key group at once, with state as frames.

Conditions are evaluated as columns. A partial match that no event of the batch can do anything to stays a row: it is
kept, or is over, or its time has run out, all decided by columns. Python runs the NFA only for keys where something
happens, and there only on the events that matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.columns import TIME
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Instant
from tidewheel.patterns.compile.bound_program import BoundProgram
from tidewheel.patterns.compile.compiler import compile_pattern
from tidewheel.patterns.compile.conditions import check_columns
from tidewheel.patterns.define.builder import Pattern
from tidewheel.patterns.define.references import resolve
from tidewheel.patterns.define.stages import conditions_of, stages_of
from tidewheel.patterns.vectorized.match_state import Frames, Layout
from tidewheel.patterns.vectorized.match_step import MatchStep, Outputs
from tidewheel.patterns.vectorized.measures import Measures

__all__ = ["Matcher"]

_OWN = ("match_start", "match_end", "completed_at", "timed_out_at", "stage", "stages", "dropped_at", "reason")


@dataclass(frozen=True)
class Matcher:
    """Finds a pattern's matches in batches of ordered events.

    keys: the columns by which events belong together. measures: expressions over the events of a match. limit: how many
    partial matches and matches held back a key may have, where one with more than a hundred events counts for every
    hundred; beyond it, those partial matches that began earliest are dropped and reported.

    >>> from tidewheel.patterns.define.builder import pattern
    >>> from tidewheel.patterns.define.references import last
    >>> fall = pattern("high", pl.col("x") > 7).next("low", pl.col("x") < 3)
    >>> matcher = Matcher(fall, keys=["k"], measures={"at": last("low.x")})
    >>> events = pl.DataFrame({"k": ["a", "a", "b"], "__time": [1, 2, 1], "x": [9, 1, 8]})
    >>> outputs, state = matcher.step({}, events, watermark=3)
    >>> outputs["matches"].rows()
    [('a', 1, 2, 2, 1)]
    >>> state["runs"].height
    1
    """

    stable_name: ClassVar[str] = "matcher/1"
    stored: ClassVar[StoredFields] = StoredFields("pattern", "keys", "measures", "limit")

    pattern: Pattern
    keys: tuple[str, ...] = ()
    measures: Mapping[str, pl.Expr] = field(default_factory=dict)
    limit: int = 10_000

    def __init__(
        self,
        pattern: Pattern,
        *,
        keys: str | Iterable[str] = (),
        measures: Mapping[str, pl.Expr] | None = None,
        limit: int = 10_000,
    ) -> None:
        if not isinstance(pattern, Pattern):
            raise DefinitionError(f'expected a pattern like pattern("fast", ...), got {pattern!r}')
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise DefinitionError(f"limit must be a whole number from 1 on, got {limit!r}")
        named = (keys,) if isinstance(keys, str) else tuple(keys)
        given = dict(measures or {})
        for name in given:
            if name in named or name in _OWN:
                raise DefinitionError(f"measure {name!r}: the matches have a column of this name already; take another")
        pattern.check_ready(given)
        object.__setattr__(self, "pattern", pattern)
        object.__setattr__(self, "keys", named)
        object.__setattr__(self, "measures", given)
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "_program", compile_pattern(pattern))
        object.__setattr__(self, "_bound", {})

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_bound": {}}  # what is bound to a schema is made again where it is needed

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that events must have, besides `__time`: keys first."""
        return tuple(dict.fromkeys((*self.keys, *self.pattern.columns(self.measures))))

    def schemas(self, events: Mapping[str, pl.DataType]) -> dict[str, dict[str, pl.DataType]]:
        """The columns of each output, for events of this schema; refused if they do not fit."""
        return self._bind(dict(events)).schemas

    def step(
        self, state: Mapping[str, pl.DataFrame] | None, events: pl.DataFrame, watermark: Instant | None
    ) -> tuple[Outputs, Frames]:
        """Run a step; returns the output and the new state.

        events: in the order of keys, times and arrival, all before the watermark; `__time` is in microseconds. Outputs
        are `matches`, `timed_out` and `dropped`, ordered by time, then key, then start. An empty state is a new one.
        """
        return self._bind(dict(events.schema)).step(state, events, watermark)

    def abandon(
        self,
        state: Mapping[str, pl.DataFrame] | None,
        events: Mapping[str, pl.DataType],
        *,
        at: Instant,
        reason: str,
    ) -> pl.DataFrame:
        """All partial matches and matches held back in the state, as rows of `dropped`."""
        return self._bind(dict(events)).abandon(state, at, reason)

    def _bind(self, schema: dict[str, pl.DataType]) -> MatchStep:
        bound: dict[object, MatchStep] = self._bound  # type: ignore[attr-defined]
        relevant = {name: kind for name, kind in schema.items() if name in self.columns}
        known = tuple(relevant.items())
        if known not in bound:
            check_columns(self.columns, {name: kind for name, kind in schema.items() if name != TIME})
            bound[known] = self._bound_step(relevant)
        return bound[known]

    def _bound_step(self, schema: dict[str, pl.DataType]) -> MatchStep:
        bound = BoundProgram(self._program, schema)  # type: ignore[attr-defined]
        asked = [condition.expression for condition in conditions_of(self.pattern.parts)]
        references = resolve([*asked, *self.measures.values()], self.pattern.stages, what="pattern")
        others = [stage.differs_in for stage in stages_of(self.pattern.parts)]
        looked_back_at = [reference.column for reference in references.values()] + others
        stored = {column: schema[column] for column in looked_back_at if column is not None}
        return MatchStep(
            bound,
            Layout(bound.program, {name: schema[name] for name in self.keys}, stored),
            Measures(self.measures, bound.stages, schema),
            keys=self.keys,
            limit=self.limit,
        )

    def __repr__(self) -> str:
        options = [repr(self.pattern), f"keys={list(self.keys)!r}"]
        options += [
            f"measures={{{', '.join(f'{name!r}: {measure}' for name, measure in self.measures.items())}}}"
        ] * bool(self.measures)
        options += [f"limit={self.limit}"] * (self.limit != 10_000)
        return f"Matcher({', '.join(options)})"
