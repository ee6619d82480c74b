"""What a stage recognises in each key's events, in the order of event time: a pattern, or a MATCH_RECOGNIZE clause.

Both are driven the same way: events that the watermark has passed go in, in order, and rows by the name of their stream
come out; in between stay frames.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import polars as pl

from tidewheel.engine.operator import RESULTS
from tidewheel.engine.window_columns import TIME
from tidewheel.model.time import Instant
from tidewheel.patterns.expressions import source
from tidewheel.patterns.matcher import Matcher
from tidewheel.patterns.references import references_in

__all__ = ["DROPPED", "EVENT_TIME", "PORTS", "TIMED_OUT", "Frames", "Matched", "PatternMatch", "Schema"]

TIMED_OUT = "timed_out"
DROPPED = "dropped"
EVENT_TIME = "event_time"
_INSTANT = pl.Datetime("us", "UTC")
Frames = dict[str, pl.DataFrame]
Schema = dict[str, pl.DataType]


class Matched(ABC):
    """What is recognised in events of a schema."""

    schema: Mapping[str, pl.DataType]
    others: ClassVar[tuple[str, ...]] = (TIMED_OUT, DROPPED)
    """Its streams besides `results`."""

    @property
    @abstractmethod
    def columns(self) -> Sequence[str]:
        """The columns that it needs of the events."""

    @property
    def order(self) -> Sequence[str]:
        """The columns that order events of the same time, before the order in which they came."""
        return ()

    @abstractmethod
    def outputs(self) -> dict[str, Schema]:
        """The columns of its streams, `results` first."""

    @abstractmethod
    def step(self, state: Frames, events: pl.DataFrame, watermark: Instant | None) -> tuple[Frames, Frames]:
        """Rows by stream, and the state after these events, which are in order and all before the watermark."""

    @abstractmethod
    def about(self, outputs: Mapping[str, str]) -> list[str]:
        """In plain words: what it is, and what is kept. outputs: what its outputs are called, by their own names."""


@dataclass(frozen=True)
class PatternMatch(Matched):
    """A pattern. Results are matches; what ran out of time, and what was dropped at the limit, have their streams."""

    matcher: Matcher
    schema: Mapping[str, pl.DataType] = field(repr=False)

    def __post_init__(self) -> None:
        self.matcher.schemas(dict(self.schema))  # what does not fit is refused here

    @property
    def columns(self) -> Sequence[str]:
        """The keys, and what conditions and measures ask for."""
        return self.matcher.columns

    def outputs(self) -> dict[str, Schema]:
        """Matches as `results`, then `timed_out` and `dropped`."""
        made = self.matcher.schemas(dict(self.schema))
        return {
            PORTS[name][0]: dict(_told(name, pl.DataFrame(schema=columns)).schema) for name, columns in made.items()
        }

    def step(self, state: Frames, events: pl.DataFrame, watermark: Instant | None) -> tuple[Frames, Frames]:
        """One step of the matcher."""
        found, after = self.matcher.step(state, events, watermark)
        return {PORTS[name][0]: _told(name, frame) for name, frame in found.items()}, after

    def about(self, outputs: Mapping[str, str]) -> list[str]:
        """The pattern, and what is kept."""
        lines = [f"What: {self.matcher.pattern!r}."]
        if self.matcher.measures:
            told = ", ".join(f"{name} = {_in_words(measure)}" for name, measure in self.matcher.measures.items())
            lines.append(f"Measures: {told}.")
        return [
            *lines,
            "When: a match in the batch in which the watermark passes what decides it.",
            "Kept: rows until the watermark passes them; the events of open partial matches, at most "
            f"{self.matcher.limit:,} of these for each key: beyond it the oldest go to the output "
            f"{outputs[DROPPED]}.",
        ]


PORTS = {
    "matches": (RESULTS, "completed_at"),
    "timed_out": (TIMED_OUT, "timed_out_at"),
    "dropped": (DROPPED, "dropped_at"),
}
"""A matcher's outputs: the name of the stream, and the column that says when a row was known."""


def _told(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """A matcher's rows with instants as times; the event time is when it was known."""
    known = PORTS[name][1]
    times = [pl.col(column).cast(_INSTANT) for column in ("match_start", "match_end")]
    return frame.with_columns(*times, pl.col(known).cast(_INSTANT).alias(EVENT_TIME)).drop(known)


def _in_words(measure: pl.Expr) -> str:
    """A measure as it was written, but for `tw.` and quotes."""
    text = source(measure)
    for name in references_in(measure):
        text = text.replace(f"pl.col({name!r})", name).replace(f'col("{name}")', name)
    return text


assert TIME == "__time"  # what matchers call it
