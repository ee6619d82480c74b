"""Rows as results: what needs neither a window nor state, each row by itself and at once."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tidewheel.engine.operator import RESULTS, Outputs, Store, Tick
from tidewheel.model.time import Duration, Instant

__all__ = ["EachRow", "EachRowOperator"]


@dataclass(frozen=True)
class EachRow:
    """Every row is a result."""

    def __repr__(self) -> str:
        return "each_row()"


class EachRowOperator:
    """Hands rows on as they are. The time of a row does not matter to it, so none is late."""

    takes_rows = True
    late_by_slice = False

    def judge(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """All rows are welcome."""
        return rows, None

    def first_half(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """The rows as they are."""
        return rows

    def step(self, store: Store, rows: pl.DataFrame | None, tick: Tick) -> Outputs:
        """The rows again."""
        return {} if rows is None else {RESULTS: rows}
