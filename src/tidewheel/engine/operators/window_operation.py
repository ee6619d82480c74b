"""Windowed aggregation as a stage: its outputs, its description, and the choice of its operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from tidewheel.engine.checkpoint.definition import described_as
from tidewheel.engine.operators.count_window import CountWindowOperator
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
from tidewheel.engine.operators.sliced_window import SlicedWindowOperator, can_slice
from tidewheel.engine.operators.window import WindowOperator
from tidewheel.engine.operators.windows.assignment import slice_length
from tidewheel.engine.operators.windows.pane_schema import PANE_COLUMNS
from tidewheel.engine.operators.windows.partial_aggregates import aggregates
from tidewheel.engine.operators.windows.vectorized_triggers import waits_for_clock
from tidewheel.errors import DefinitionError
from tidewheel.model.columns import TIME
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME, Element, Pane
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant, format_duration
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Count, Global, Session, Sliding
from tidewheel.plain_text import plain

__all__ = ["WindowOperation"]

_HOW = {
    "delta": "each result holds what came since the last one of its window",
    "value": "each result replaces the last one of its window",
    "retracting": "before each new result of a window the last one is retracted (retraction = true)",
}


@dataclass(frozen=True)
class WindowOperation(Operation):
    """Aggregates of the windows of each key."""

    windowing: Windowing

    stable_name: ClassVar[str] = "window/1"
    stored: ClassVar[StoredFields] = StoredFields("windowing")
    noun: ClassVar[str] = "a window"
    follows_retractions: ClassVar[bool] = True
    gives_panes: ClassVar[bool] = True

    # What it needs and gives ---------------------------------------------------------------------------------------

    def needed(self, stage: StageInput) -> Iterable[str] | None:
        """The columns that aggregates and triggers need."""
        asked = {column for aggregate in aggregates(self.windowing).values() for column in aggregate.columns}
        return asked | {*self.windowing.trigger.inputs}

    def outputs(self, stage: StageInput) -> dict[str, Schema]:
        """Panes: the keys, the window, the aggregates, and what the pane is."""
        columns = {name: stage.schema[name] for name in stage.keys}
        columns |= {name: PANE_COLUMNS[name] for name in ("window_start", "window_end")}
        for name, aggregate in aggregates(self.windowing).items():
            if name in PANE_COLUMNS:
                raise DefinitionError(f"aggregate {name}: results have a column of that name already; give it another")
            columns[name] = aggregate.dtype(pl.Schema(stage.schema))
        unlike_outputs(columns, self.others)
        taken = [name for name in stage.keys if name in PANE_COLUMNS]
        if taken:
            raise DefinitionError(f"key_by: results have a column {taken[0]!r} already; rename the key")
        return {RESULTS: columns | {name: kind for name, kind in PANE_COLUMNS.items() if name not in columns}}

    @property
    def computed(self) -> tuple[str, ...]:
        return tuple(self.windowing.aggregates)

    # Time and retractions ------------------------------------------------------------------------------------------

    @property
    def waits_for_clock(self) -> bool:
        """Whether triggers fire in processing time."""
        return waits_for_clock(self.windowing.trigger)

    @property
    def results_behind(self) -> Duration | None:
        """A window's end is behind the watermark by the lateness at most."""
        return self.windowing.lateness if self.windowing.timestamp == "end" else None

    def retracts(self, given: bool) -> bool:
        """Whether panes retract earlier ones, or all rows of a window may be retracted."""
        return self.windowing.retracts

    @property
    def unretracted(self) -> str | None:
        return 'use accumulate("delta"), or accumulate("value") with a trigger that gives one result for each window'

    @property
    def refused_in_front(self) -> str | None:
        """The time of results may be behind the watermark already."""
        if self.windowing.timestamp == "end":
            return None
        return (
            f'window(timestamp="{self.windowing.timestamp}"): results of that time would be late for what follows; '
            'use timestamp="end" in front of another stage'
        )

    # In words ------------------------------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return "window and aggregate"

    @property
    def note(self) -> str | None:
        """Whether a window can show the same rows in several results without retracting any."""
        spec = self.windowing
        again = spec.trigger.fires_early or (spec.lateness > 0 and spec.trigger.fires_late)
        if spec.mode != "value" or not again:
            return None
        return (
            "Note: the next stage sees every result of a window, also those that others replace; use "
            'accumulate("retracting") or accumulate("delta") to have it count each row once.'
        )

    def about(self, outputs: Mapping[str, str]) -> dict[str, str]:
        spec, late = self.windowing, outputs[LATE]
        computed = [f"{name} = {plain(repr(aggregate))}" for name, aggregate in spec.aggregates.items()]
        texts = {"What": f"{', '.join(computed)}.", "Where": f"{plain(repr(spec.windows))}."}
        if isinstance(spec.windows, Count):
            return {
                **texts,
                "When": "once for each window, in the batch in which the watermark passes its last row.",
                "Late": about_late(late),
                "Kept": "rows, until the watermark has passed them and their windows are full; how many rows each key "
                "had, for ever.",
            }
        gone = "; when all rows of a window were retracted, so is its last result"
        if spec.mode == "value":
            gone += " (retraction = true)"
        return {
            **texts,
            "When": self._when(late),
            "How": f"{_HOW[spec.mode]}{gone if spec.weighted and spec.retracts else ''}.",
            "Late": self._late(late),
            "Kept": self._state_text(),
        }

    def _when(self, late: str) -> str:
        spec, trigger = self.windowing, self.windowing.trigger
        parts = [f"{trigger!r}:"]
        which = " (only the open window that ends next)" if spec.early_windows == "next" else ""
        if not trigger.fires_on_time:
            if trigger.fires_early:
                parts.append(f"results when it fires{which};")
            if trigger.finishes:
                parts.append(f"once it has finished, rows go to the output {late};")
            parts.append(f"{'the rest' if trigger.fires_early else 'everything'} {self._closing()}.")
            return " ".join(parts)
        if trigger.fires_early:
            before = "before the input ends" if self._endless else "before the watermark passes the window"
            parts.append(f"early results {before}{which};")
        if self._endless:
            parts.append("a result when the input ends.")
            return " ".join(parts)
        parts.append("a result in the batch in which the watermark passes the window's end;")
        if spec.lateness and trigger.fires_late:
            parts.append("later ones when late rows come.")
        else:
            parts.append("none after that.")
        return " ".join(parts)

    @property
    def _endless(self) -> bool:
        """Whether only the end of the input ends a window."""
        return isinstance(self.windowing.windows, Global)

    @property
    def _never_late(self) -> bool:
        return self._endless or self.windowing.lateness >= END_OF_TIME

    def _closing(self) -> str:
        """Describe when a window closes."""
        if self._never_late:
            return "when the input ends"
        return f"in the batch in which the watermark {self._passes} the window's end"

    @property
    def _passes(self) -> str:
        lateness = self.windowing.lateness
        return f"is {format_duration(lateness)} past" if lateness else "passes"

    def _late(self, late: str) -> str:
        if self._never_late:
            return "rows are accepted however late they come."
        return (
            f"rows are accepted until the watermark {self._passes} their window's end; after that they go to the "
            f"output {late}, with late_reason and late_by."
        )

    def _state_text(self) -> str:
        spec = self.windowing
        windows = spec.windows
        in_slices = can_slice(spec)
        if isinstance(windows, Sliding) and in_slices:
            what, end = f"slice of {format_duration(slice_length(windows))}", "end of the last window that it is in"
        elif isinstance(windows, Session):
            what, end = "session", "end of the session"
        else:
            what, end = "window", "end of the window"
        until = "until the input ends" if self._never_late else f"until the watermark {self._passes} the {end}"
        shown = ", and what it showed last" if spec.retracts and not in_slices else ""
        return f"one partial result for each key and {what}{shown}, {until}."

    def definition(self) -> Mapping[str, Any]:
        return described_as(self.stable_name, self.windowing)

    def __repr__(self) -> str:
        return repr(self.windowing)

    # What runs it --------------------------------------------------------------------------------------------------

    def operator(self, stage: StageInput) -> StageOperator:
        """Make the operator that needs the least: counts, slices, or windows with a trigger each."""
        spec = self.windowing
        if isinstance(spec.windows, Count):
            return CountWindowOperator(spec, spec.windows, stage.by, stage.schema)
        return SlicedWindowOperator(spec, stage.by) if can_slice(spec) else WindowOperator(spec, stage.by)

    def reference(self, stage: StageInput) -> Reference | None:
        from tidewheel.model.reference.windows import Reference as Windows  # only tests need it

        reference = Windows(self.windowing)

        def step(rows: pl.DataFrame, watermark: Instant | None, clock: Instant) -> ReferenceRows:
            elements = [Element(row[TIME], tuple(row[name] for name in stage.keys), row) for row in rows.to_dicts()]
            output = reference.step(elements, watermark=watermark, clock=clock)
            late = [(each.element.values, each.reason, each.by) for each in output.late]
            return ReferenceRows([_row(stage.keys, pane) for pane in output.panes], late)

        return step


def _row(keys: Iterable[str], pane: Pane) -> dict[str, Any]:
    """A pane of the reference as a row with all columns of results."""
    return {
        **dict(zip(keys, pane.key, strict=True)),
        **pane.values,
        "window_start": None if pane.window.start <= START_OF_TIME else pane.window.start,
        "window_end": None if pane.window.end >= END_OF_TIME else pane.window.end,
        "pane_index": pane.index,
        "pane_timing": pane.timing.value,
        "pane_first": pane.first,
        "pane_last": pane.last,
        "event_time": pane.event_time,
        "retraction": pane.retraction,
    }
