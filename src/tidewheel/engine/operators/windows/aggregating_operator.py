"""What operators of windows have in common that aggregate rows before the shuffle: which rows are late, and what their
partial aggregates tell of that."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidewheel.engine.operators.lateness import split_late
from tidewheel.engine.operators.operator import StageOperator
from tidewheel.engine.operators.windows.assignment import SLICE, is_covering, last_end
from tidewheel.engine.operators.windows.partial_aggregates import N, partial_aggregates
from tidewheel.model.columns import TIME
from tidewheel.model.time import Duration, Instant
from tidewheel.model.windowing import Windowing

__all__ = ["AggregatingOperator"]


class AggregatingOperator(StageOperator):
    """Takes partial aggregates of rows, one for each key and slice of time, unless it `takes_rows`."""

    takes_rows = False

    def __init__(self, windowing: Windowing, keys: Sequence[str]) -> None:
        self.windowing = windowing
        self.keys = list(keys)

    def split_late(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Split rows into those in time and the late ones, with the reason."""
        windows = self.windowing.windows
        return split_late(
            rows,
            before=before,
            last_end=lambda sound: last_end(windows, sound, self.keys),
            lateness=self.windowing.lateness,
            future=future,
            arrival=arrival,
            covered=is_covering(windows),
        )

    def pre_aggregate(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """Aggregate rows by key and slice: before the shuffle, for any part of a batch."""
        return rows if self.takes_rows else partial_aggregates(self.windowing, rows, self.keys, before)

    def without_late(self, taken: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """Leave out the partial aggregates of slices whose windows are all over."""
        if before is None or taken[SLICE].min() >= before:  # type: ignore[operator]
            return taken
        in_time, _ = self.split_late(taken.with_columns(pl.col(SLICE).alias(TIME)), before)
        return in_time.drop(TIME)

    def row_count(self, taken: pl.DataFrame) -> int:
        """How many rows are in the partial aggregates."""
        return taken.height if self.takes_rows else int(taken[N].sum())
