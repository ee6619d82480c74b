"""The state of windows in frames, of which a batch reads and writes only those that its events or its time touch."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidewheel.engine.operators.operator import BatchTime, Store, check_names
from tidewheel.engine.operators.windows.assignment import END
from tidewheel.engine.operators.windows.state_layout import SEGMENT, is_spread, segments
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.windowing import Windowing

__all__ = ["HINTS", "PENDING", "WindowState"]

# The number in a name is the version of what is under it.
HINTS = "hints/1"
"""The frame that says when each of the others is due."""
PENDING = "pending/1"
"""The frame of retractions that wait until the window that took another one in fires."""
_WINDOWS = "windows/1/"


class WindowState:
    """Loads and saves the windows of one key group, in frames by segment (see `state_layout`)."""

    def __init__(self, windowing: Windowing, keys: Sequence[str]) -> None:
        self._windowing = windowing
        self._keys = list(keys)

    def load(
        self, store: Store, hints: pl.DataFrame | None, fresh: pl.DataFrame | None, batch_time: BatchTime, spread: bool
    ) -> tuple[list[int], pl.DataFrame | None]:
        """Load the frames that this batch touches: their numbers, and the windows in them."""
        if hints is None:
            check_names("this window", store.names(), (HINTS, PENDING, _WINDOWS))
            return [], None
        due = pl.col("wake_clock") <= batch_time.clock
        if batch_time.watermark is not None:
            due |= pl.col("wake_watermark") <= batch_time.watermark
        if fresh is not None:
            touched = segments(self._windowing.windows, fresh, self._keys, spread=spread)
            due |= pl.col(SEGMENT).is_in(touched.unique().to_list())
        wanted = hints.filter(due)[SEGMENT].to_list()
        if self._windowing.early_windows == "next" and (wanted or fresh is not None):
            wanted = sorted({*wanted, *hints.filter(pl.col("open"))[SEGMENT].to_list()})
        frames = [frame for frame in (store.get(f"{_WINDOWS}{number}") for number in wanted) if frame is not None]
        return wanted, pl.concat(frames) if frames else None

    def pending(
        self, store: Store, loaded: Sequence[int], spread: bool
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Split the retractions that wait into those of these frames and the others."""
        held = store.get(PENDING)
        if held is None or not spread:
            return held, None
        here = segments(self._windowing.windows, held, self._keys, spread=True).is_in(loaded)
        return held.filter(here), held.filter(~here)

    def save(
        self,
        store: Store,
        hints: pl.DataFrame | None,
        loaded: Sequence[int],
        state: pl.DataFrame,
        batch_time: BatchTime,
        spread: bool,
    ) -> None:
        """Write the windows in the frames of their segments, and when each frame is due next."""
        lateness = self._windowing.lateness
        new_hints = []
        now: set[int] = set()
        spread = spread or is_spread(self._windowing.windows, [], state.height)
        state = state.with_columns(segments(self._windowing.windows, state, self._keys, spread=spread))
        for (number,), frame in state.partition_by(SEGMENT, as_dict=True).items():
            now.add(int(number))
            store.put(f"{_WINDOWS}{number}", frame.drop(SEGMENT, "__due"))
            closes = (pl.col(END) + lateness).clip(upper_bound=END_OF_TIME)
            still_open = pl.lit(True) if batch_time.watermark is None else pl.col(END) > batch_time.watermark
            wake = pl.when(still_open).then(END).otherwise(closes)
            ends, is_open = frame.select(wake.min().alias("wake"), still_open.any().alias("open")).row(0)
            new_hints.append((number, ends, frame["__due"].min(), is_open))
        for number in {*loaded} - now:
            store.remove(f"{_WINDOWS}{number}")
        schema = {SEGMENT: pl.Int64, "wake_watermark": pl.Int64, "wake_clock": pl.Int64, "open": pl.Boolean}
        table = pl.DataFrame(new_hints, schema=schema, orient="row")
        if hints is not None:
            table = pl.concat([hints.filter(~pl.col(SEGMENT).is_in([*loaded, *now])), table])
        if table.height:
            store.put(HINTS, table)
        elif hints is not None:
            store.remove(HINTS)
