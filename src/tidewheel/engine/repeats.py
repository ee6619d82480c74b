"""Exact repeats on one bucket: rows are remembered in slices of event time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from tidewheel.engine.judging import judge
from tidewheel.engine.operator import RESULTS, Outputs, Store, Tick
from tidewheel.engine.window_columns import TIME
from tidewheel.model.deduplicate import DUPLICATES
from tidewheel.model.panes import START_OF_TIME
from tidewheel.model.repeats import Repeats
from tidewheel.model.time import Duration, Instant

__all__ = ["RepeatsOperator"]

_SLICE: Duration = 10_000_000
_PREFIX = "seen/1/"  # with the version of what is kept


class RepeatsOperator:
    """Rows that came before are known by their columns and time (`seen/<version>/<start of the slice>`). A batch reads
    and writes the slices that its rows are in, and forgets those that the watermark has left behind the horizon."""

    takes_rows = True
    late_by_slice = False

    def __init__(self, repeats: Repeats, schema: Mapping[str, pl.DataType]) -> None:
        self.repeats = repeats
        self._schema = [*schema]
        self._same = [name for name in repeats.columns if name != "event_time"] + [TIME]

    def judge(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The rows that are not behind the watermark by more than the horizon, and the others with the reason."""
        return judge(
            rows,
            before=before,
            last_end=lambda sound: sound[TIME] + 1,
            lateness=self.repeats.kept,
            future=future,
            arrival=arrival,
        )

    def first_half(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """The rows: all of them have to be seen."""
        return rows

    def step(self, store: Store, rows: pl.DataFrame | None, tick: Tick) -> Outputs:
        """Take the batch's rows that are in time; give the first of equal ones and, apart, the repeats."""
        kept: list[pl.DataFrame] = []
        if rows is not None and rows.height:
            numbers = (rows[TIME].to_numpy() - START_OF_TIME) // _SLICE
            slices = np.unique(numbers)
            for number in slices:
                part = rows if len(slices) == 1 else rows.filter(pl.Series(numbers == number))
                kept.append(self._marked(store, f"{_PREFIX}{number:020d}", part))
        if tick.watermark is not None:
            self._forget(store, tick.watermark)
        if not kept:
            return {}
        marked = pl.concat(kept)
        first = pl.col("__first")
        outputs = {RESULTS: marked.filter(first), DUPLICATES: marked.filter(~first)}
        return {name: frame.select(self._schema) for name, frame in outputs.items()}

    def _marked(self, store: Store, name: str, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of a slice, with whether they are new."""
        values = rows.select(self._same)
        new = values.with_row_index("__row").unique(self._same, keep="first", maintain_order=True)
        seen = store.get(name)
        if seen is not None:
            new = new.join(seen, on=self._same, how="anti", nulls_equal=True, maintain_order="left")
        first = np.zeros(rows.height, dtype=np.bool_)
        first[new["__row"].to_numpy()] = True
        if new.height:
            fresh = new.drop("__row")
            store.put(name, fresh if seen is None else pl.concat([seen, fresh]))
        return rows.with_columns(pl.Series("__first", first))

    def _forget(self, store: Store, watermark: Instant) -> None:
        for name in store.names():
            end = (int(name.removeprefix(_PREFIX)) + 1) * _SLICE + START_OF_TIME
            if end <= watermark - self.repeats.kept:
                store.remove(name)
