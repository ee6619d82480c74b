"""Patterns that come, change and go while a job runs: a topic names them, and each key group keeps those in force.

A definition is checked where it is read: one that makes no sense for the stream is refused there and reaches no key
group. The others reach every key group in the batch in which they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import polars as pl

from tidewheel.engine.operators.operator import REPORTS, RESULTS, Schema, SideInput, StageInput, StageOperator
from tidewheel.engine.operators.patterns.pattern import DynamicPatternsOperator, Frames
from tidewheel.engine.operators.patterns.recognizer import DROPPED, EVENT_TIME, MATCHER_OUTPUTS, TIMED_OUT, Recognizer
from tidewheel.errors import CheckpointError, DefinitionError, TidewheelError
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Instant
from tidewheel.model.watermarks import ControlTopic, Strategy
from tidewheel.patterns.serde.measures_json import as_json
from tidewheel.patterns.serde.pattern_json import pattern_from_json
from tidewheel.patterns.vectorized.matcher import Matcher
from tidewheel.transport.events.event_pb2 import PatternDefinition
from tidewheel.transport.events.registry import type_name
from tidewheel.transport.topics.pattern_registry import name_fault

__all__ = ["DEFINITIONS", "DynamicPatterns"]

MOST_PATTERNS = 1_000
DEFINITIONS: dict[str, pl.DataType] = {
    "name": pl.String(),
    "version": pl.Int64(),
    "definition": pl.String(),
}
"""What every key group gets: a definition that is null takes the pattern away. The key group that `REPORTS` also puts
out those that do not count."""

_VERSION = 1
_PATTERNS = "patterns"
_ENTRIES = {"format": pl.Int32(), **DEFINITIONS, "failed": pl.Boolean()}
_INSTANT = pl.Datetime("us", "UTC")
_OWN = ("pattern", "version", "match_start", "match_end", "stage", "reason", "measures", EVENT_TIME)


@dataclass(frozen=True)
class _Entry:
    """A pattern that is known here; without a definition it was removed, and its version is remembered."""

    name: str
    version: int
    definition: str | None
    failed: bool = False


@dataclass(frozen=True)
class DynamicPatterns(Recognizer):
    """The patterns that a topic names. Results are the matches of all of them, in the same columns."""

    topic: str
    keys: tuple[str, ...]
    schema: Mapping[str, pl.DataType] = field(repr=False)
    limit: int = 10_000

    stable_name: ClassVar[str] = "match_from/1"
    stored: ClassVar[StoredFields] = StoredFields("topic", "keys", "limit")
    noun: ClassVar[str] = "match_from"
    message: ClassVar[str] = type_name(PatternDefinition)
    strategy: ClassVar[Strategy] = ControlTopic()

    def __post_init__(self) -> None:
        if not isinstance(self.limit, int) or isinstance(self.limit, bool) or self.limit < 1:
            raise DefinitionError(f"limit must be a whole number from 1 on, got {self.limit!r}")
        taken = [name for name in self.keys if name in _OWN]
        if taken:
            raise DefinitionError(f"match_from: matches have a column {taken[0]!r} already; rename the key")

    @property
    def columns(self) -> Sequence[str]:
        """All columns: what the next pattern will need is not known."""
        return [name for name in self.schema if not name.startswith("__")]

    def schemas(self) -> dict[str, Schema]:
        """Matches as `results`, then `timed_out` and `dropped`, whatever the patterns are."""
        begin: Schema = {name: self.schema[name] for name in self.keys}
        begin |= {"pattern": pl.String(), "version": pl.Int64(), "match_start": _INSTANT, "match_end": _INSTANT}
        end: Schema = {"measures": pl.String(), EVENT_TIME: _INSTANT}
        return {
            RESULTS: {**begin, **end},
            TIMED_OUT: {**begin, "stage": pl.String(), **end},
            DROPPED: {**begin, "stage": pl.String(), "reason": pl.String(), EVENT_TIME: _INSTANT},
        }

    def described(self, outputs: Mapping[str, str]) -> dict[str, str]:
        return {
            "What": f"the patterns that the topic {self.topic} defines.",
            "When": "a match in the batch in which the watermark passes what decides it; a pattern counts for the rows "
            "that the watermark passes from the batch on in which its definition is read.",
            "Changed": "a pattern that is replaced or removed takes its partial matches with it, to the output "
            f"{outputs[DROPPED]}.",
            "Kept": "rows, with all their columns, until the watermark passes them; the patterns in force; the events "
            f"of open partial matches, at most {self.limit:,} of these for each key and pattern: beyond it the oldest "
            f"go to the output {outputs[DROPPED]}.",
        }

    # Where definitions are read ------------------------------------------------------------------------------

    def refusal(self, row: Mapping[str, Any]) -> str | None:
        """Return why a definition makes no sense here, if so. It depends on nothing but the row and the stream's
        columns."""
        name, version, text = row["name"] or "", row["version"] or 0, row["definition"] or ""
        if (fault := name_fault(name)) is not None:
            return fault
        if not 0 < version < 2**63 - 1:
            return f"pattern {name}: a version is a whole number from 1 on, got {version}"
        if bool(row["removed"]) == bool(text):
            return f"pattern {name}: expected either a definition or the word that it is removed"
        if text:
            try:
                self._matcher(text).schemas(dict(self.schema))
            except (TidewheelError, pl.exceptions.PolarsError, ArithmeticError, TypeError, ValueError) as error:
                return f"pattern {name}, version {version}: {error}"
        return None

    def accepted(self, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
        """Make rows of definitions, in the order in which they were read."""
        rows = [row for frame in frames for row in frame.iter_rows(named=True) if self.refusal(row) is None]
        accepted = [(row["name"], row["version"], row["definition"] or None) for row in rows]
        return pl.DataFrame(accepted, schema=DEFINITIONS, orient="row")

    # As a stage ----------------------------------------------------------------------------------------------

    @property
    def side_input(self) -> SideInput | None:
        return self

    @property
    def partitioned_by(self) -> Sequence[str] | None:
        """Definitions go to all key groups."""
        return None

    @property
    def refused_in_batch(self) -> str | None:
        return "looks for patterns that a topic changes while it runs: what it finds depends on when"

    def operator(self, stage: StageInput) -> StageOperator:
        return DynamicPatternsOperator(self, stage.by)

    # In a key group ---------------------------------------------------------------------------------------------

    def change(self, state: Frames, definitions: pl.DataFrame, at: Instant) -> tuple[Frames, Frames]:
        """Rows by output, and the state after these definitions came, in this order. at: the time to report."""
        entries = _read(state)
        after = dict(state)
        dropped: list[pl.DataFrame] = []
        for name, version, definition, reports in definitions.select(*DEFINITIONS, REPORTS).iter_rows():
            old, new = entries.get(name), _Entry(name, version, definition)
            if old is not None and version <= old.version:
                if reports and (version, definition) != (old.version, old.definition):
                    reason = f"version {version} is not above {old.version}, the last one; it does not count"
                    dropped.append(self._note(new, reason, at))
                continue
            in_force = sum(entry.definition is not None for entry in entries.values())
            if definition is not None and (old is None or old.definition is None) and in_force >= MOST_PATTERNS:
                if reports:
                    dropped.append(self._note(new, f"{MOST_PATTERNS:,} patterns are in force, which is the most", at))
                continue
            if old is not None:
                reason = "removed" if definition is None else "replaced"
                dropped.append(self._abandoned(old, after, f"{reason} by version {version}", at))
            entries[name] = new
        return self._together({DROPPED: dropped}), _written(after, entries)

    def step(self, state: Frames, events: pl.DataFrame, watermark: Instant | None) -> tuple[Frames, Frames]:
        """One step of each pattern's matcher. A pattern that breaks is out until it is replaced; the rest goes on."""
        entries = _read(state)
        after = dict(state)
        found: dict[str, list[pl.DataFrame]] = {}
        for entry in _in_force(entries):
            try:
                outputs, matcher_state = self._matcher(entry.definition).step(_own(after, entry), events, watermark)
            except (CheckpointError, MemoryError):
                raise
            except (Exception, pl.exceptions.PanicException) as error:
                # An error of another library says little without its kind; what ours are called is no part of a topic.
                what = f"{error}" if isinstance(error, TidewheelError) else f"{type(error).__name__}: {error}"
                reason = f"failed: {what}"
                at = 0 if watermark is None else watermark - 1
                found.setdefault(DROPPED, []).append(self._abandoned(entry, after, reason, at))
                found[DROPPED].append(self._note(entry, reason, at))
                entries[entry.name] = _Entry(entry.name, entry.version, entry.definition, failed=True)
                continue
            _put(after, entry, matcher_state)
            for name, frame in outputs.items():
                found.setdefault(MATCHER_OUTPUTS[name][0], []).append(self._output_rows(entry, name, frame))
        return self._together(found), _written(after, entries)

    def _matcher(self, definition: str | None) -> Matcher:
        assert definition is not None
        return _matcher(definition, self.keys, self.limit)

    def _abandoned(self, entry: _Entry, state: Frames, reason: str, at: Instant) -> pl.DataFrame:
        """Take the partial matches of a pattern out of the state, and put them out."""
        own = _own(state, entry)
        _put(state, entry, {})
        if not own:
            return pl.DataFrame(schema=self.schemas()[DROPPED])
        rows = self._matcher(entry.definition).abandon(own, dict(self.schema), at=at, reason=reason)
        return self._output_rows(entry, "dropped", rows)

    def _note(self, entry: _Entry, reason: str, at: Instant) -> pl.DataFrame:
        """A row about a pattern itself, of no key."""
        row = {"pattern": entry.name, "version": entry.version, "reason": reason}
        frame = pl.DataFrame([row], schema=self.schemas()[DROPPED])
        return frame.with_columns(pl.lit(at, pl.Int64).cast(_INSTANT).alias(EVENT_TIME))

    def _output_rows(self, entry: _Entry, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """A matcher's rows in the columns that all patterns share."""
        output, known = MATCHER_OUTPUTS[name]
        columns = self.schemas()[output]
        measures = self._matcher(entry.definition).measures
        made = frame.select(pl.exclude(measures.keys()) if measures else pl.all()).with_columns(
            pl.lit(entry.name).alias("pattern"),
            pl.lit(entry.version, pl.Int64).alias("version"),
            pl.col(known).alias(EVENT_TIME),
        )
        if "measures" in columns:
            text = as_json(frame.select(measures.keys())) if measures else pl.repeat("{}", frame.height, eager=True)
            made = made.with_columns(text.alias("measures"))
        return made.select(pl.col(column).cast(kind) for column, kind in columns.items())

    def _together(self, found: Mapping[str, Sequence[pl.DataFrame]]) -> Frames:
        return {output: pl.concat(frames) for output, frames in found.items() if frames}


@lru_cache(maxsize=4 * MOST_PATTERNS)
def _matcher(definition: str, keys: tuple[str, ...], limit: int) -> Matcher:
    """The matcher of a definition, made once in each process."""
    pattern, measures = pattern_from_json(definition)
    if pattern.policy.missing == "fail":
        raise DefinitionError('after_match: missing="fail" would stop all other patterns; use missing="ignore"')
    return Matcher(pattern, keys=keys, measures=measures, limit=limit)


def _read(state: Frames) -> dict[str, _Entry]:
    frame = state.get(_PATTERNS)
    if frame is None:
        return {}
    version = frame["format"][0]
    if version != _VERSION:
        raise CheckpointError(
            f"the patterns of this job were kept in format {version}, this Tidewheel reads {_VERSION}; "
            "start on a new checkpoint, or with the Tidewheel that wrote it"
        )
    return {row[0]: _Entry(*row) for row in frame.select(*DEFINITIONS, "failed").iter_rows()}


def _written(state: Frames, entries: Mapping[str, _Entry]) -> Frames:
    rows = [(_VERSION, e.name, e.version, e.definition, e.failed) for _, e in sorted(entries.items())]
    return {**state, _PATTERNS: pl.DataFrame(rows, schema=_ENTRIES, orient="row")} if rows else state


def _in_force(entries: Mapping[str, _Entry]) -> Iterator[_Entry]:
    return (entry for _, entry in sorted(entries.items()) if entry.definition is not None and not entry.failed)


def _prefix(entry: _Entry) -> str:
    """What the names of the frames of one pattern's matcher begin with."""
    return f"open/{entry.name}/"


def _own(state: Frames, entry: _Entry) -> Frames:
    """The state of one pattern's matcher."""
    prefix = _prefix(entry)
    return {name.removeprefix(prefix): frame for name, frame in state.items() if name.startswith(prefix)}


def _put(state: Frames, entry: _Entry, matcher_state: Frames) -> None:
    prefix = _prefix(entry)
    for name in [name for name in state if name.startswith(prefix)]:
        del state[name]
    state.update({prefix + name: frame for name, frame in matcher_state.items()})
