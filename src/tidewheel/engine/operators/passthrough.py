"""Rows as results: what needs neither a window nor state, each row by itself and at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from tidewheel.engine.operators.operator import (
    RESULTS,
    BatchTime,
    Operation,
    Outputs,
    Reference,
    ReferenceRows,
    Schema,
    StageInput,
    StageOperator,
    Store,
)
from tidewheel.model.time import Duration, Instant

__all__ = ["Passthrough", "PassthroughOperator"]


@dataclass(frozen=True)
class Passthrough(Operation):
    """Passes every row on as a result."""

    stable_name: ClassVar[str] = "each_row/1"
    noun: ClassVar[str] = "each_row"
    keeps_state: ClassVar[bool] = False
    rejects_rows: ClassVar[bool] = False
    follows_retractions: ClassVar[bool] = True

    def outputs(self, stage: StageInput) -> dict[str, Schema]:
        return {RESULTS: dict(stage.schema)}

    @property
    def results_behind(self) -> Duration | None:
        """Rows are as late as they come: Spark's operators that follow split late rows off."""
        return 0

    @property
    def label(self) -> str:
        return "each_row()"

    def about(self, outputs: Mapping[str, str]) -> dict[str, str]:
        return {
            "What": "every row is a result.",
            "When": "in the batch that reads it; none is late.",
            "Kept": "nothing.",
        }

    def operator(self, stage: StageInput) -> StageOperator:
        return PassthroughOperator()

    def reference(self, stage: StageInput) -> Reference | None:
        return lambda rows, watermark, clock: ReferenceRows(rows.to_dicts())

    def __repr__(self) -> str:
        return "each_row()"


class PassthroughOperator(StageOperator):
    """Hands rows on as they are. The time of a row does not matter to it, so none is late."""

    def split_late(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        return rows, None

    def step(self, store: Store, rows: pl.DataFrame | None, batch_time: BatchTime) -> Outputs:
        return {} if rows is None else {RESULTS: rows}
