"""The panes of windows that fire, and the retractions of what their last panes have shown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from tidewheel.engine.operators.windows.assignment import END, START
from tidewheel.engine.operators.windows.pane_schema import pane_frame
from tidewheel.engine.operators.windows.partial_aggregates import (
    HOLD,
    LATEST,
    finished,
)
from tidewheel.model.panes import Window
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Custom

__all__ = ["INDEX", "SHOWN", "SHOWN_TIME", "SHOWN_TIMING", "VOID", "PaneBuilder", "shown_columns"]

INDEX = "__index"
"""How many panes of the window there have been."""
SHOWN = "__shown."
"""Before the names of columns: the values of the last pane."""
SHOWN_TIMING = "__shown_timing"
"""The timing of the last pane; null if it was retracted, and none followed."""
SHOWN_TIME = "__shown_time"
"""The event time of the last pane."""
VOID = "__void"
"""Whether all of a window was retracted."""


def shown_columns(rows: pl.DataFrame) -> list[str]:
    """The columns that hold what the last pane of a window was."""
    return [name for name in rows.columns if name.startswith(SHOWN) or name in (SHOWN_TIMING, SHOWN_TIME)]


class PaneBuilder:
    """Makes panes of the state of windows; one row of state for each window that fires."""

    def __init__(self, windowing: Windowing, keys: Sequence[str]) -> None:
        self._windowing = windowing
        self._keys = list(keys)

    def panes(self, chosen: pl.DataFrame) -> pl.DataFrame:
        """Make the panes: one row with values and time for each window that fires."""
        end = pl.col(END) - 1
        match self._windowing.timestamp:
            case "latest":
                time = pl.coalesce(pl.col(LATEST), end)
            case "earliest":
                time = pl.coalesce(pl.col(HOLD), end)
            case _:
                time = end
        panes = chosen.select(
            *self._keys,
            pl.col(START).alias("__start"),
            pl.col(END).alias("__end"),
            time.alias("__event"),
            *finished(self._windowing),
            "pane_index",
            "pane_timing",
            "pane_last",
            pl.lit(False).alias("retraction"),
        )
        if self._windowing.timestamp == "earliest" and isinstance(self._windowing.windows, Custom):
            stamp = self._windowing.windows.stamp
            bounds = zip(chosen[START].to_list(), chosen[END].to_list(), chosen[HOLD].to_list(), strict=True)
            moved = [end - 1 if time is None else stamp(Window(start, end), time) for start, end, time in bounds]
            panes = panes.with_columns(pl.Series("__event", moved, pl.Int64))
        return panes

    def with_retractions(
        self, chosen: pl.DataFrame, current: pl.DataFrame, pending: pl.DataFrame | None
    ) -> pl.DataFrame:
        """The panes, each after the retractions of what it replaces."""
        names = list(self._windowing.aggregates)
        place = pl.int_range(pl.len(), dtype=pl.Int64).alias("__place")
        parts = [current.with_columns(place, pl.lit(2).alias("__turn")).filter(~chosen[VOID])]
        if self._windowing.retracts:
            chosen = chosen.with_columns(place).filter(pl.lit(self._windowing.mode == "retracting") | pl.col(VOID))
            again = chosen.filter(pl.col(SHOWN_TIMING).is_not_null())
            if again.height:
                parts.append(self._retracted(again, pl.col("pane_index") - 1, names, turn=1))
            if pending is not None:
                owners = chosen.select(
                    *self._keys, pl.col(START).alias("__mstart"), pl.col(END).alias("__mend"), "__place"
                )
                gone = pending.join(
                    owners, on=[*self._keys, "__mstart", "__mend"], nulls_equal=True, maintain_order="left"
                )
                if gone.height:
                    parts.append(self._retracted(gone, pl.col(INDEX) - 1, names, turn=0))
        panes = pl.concat(parts, how="vertical_relaxed").sort("__place", "__turn", "__end", "__start")
        return pane_frame(panes.drop("__place", "__turn"), self._keys, names)

    def _retracted(self, rows: pl.DataFrame, index: pl.Expr, names: Sequence[str], *, turn: int) -> pl.DataFrame:
        return rows.select(
            *self._keys,
            pl.col(START).alias("__start"),
            pl.col(END).alias("__end"),
            pl.col(SHOWN_TIME).alias("__event"),
            *(pl.col(SHOWN + name).alias(name) for name in names),
            index.alias("pane_index"),
            pl.col(SHOWN_TIMING).alias("pane_timing"),
            pl.lit(False).alias("pane_last"),
            pl.lit(True).alias("retraction"),
            "__place",
            pl.lit(turn).alias("__turn"),
        )

    def remember(self, rows: pl.DataFrame, shown: np.ndarray, void: np.ndarray, current: pl.DataFrame) -> pl.DataFrame:
        """Note what the last pane of each window showed, for the next one to retract; void windows show nothing."""
        places = np.cumsum(shown) - 1
        index = pl.Series(np.where(shown, places, 0))
        mask = pl.Series(shown)
        names = {SHOWN + name: name for name in self._windowing.aggregates}
        names |= {SHOWN_TIMING: "pane_timing", SHOWN_TIME: "__event"}
        rows = rows.with_columns(
            pl.when(mask).then(current[source].gather(index)).otherwise(pl.col(name)).alias(name)
            for name, source in names.items()
        )
        return rows.with_columns(pl.when(~pl.Series(void)).then(pl.col(name)).alias(name) for name in names)
