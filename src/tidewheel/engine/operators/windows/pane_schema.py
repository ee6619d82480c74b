"""The columns of results: the keys, the window, the aggregates, and what the pane is."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidewheel.model.panes import END_OF_TIME, START_OF_TIME

__all__ = ["INSTANT", "PANE_COLUMNS", "pane_frame"]

INSTANT = pl.Datetime("us", "UTC")

PANE_COLUMNS: dict[str, pl.DataType] = {
    "window_start": INSTANT,
    "window_end": INSTANT,
    "pane_index": pl.Int64(),
    "pane_timing": pl.String(),
    "pane_first": pl.Boolean(),
    "pane_last": pl.Boolean(),
    "retraction": pl.Boolean(),
    "event_time": INSTANT,
}
"""What every result of a window has besides its keys and aggregates. The bounds of a window without bounds are null."""


def pane_frame(panes: pl.DataFrame, keys: Sequence[str], names: Sequence[str]) -> pl.DataFrame:
    """Results as users see them, of frames with `__start`, `__end` and `__event` in µs."""
    start, end = pl.col("__start"), pl.col("__end")
    return panes.select(
        *keys,
        pl.when(start > START_OF_TIME).then(start).cast(INSTANT).alias("window_start"),
        pl.when(end < END_OF_TIME).then(end).cast(INSTANT).alias("window_end"),
        *names,
        "pane_index",
        "pane_timing",
        (pl.col("pane_index") == 0).alias("pane_first"),
        "pane_last",
        "retraction",
        pl.col("__event").cast(INSTANT).alias("event_time"),
    )
