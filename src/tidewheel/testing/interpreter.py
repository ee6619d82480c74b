"""The stages of a pipeline on the interpreters of the model, a bundle at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tidewheel.engine.each_row import EachRow
from tidewheel.engine.flow import Stage
from tidewheel.engine.looked_up import LookedUp
from tidewheel.engine.matched import DROPPED, TIMED_OUT, PatternMatch
from tidewheel.engine.operator import LATE, RESULTS
from tidewheel.engine.window_columns import TIME
from tidewheel.errors import DefinitionError
from tidewheel.model.deduplicate import DUPLICATES
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME, Element, Pane
from tidewheel.model.process import Process
from tidewheel.model.process_reference import ProcessReference
from tidewheel.model.reference import Reference
from tidewheel.model.repeats import Repeats, RepeatsReference
from tidewheel.model.time import Instant
from tidewheel.model.windowing import Windowing
from tidewheel.patterns.reference import PatternReference
from tidewheel.testing.rows import Row, micros, pane, row
from tidewheel.testing.script import Bundle

__all__ = ["Step", "Stepped", "interpreter", "late_row", "plain_row"]

_OURS = ("ingestion_time", "_append_time", "_key")


@dataclass(frozen=True)
class Stepped:
    """What a stage gives for a bundle: its results as they are shown, and as rows for a stage behind it; late rows; and
    its other outputs."""

    shown: list[Row]
    rows: Sequence[Mapping[str, Any]]
    late: list[Row] = field(default_factory=list)
    outputs: Mapping[str, list[Row]] = field(default_factory=dict)


Step = Callable[[pl.DataFrame, Bundle], Stepped]


def interpreter(stage: Stage) -> Step:
    """What a stage makes of one bundle after the other, by definition."""
    what = stage.what
    if isinstance(what, EachRow):
        return lambda frame, _: _passed(frame.to_dicts())
    if isinstance(what, Process):
        return _processed(stage, what)
    if isinstance(what, Repeats):
        return _deduplicated(what)
    if isinstance(what, PatternMatch):
        return _matched(what)
    if isinstance(what, Windowing):
        return _windowed(stage, what)
    kind = "a lookup" if isinstance(what, LookedUp) else "a MATCH_RECOGNIZE clause"
    raise DefinitionError(f'Script.run: {kind} runs on="spark" only')


def _passed(
    rows: Sequence[Mapping[str, Any]], late: list[Row] | None = None, **outputs: Sequence[Mapping[str, Any]]
) -> Stepped:
    """Rows that are shown as they are."""
    others = {name: [plain_row(values) for values in some] for name, some in outputs.items()}
    return Stepped([plain_row(values) for values in rows], rows, late or [], others)


def _windowed(stage: Stage, windowing: Windowing) -> Step:
    reference = Reference(windowing)

    def step(frame: pl.DataFrame, bundle: Bundle) -> Stepped:
        elements = [
            Element(values[TIME], tuple(values[name] for name in stage.keys), values) for values in frame.to_dicts()
        ]
        output = reference.step(elements, watermark=bundle.watermark, clock=bundle.clock)
        late = [late_row(verdict.element.values, verdict.reason, verdict.by) for verdict in output.late]
        return Stepped(
            [_pane(found) for found in output.panes], [_values(stage, found) for found in output.panes], late
        )

    return step


def _pane(found: Pane) -> Row:
    start, end = _bounds(found)
    return pane(
        found.key,
        start,
        end,
        timing=found.timing.value,
        index=found.index,
        first=found.first,
        last=found.last,
        event_time=found.event_time,
        retraction=found.retraction,
        aggregates=found.values,
    )


def _values(stage: Stage, found: Pane) -> dict[str, Any]:
    """A pane as a row with all columns of the stage's results."""
    start, end = _bounds(found)
    return {
        **dict(zip(stage.keys, found.key, strict=True)),
        **found.values,
        "window_start": start,
        "window_end": end,
        "pane_index": found.index,
        "pane_timing": found.timing.value,
        "pane_first": found.first,
        "pane_last": found.last,
        "event_time": found.event_time,
        "retraction": found.retraction,
    }


def _bounds(found: Pane) -> tuple[Instant | None, Instant | None]:
    return (
        None if found.window.start <= START_OF_TIME else found.window.start,
        None if found.window.end >= END_OF_TIME else found.window.end,
    )


def _processed(stage: Stage, process: Process) -> Step:
    reference = ProcessReference(process, stage.schema)

    def step(frame: pl.DataFrame, bundle: Bundle) -> Stepped:
        found = reference.step(frame, watermark=bundle.watermark, clock=bundle.clock)
        late = [late_row(values, values.pop("reason"), values.pop("late_by")) for values in found.pop(LATE)]
        return _passed(found.pop(RESULTS), late, **found)

    return step


def _deduplicated(repeats: Repeats) -> Step:
    reference = RepeatsReference(repeats)

    def step(frame: pl.DataFrame, bundle: Bundle) -> Stepped:
        kept, again, rejected = reference.step(frame.to_dicts(), watermark=bundle.watermark)
        late = [late_row(values, reason, by) for values, reason, by in rejected]
        return _passed(kept, late, **{DUPLICATES: again})

    return step


def _matched(what: PatternMatch) -> Step:
    reference = PatternReference(what.matcher, what.schema)

    def step(frame: pl.DataFrame, bundle: Bundle) -> Stepped:
        found = reference.step(frame, watermark=bundle.watermark)
        late = [late_row(values, values.pop("reason"), values.pop("late_by")) for values in found["late"]]
        return _passed(found["matches"], late, **{name: found[name] for name in (TIMED_OUT, DROPPED)})

    return step


def late_row(values: Mapping[str, Any], reason: str, by: int | None) -> Row:
    """A late row as it is shown."""
    return plain_row({**values, "late_reason": reason, "late_by": by})


def plain_row(values: Mapping[str, Any]) -> Row:
    """A row as it is shown: without the columns that every row of a log has."""
    hidden = (*_OURS, "event_time")
    kept = {name: value for name, value in values.items() if name not in hidden and not name.startswith("__")}
    if "at" in kept:
        raise DefinitionError("Script.run: a column 'at' cannot be told from the time of a row; call it otherwise")
    return row(at=micros(values["event_time"]), **kept)
