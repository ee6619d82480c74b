"""Recognizers: what a stage finds in each key's events, in event-time order: a pattern, or a MATCH_RECOGNIZE clause.

Both are driven the same way: events that the watermark has passed go in, in order, and rows by the name of their stream
come out; in between stay frames.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import polars as pl

from tidewheel.engine.operators.operator import (
    LATE,
    RESULTS,
    Operation,
    Reference,
    ReferenceRows,
    Schema,
    StageInput,
    StageOperator,
    about_late,
    unlike_outputs,
)
from tidewheel.engine.operators.patterns.pattern import Frames, PatternOperator
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant
from tidewheel.patterns.define.expressions import source
from tidewheel.patterns.define.references import references_in
from tidewheel.patterns.vectorized.matcher import Matcher
from tidewheel.plain_text import plain

__all__ = [
    "DROPPED",
    "EVENT_TIME",
    "MATCHER_OUTPUTS",
    "TIMED_OUT",
    "Frames",
    "Recognizer",
    "PatternRecognizer",
    "Schema",
]

TIMED_OUT = "timed_out"
DROPPED = "dropped"
EVENT_TIME = "event_time"
_INSTANT = pl.Datetime("us", "UTC")


class Recognizer(Operation):
    """A pattern or clause over events of a schema."""

    schema: Mapping[str, pl.DataType]
    noun: ClassVar[str] = "a pattern"

    @property
    def others(self) -> tuple[str, ...]:
        """The outputs for timed-out and dropped matches."""
        return (TIMED_OUT, DROPPED)

    @property
    @abstractmethod
    def columns(self) -> Sequence[str]:
        """The columns that it needs of the events."""

    @property
    def order(self) -> Sequence[str]:
        """The columns that order events of the same time, before the order in which they came."""
        return ()

    @abstractmethod
    def schemas(self) -> dict[str, Schema]:
        """The columns of its outputs, `results` first."""

    @abstractmethod
    def step(self, state: Frames, events: pl.DataFrame, watermark: Instant | None) -> tuple[Frames, Frames]:
        """Return the rows by output and the state after these events, which are in order and all before the
        watermark."""

    @abstractmethod
    def described(self, outputs: Mapping[str, str]) -> dict[str, str]:
        """What `about` says, without what becomes of late rows."""

    def needed(self, stage: StageInput) -> Iterable[str] | None:
        return self.columns

    def outputs(self, stage: StageInput) -> dict[str, Schema]:
        """The columns of its outputs; refuses a column of a match that is called like an output."""
        found = self.schemas()
        return {**found, RESULTS: unlike_outputs(found[RESULTS], self.others)}

    @property
    def results_behind(self) -> Duration | None:
        """A match has the time at which it was known."""
        return 0

    @property
    def label(self) -> str:
        return "match"

    def about(self, outputs: Mapping[str, str]) -> dict[str, str]:
        texts = {word: plain(text) for word, text in self.described(outputs).items()}
        kept = texts.pop("Kept")
        return {**texts, "Late": about_late(outputs[LATE]), "Kept": kept}

    def operator(self, stage: StageInput) -> StageOperator:
        return PatternOperator(self, stage.by)


@dataclass(frozen=True)
class PatternRecognizer(Recognizer):
    """A pattern. Results are matches; what ran out of time or was dropped at the limit has outputs of its own."""

    matcher: Matcher
    schema: Mapping[str, pl.DataType] = field(repr=False)

    stable_name: ClassVar[str] = "match/1"
    stored: ClassVar[StoredFields] = StoredFields("matcher")

    def __post_init__(self) -> None:
        self.matcher.schemas(dict(self.schema))  # what does not fit is refused here

    @property
    def columns(self) -> Sequence[str]:
        """The keys, and what conditions and measures ask for."""
        return self.matcher.columns

    def schemas(self) -> dict[str, Schema]:
        """Matches as `results`, then `timed_out` and `dropped`."""
        made = self.matcher.schemas(dict(self.schema))
        return {
            MATCHER_OUTPUTS[name][0]: dict(_output_rows(name, pl.DataFrame(schema=columns)).schema)
            for name, columns in made.items()
        }

    def step(self, state: Frames, events: pl.DataFrame, watermark: Instant | None) -> tuple[Frames, Frames]:
        found, after = self.matcher.step(state, events, watermark)
        return {MATCHER_OUTPUTS[name][0]: _output_rows(name, frame) for name, frame in found.items()}, after

    def described(self, outputs: Mapping[str, str]) -> dict[str, str]:
        texts = {"What": f"{self.matcher.pattern!r}."}
        if self.matcher.measures:
            measures = ", ".join(f"{name} = {_in_words(measure)}" for name, measure in self.matcher.measures.items())
            texts["Measures"] = f"{measures}."
        return {
            **texts,
            "When": "a match in the batch in which the watermark passes what decides it.",
            "Kept": "rows until the watermark passes them; the events of open partial matches, at most "
            f"{self.matcher.limit:,} of these for each key: beyond it the oldest go to the output "
            f"{outputs[DROPPED]}.",
        }

    def reference(self, stage: StageInput) -> Reference | None:
        """The pattern's NFA, one key and one event after the other."""
        from tidewheel.patterns.nfa.reference import PatternReference  # only tests need it

        reference = PatternReference(self.matcher, self.schema)

        def step(rows: pl.DataFrame, watermark: Instant | None, clock: Instant) -> ReferenceRows:
            found = reference.step(rows, watermark=watermark)
            late = [(row, row.pop("reason"), row.pop("late_by")) for row in found[LATE]]
            return ReferenceRows(found["matches"], late, {name: found[name] for name in self.others})

        return step


MATCHER_OUTPUTS = {
    "matches": (RESULTS, "completed_at"),
    "timed_out": (TIMED_OUT, "timed_out_at"),
    "dropped": (DROPPED, "dropped_at"),
}
"""A matcher's outputs: the name of the output, and the column that says when a row was known."""


def _output_rows(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """A matcher's rows with instants as times; the event time is when it was known."""
    known = MATCHER_OUTPUTS[name][1]
    times = [pl.col(column).cast(_INSTANT) for column in ("match_start", "match_end")]
    return frame.with_columns(*times, pl.col(known).cast(_INSTANT).alias(EVENT_TIME)).drop(known)


def _in_words(measure: pl.Expr) -> str:
    """A measure as it was written, but for `tw.` and quotes."""
    text = source(measure)
    for name in references_in(measure):
        text = text.replace(f"pl.col({name!r})", name).replace(f'col("{name}")', name)
    return text
