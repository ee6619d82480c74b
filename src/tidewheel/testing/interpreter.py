"""The stages of a pipeline on their references, a bundle at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tidewheel.engine.runtime.flow import Stage
from tidewheel.errors import DefinitionError
from tidewheel.testing.bundles import Bundle
from tidewheel.testing.rows import Row, micros, pane, row

__all__ = ["Step", "Stepped", "interpreter", "late_row", "plain_row", "shown"]

_OURS = ("ingestion_time", "_append_time", "_key")


@dataclass(frozen=True)
class Stepped:
    """The output of a stage for a bundle: its results as they are compared, and as rows for the next stage; late rows;
    and its other outputs."""

    shown: list[Row]
    rows: Sequence[Mapping[str, Any]]
    late: list[Row] = field(default_factory=list)
    outputs: Mapping[str, list[Row]] = field(default_factory=dict)


Step = Callable[[pl.DataFrame, Bundle], Stepped]


def interpreter(stage: Stage) -> Step:
    """The reference interpreter of a stage."""
    reference = stage.operation.reference(stage)
    if reference is None:
        raise DefinitionError(f'Script.run: {stage.operation.noun} runs on="spark" only')

    def step(frame: pl.DataFrame, bundle: Bundle) -> Stepped:
        found = reference(frame, bundle.watermark, bundle.clock)
        return Stepped(
            shown(stage, found.results),
            found.results,
            [late_row(values, reason, by) for values, reason, by in found.late],
            {name: [plain_row(values) for values in rows] for name, rows in found.others.items()},
        )

    return step


def shown(stage: Stage, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The results of a stage as they are compared."""
    return [_pane(stage, values) if stage.operation.gives_panes else plain_row(values) for values in rows]


def _pane(stage: Stage, values: Mapping[str, Any]) -> Row:
    return pane(
        tuple(values[name] for name in stage.keys),
        micros(values["window_start"]),
        micros(values["window_end"]),
        timing=values["pane_timing"],
        index=values["pane_index"],
        first=values["pane_first"],
        last=values["pane_last"],
        event_time=micros(values["event_time"]),
        retraction=values["retraction"],
        aggregates={name: values[name] for name in stage.operation.computed},
    )


def late_row(values: Mapping[str, Any], reason: str, by: int | None) -> Row:
    """A late row as it is compared."""
    return plain_row({**values, "late_reason": reason, "late_by": by})


def plain_row(values: Mapping[str, Any]) -> Row:
    """A row as it is compared: without the columns that every row of a log has."""
    hidden = (*_OURS, "event_time")
    kept = {name: value for name, value in values.items() if name not in hidden and not name.startswith("__")}
    if "at" in kept:
        raise DefinitionError(
            "Script.run: a column 'at' cannot be distinguished from the time of a row; give it another name"
        )
    return row(at=micros(values["event_time"]), **kept)
