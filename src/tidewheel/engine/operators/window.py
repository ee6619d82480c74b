"""Windowed aggregation in columns, any window and any trigger: one row of state for each key and window.

What the reference interpreter does window by window is done here to all windows of a key group at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidewheel.engine.operators.lateness import tag_late
from tidewheel.engine.operators.operator import LATE, RESULTS, BatchTime, Outputs, Store
from tidewheel.engine.operators.windows.aggregating_operator import AggregatingOperator
from tidewheel.engine.operators.windows.assignment import (
    END,
    SLICE,
    START,
    merged,
    to_windows,
    with_slices,
)
from tidewheel.engine.operators.windows.pane_builder import INDEX, SHOWN, SHOWN_TIME, SHOWN_TIMING, shown_columns
from tidewheel.engine.operators.windows.partial_aggregates import (
    N,
    finished,
    group,
    merging,
)
from tidewheel.engine.operators.windows.state_layout import SEGMENT, is_spread
from tidewheel.engine.operators.windows.vectorized_triggers import compile_trigger, expected_column
from tidewheel.engine.operators.windows.window_firing import IS_FINISHED, IS_PAST, PANE_GIVEN, UNREPORTED, WindowFiring
from tidewheel.engine.operators.windows.window_state import HINTS, PENDING, WindowState
from tidewheel.model.columns import TIME
from tidewheel.model.panes import FINISHED
from tidewheel.model.time import Instant
from tidewheel.model.windowing import Windowing

__all__ = ["WindowOperator"]

_ROW = "__row"


class WindowOperator(AggregatingOperator):
    """Computes the windows of one key group, a batch at a time."""

    def __init__(self, windowing: Windowing, keys: Sequence[str]) -> None:
        super().__init__(windowing, keys)
        trigger = compile_trigger(windowing.trigger)
        self._trigger_columns = trigger.columns()
        # Whether an event still finds its window open is known here only if that may have been finished before it is
        # closed: such events come as they are.
        self.takes_rows = windowing.trigger.finishes and (windowing.trigger.may_finish or windowing.lateness > 0)
        # Without retractions before each pane the last one is still retracted if nothing is left of its window.
        self._remembers = windowing.retracts
        self._merging = windowing.windows.merging
        self._state = WindowState(windowing, keys)
        self._firing = WindowFiring(windowing, keys, trigger)
        # Windows that merge hold more than a slice, and the earliest event in time is one that was not late.
        self.late_by_slice = not self.takes_rows and not self._merging and windowing.timestamp != "earliest"

    def step(self, store: Store, rows: pl.DataFrame | None, batch_time: BatchTime) -> Outputs:
        """Take a batch's rows of this key group, as `pre_aggregate` made them, and its time."""
        hints = store.get(HINTS)
        fresh: pl.DataFrame | None = None
        if rows is not None and rows.height:
            fresh = self._windows_of(rows, batch_time.watermark_before)
        spread = is_spread(self.windowing.windows, [] if hints is None else hints[SEGMENT].to_list(), 0)
        loaded, old = self._state.load(store, hints, fresh, batch_time, spread)
        if old is None and fresh is None:
            return {}
        late = None
        if fresh is not None and self.takes_rows:
            assert rows is not None
            fresh, late = self._admit(rows, fresh, old, batch_time.watermark_before)
        outputs: dict[str, pl.DataFrame] = {} if late is None else {LATE: late}
        waiting, elsewhere = self._state.pending(store, loaded, spread)
        combined, pending = self._combine(old, fresh, waiting)
        state, panes, pending = self._firing.fire(combined, pending, batch_time)
        if panes is not None:
            outputs[RESULTS] = panes
        self._state.save(store, hints, loaded, state, batch_time, spread)
        held = [part for part in (elsewhere, pending) if part is not None and part.height]
        if held:
            store.put(PENDING, pl.concat(held))
        else:
            store.remove(PENDING)
        return outputs

    # What comes in ------------------------------------------------------------------------------------------------

    def _windows_of(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """Assign rows to windows, without windows that are over."""
        windows = self.windowing.windows
        if self.takes_rows:
            rows = with_slices(windows, rows.with_row_index(_ROW), self.keys)
            rows = rows.select(*self.keys, _ROW, *(name for name in (SLICE, START, END) if name in rows.columns))
        found = to_windows(windows, rows, self.keys)
        if before is not None:
            found = found.filter(pl.col(END) > before - self.windowing.lateness)
        return found

    def _admit(
        self, rows: pl.DataFrame, fresh: pl.DataFrame, old: pl.DataFrame | None, before: Instant | None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Partial aggregates of the rows whose windows have not finished; the others with the reason. Finished windows
        that rows extend come with a count of 0."""
        bounds = [*self.keys, START, END]
        if old is None:
            closed = pl.repeat(False, fresh.height, dtype=pl.Boolean, eager=True)
        elif self._merging:
            both = pl.concat([old.select(*bounds, IS_FINISHED), fresh.select(bounds)], how="diagonal")
            both = both.hstack(merged(self.windowing.windows, both, self.keys))
            done = pl.col(IS_FINISHED).min().over([*self.keys, "__mstart", "__mend"]).fill_null(0) == 1
            closed = both.select(done.alias("closed"))["closed"].tail(fresh.height)
        else:
            joined = fresh.select(bounds).join(
                old.select(*bounds, IS_FINISHED), on=bounds, how="left", maintain_order="left", nulls_equal=True
            )
            closed = joined[IS_FINISHED].fill_null(0) == 1
        open_windows = fresh.filter(~closed)
        accepted = rows.with_row_index(_ROW).join(open_windows.select(_ROW, START, END), on=_ROW, maintain_order="left")
        entries = group(self.windowing, accepted, bounds, before)
        if closed.any():
            shut = fresh.filter(closed).select(bounds).unique(maintain_order=True)
            entries = pl.concat([entries, shut.with_columns(pl.lit(0, pl.Int64).alias(N))], how="diagonal")
        refused = rows.with_row_index(_ROW).join(open_windows.select(_ROW), on=_ROW, how="anti").drop(_ROW)
        if not refused.height:
            return entries, None
        by = pl.lit(0) if before is None else (before - pl.col(TIME)).clip(lower_bound=0)
        return entries, tag_late(refused, pl.lit(FINISHED), by)

    # State ----------------------------------------------------------------------------------------------------------

    def _combine(
        self, old: pl.DataFrame | None, fresh: pl.DataFrame | None, waiting: pl.DataFrame | None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Combine state and new elements to one row for each window; with the retractions that wait."""
        parts = []
        if old is not None:
            parts.append(old.with_columns(pl.lit(1, pl.Int64).alias("__old")))
        if fresh is not None:
            parts.append(fresh.drop(SLICE, _ROW, strict=False))
        rows = pl.concat(parts, how="diagonal")
        for name, kind in self._state_columns(rows).items():
            if name not in rows.columns:
                rows = rows.with_columns(pl.lit(None, kind).alias(name))
        pending = None
        is_known = pl.col("__old").is_not_null()
        by = [*self.keys, START, END]
        if self._merging:
            rows = rows.hstack(merged(self.windowing.windows, rows, self.keys))
            same = (pl.col(START) == pl.col("__mstart")) & (pl.col(END) == pl.col("__mend"))
            is_known &= same
            if self._remembers:
                pending = self._waiting(waiting, rows, same)
            by = [*self.keys, "__mstart", "__mend"]
        carried = [INDEX, IS_PAST, *shown_columns(rows)]
        aggregations = [
            *merging(self.windowing),
            pl.col(N).sum(),
            pl.col("__old").sum(),
            pl.col(UNREPORTED).sum(),
            pl.col(IS_FINISHED).min(),
            *(pl.col(name).filter(is_known).first() for name in carried),
            *(getattr(pl.col(column.name), column.merge)() for column in self._trigger_columns),
            *(pl.col(expected_column(name)).max() for name in self.windowing.trigger.inputs),
            *([pl.col(PANE_GIVEN).max()] if self._firing.notes_panes else []),
        ]
        combined = rows.group_by(by, maintain_order=True).agg(aggregations)
        if self._merging:
            combined = combined.rename({"__mstart": START, "__mend": END})
        return combined.sort([END, START, *self.keys]), pending

    def _state_columns(self, rows: pl.DataFrame) -> dict[str, pl.DataType]:
        integers = [N, "__old", INDEX, IS_PAST, IS_FINISHED, UNREPORTED]
        integers += [column.name for column in self._trigger_columns]
        integers += [expected_column(name) for name in self.windowing.trigger.inputs]
        integers += [PANE_GIVEN] if self._firing.notes_panes else []
        columns: dict[str, pl.DataType] = dict.fromkeys(integers, pl.Int64())
        if self._remembers:
            results = rows.head(0).select(finished(self.windowing)).schema
            columns |= {SHOWN + name: kind for name, kind in results.items()}
            columns |= {SHOWN_TIMING: pl.String(), SHOWN_TIME: pl.Int64()}
        return columns

    def _waiting(self, before: pl.DataFrame | None, rows: pl.DataFrame, same: pl.Expr) -> pl.DataFrame | None:
        """What must be retracted before a merged window comes out: the panes of the windows that are in it now."""
        gone = rows.filter(pl.col("__old").is_not_null() & ~same & pl.col(SHOWN_TIMING).is_not_null())
        columns = [*self.keys, "__mstart", "__mend", START, END, INDEX, *shown_columns(rows)]
        parts = [gone.select(columns)]
        if before is not None:
            moved = rows.filter(pl.col("__old").is_not_null()).select(*self.keys, START, END, "__mstart", "__mend")
            moved = moved.rename({START: "__ostart", END: "__oend"})
            owners = before.rename({"__mstart": "__ostart", "__mend": "__oend"})
            moved = owners.join(moved, on=[*self.keys, "__ostart", "__oend"], nulls_equal=True, maintain_order="left")
            parts.insert(0, moved.select(columns))
        waiting = pl.concat(parts)
        return waiting if waiting.height else None
