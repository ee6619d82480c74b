"""A MATCH_RECOGNIZE clause over a stream of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import polars as pl

from tidewheel.engine.operators.operator import RESULTS, Schema
from tidewheel.engine.operators.patterns.pattern import Frames
from tidewheel.engine.operators.patterns.recognizer import DROPPED, EVENT_TIME, Recognizer
from tidewheel.errors import DefinitionError, StatementError
from tidewheel.match_recognize.matching.matcher import FIRST, LAST, ROWS, ClauseMatcher
from tidewheel.match_recognize.syntax.clause import Clause
from tidewheel.match_recognize.syntax.row_pattern import End, parts_of
from tidewheel.match_recognize.syntax.scalar import Span
from tidewheel.model.columns import TIME
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Instant

__all__ = ["LIMIT", "ROW_TIME", "MatchRecognize", "time_of"]

LIMIT = 100_000
"""How many rows an attempt to match may take on a stream, by default."""
ROW_TIME = "row_time"
"""What a clause's own column `event_time` is called in results: theirs is the time of the match."""
_INSTANT = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class MatchRecognize(Recognizer):
    """A clause, ordered by the event time first.

    select: its columns that come out, each with its name. limit: see `ClauseMatcher.advance`; attempts that were given
    up are in the output `dropped`. It is no part of what must stay the same while there is state.
    """

    clause: Clause
    schema: Mapping[str, pl.DataType] = field(repr=False)
    select: tuple[tuple[str, str], ...]
    limit: int = field(default=LIMIT, repr=False)
    matcher: ClauseMatcher = field(init=False, repr=False, compare=False)

    stable_name: ClassVar[str] = "match_recognize/1"
    stored: ClassVar[StoredFields] = StoredFields("clause", "select")
    noun: ClassVar[str] = "a MATCH_RECOGNIZE clause"

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise DefinitionError(f"limit: an attempt to match takes at least 1 row, got {self.limit}")
        object.__setattr__(self, "matcher", ClauseMatcher(self.clause, dict(self.schema)))
        for item in self.clause.order_by[1:]:
            if item.descending or item.nulls_last:
                problem = f"ORDER BY {item.column.name}: further columns of a stream's order are ascending, nulls first"
                _refuse(self.clause, problem, item.column.span)

    @property
    def others(self) -> tuple[str, ...]:
        return (DROPPED,)

    @property
    def columns(self) -> Sequence[str]:
        """What conditions and measures ask for, and what the rows are ordered by."""
        return self.matcher.columns

    @property
    def order(self) -> Sequence[str]:
        return self.matcher.order_by[1:]

    def schemas(self) -> dict[str, Schema]:
        """The columns that come out and the time of the match; `dropped` has the rows that were given up."""
        given = self.matcher.schema
        dropped = pl.DataFrame(schema=self.matcher.given_up).select(self._dropped_columns()).drop(TIME).schema
        return {
            RESULTS: {**{name: given[column] for column, name in self.select}, EVENT_TIME: _INSTANT},
            DROPPED: {**dropped, EVENT_TIME: _INSTANT},
        }

    def step(self, state: Frames, events: pl.DataFrame, watermark: Instant | None) -> tuple[Frames, Frames]:
        done = self.matcher.advance(state, events, watermark, limit=self.limit)
        rows = done.rows.select(pl.col(column).alias(name) for column, name in self.select)
        known = done.last.cast(_INSTANT).cast(pl.Int64).alias(TIME)
        return {RESULTS: rows.with_columns(known), DROPPED: done.given_up.select(self._dropped_columns())}, done.state

    def _dropped_columns(self) -> list[pl.Expr]:
        """The columns of an attempt that was given up; a key that is called like the rest gets another name."""
        times = {"match_start": pl.col(FIRST), "match_end": pl.col(LAST)}
        columns = [time.cast(_INSTANT).alias(name) for name, time in times.items()]
        columns.append(pl.col(ROWS).alias("dropped_rows"))
        columns.append(pl.lit(f"an attempt to match took more than {self.limit:,} rows").alias("dropped_reason"))
        taken = {EVENT_TIME, *(one.meta.output_name() for one in columns)}
        keys = [pl.col(name).alias(f"{name}_key" if name in taken else name) for name in self.matcher.partition_by]
        return [*keys, *columns, pl.col(LAST).cast(_INSTANT).cast(pl.Int64).alias(TIME)]

    def described(self, outputs: Mapping[str, str]) -> dict[str, str]:
        start, end = self.clause.span
        return {
            "What": f"MATCH_RECOGNIZE ({' '.join(self.clause.text[start:end].split())}).",
            "When": "a match in the batch in which no later row could change it.",
            "Kept": "rows until the watermark passes them; the rows that an unfinished match may still need, at most "
            f"{self.limit:,} of each partition: a longer one is given up and is in the output "
            f"{outputs[DROPPED]}.",
        }


def time_of(clause: Clause, schema: Mapping[str, pl.DataType], *, endless: bool = True) -> str:
    """The column that a clause's rows have their event time in; one that makes no sense on a stream is refused.

    endless: whether the stream has no end that could be waited for.
    """
    matcher = ClauseMatcher(clause, dict(schema))
    if not clause.order_by:
        _refuse(clause, "on a stream rows are ordered by their time: write ORDER BY with it", clause.span)
    first, column = clause.order_by[0], matcher.order_by[0]
    if not isinstance(schema[column], pl.Datetime):
        problem = f"on a stream ORDER BY begins with a timestamp; {column} is {schema[column]}"
        _refuse(clause, problem, first.column.span)
    if first.descending:
        _refuse(clause, f"on a stream time goes on: ORDER BY {column} cannot be descending", first.column.span)
    for part in parts_of(clause.pattern):
        if isinstance(part, End) and endless:
            problem = "$ waits for the last row of a partition, and a stream has none; leave it out, or use WITHIN"
            _refuse(clause, problem, (part.place, part.place + 1))
    return column


def _refuse(clause: Clause, problem: str, span: Span) -> None:
    raise StatementError(problem, text=clause.text, start=span[0], end=span[1])
