"""Firing windows: which come out in a batch, as which panes, and what the state then says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tidewheel.engine.operators.operator import BatchTime
from tidewheel.engine.operators.windows.assignment import END, START
from tidewheel.engine.operators.windows.pane_builder import INDEX, VOID, PaneBuilder
from tidewheel.engine.operators.windows.partial_aggregates import LEFT, N, partial_columns
from tidewheel.engine.operators.windows.vectorized_trigger import NEVER_DUE, Arrays, TriggerContext, VectorizedTrigger
from tidewheel.engine.operators.windows.vectorized_triggers import expected_column
from tidewheel.model.panes import END_OF_TIME, Timing
from tidewheel.model.time import Duration, Instant
from tidewheel.model.windowing import Windowing

__all__ = ["IS_FINISHED", "IS_PAST", "PANE_GIVEN", "UNREPORTED", "WindowFiring"]

IS_PAST = "__past"
IS_FINISHED = "__finished"
UNREPORTED = "__unreported"
PANE_GIVEN = "__told"
"""In deltas of windows that may be void: has a pane had anything of it, or of what merged into it?"""


@dataclass(slots=True)
class _Progress:
    """How far windows are: what the state notes of them beside partial aggregates, a place for each window."""

    index: np.ndarray
    """Of the next pane."""
    past: np.ndarray
    """Whether a pane has come after the watermark passed the end."""
    done: np.ndarray
    """Whether it has finished: no pane comes any more."""
    unreported: np.ndarray
    """How many elements no pane has shown."""
    trigger: Arrays


@dataclass(frozen=True, slots=True)
class _Passed:
    """Which windows the watermark has passed."""

    before: np.ndarray
    """Their end, already before this batch."""
    now: np.ndarray
    """Their end."""
    over: np.ndarray
    """Their end and the allowed lateness."""

    @classmethod
    def of(cls, ends: np.ndarray, batch_time: BatchTime, lateness: Duration) -> _Passed:
        """Compare the ends of windows with the watermark of a batch."""
        none = np.zeros(len(ends), np.bool_)
        before, now = batch_time.watermark_before, batch_time.watermark
        return cls(
            none if before is None else ends <= before,
            none if now is None else ends <= now,
            none if now is None else np.minimum(ends + lateness, END_OF_TIME) <= now,
        )


class WindowFiring:
    """Fires the windows of one key group, a batch at a time."""

    def __init__(self, windowing: Windowing, keys: Sequence[str], trigger: VectorizedTrigger) -> None:
        self._windowing = windowing
        self._keys = list(keys)
        self._trigger = trigger
        self._pane_builder = PaneBuilder(windowing, keys)
        # Without retractions before each pane the last one is still retracted if nothing is left of its window.
        self._remembers = windowing.retracts
        self._merging = windowing.windows.merging
        self.notes_panes = windowing.weighted and windowing.mode == "delta"

    def fire(
        self, rows: pl.DataFrame, pending: pl.DataFrame | None, batch_time: BatchTime
    ) -> tuple[pl.DataFrame, pl.DataFrame | None, pl.DataFrame | None]:
        """Fire what is due: the new state, the panes, and the retractions that still wait."""
        passed = _Passed.of(rows[END].to_numpy(), batch_time, self._windowing.lateness)
        progress = self._progress(rows)
        at = self._take_elements(rows, progress, passed, batch_time.clock)
        owes = self._owes(rows, pending)
        # A window that closes shows what no pane has shown, whatever its trigger is waiting for.
        closes = ~progress.done & passed.over & ((progress.unreported > 0) | owes)
        shown = self._triggered(rows, progress, passed, at) | closes
        void = shown & self._is_void(rows)
        ended = self._trigger.on_fire(progress.trigger, shown, at)
        panes, current = None, None
        if shown.any():
            chosen = _pane_rows(rows, progress, passed, shown, void, ended)
            current = self._pane_builder.panes(chosen)
            panes = self._pane_builder.with_retractions(chosen, current, pending)
            if pending is not None:
                pending = self._without_owners(pending, chosen)
        unseen = void & (progress.index == 0) & ~owes  # nobody has seen anything of it: as if it had never been
        self._note_panes(progress, passed, shown, void, ended)
        rows = self._with_progress(rows, progress, shown, void)
        if self._remembers and current is not None:
            rows = self._pane_builder.remember(rows, shown, void, current)
        return rows.filter(pl.Series(~passed.over & ~unseen)).drop(N, "__old"), panes, pending

    def _progress(self, rows: pl.DataFrame) -> _Progress:
        """How far windows are according to the state."""
        new = rows["__old"].to_numpy() == 0
        trigger: Arrays = {
            column.name: rows[column.name].fill_null(column.initial).to_numpy().copy()
            for column in self._trigger.columns()
        }
        for column in self._trigger.columns():
            trigger[column.name][new] = column.initial
        for name in self._windowing.trigger.inputs:
            trigger[expected_column(name)] = rows[expected_column(name)].fill_null(-1).to_numpy().copy()
        trigger["__size"] = rows[END].to_numpy()
        return _Progress(
            index=rows[INDEX].fill_null(0).to_numpy().copy(),
            past=rows[IS_PAST].fill_null(0).to_numpy() == 1,
            done=rows[IS_FINISHED].fill_null(0).to_numpy() == 1,
            unreported=rows[UNREPORTED].to_numpy().copy(),
            trigger=trigger,
        )

    def _take_elements(
        self, rows: pl.DataFrame, progress: _Progress, passed: _Passed, clock: Instant
    ) -> TriggerContext:
        """Tell the trigger of the batch's elements; gives the moment at which it is then asked."""
        counts = rows[N].to_numpy()
        if self._merging:
            self._trigger.on_merge(progress.trigger, rows["__old"].to_numpy() > 0, passed.before)
        touched = (counts > 0) & ~progress.done
        self._trigger.on_elements(progress.trigger, touched, counts, clock)
        progress.unreported[touched] += counts[touched]
        return TriggerContext(passed.now, clock, touched)

    def _triggered(self, rows: pl.DataFrame, progress: _Progress, passed: _Passed, at: TriggerContext) -> np.ndarray:
        """For each window whether its trigger lets it fire."""
        due = self._trigger.due(progress.trigger) <= at.clock
        asked = ~progress.done & (at.touched | (passed.now & ~passed.before) | due)
        fires: np.ndarray = asked & self._trigger.should_fire(progress.trigger, at)
        if self._windowing.early_windows == "next":
            fires &= passed.now | self._is_next(rows, ~progress.done & ~passed.now)
        return fires

    def _note_panes(
        self, progress: _Progress, passed: _Passed, shown: np.ndarray, void: np.ndarray, ended: np.ndarray
    ) -> None:
        """Note which windows have fired, and which have finished with that."""
        progress.index[shown & ~void] += 1
        progress.past |= shown & ~void & passed.now
        progress.done |= ended
        progress.unreported[shown] = 0
        for column in self._trigger.columns():
            progress.trigger[column.name][ended] = column.initial

    def _with_progress(
        self, rows: pl.DataFrame, progress: _Progress, shown: np.ndarray, void: np.ndarray
    ) -> pl.DataFrame:
        """The new state of windows, without the elements that no further pane shows."""
        if self._windowing.mode == "delta":
            rows = self._emptied(rows, shown | progress.done)
        elif progress.done.any() and not self._merging:  # a window that merges with others may show its elements again
            rows = self._emptied(rows, progress.done)
        rows = rows.with_columns(
            pl.Series(INDEX, progress.index),
            pl.Series(IS_PAST, progress.past.astype(np.int64)),
            pl.Series(IS_FINISHED, progress.done.astype(np.int64)),
            pl.Series(UNREPORTED, progress.unreported),
            pl.Series("__due", np.where(progress.done, NEVER_DUE, self._trigger.due(progress.trigger))),
            *(pl.Series(column.name, progress.trigger[column.name]) for column in self._trigger.columns()),
        )
        if self.notes_panes:
            rows = rows.with_columns(pl.col(PANE_GIVEN).fill_null(0) | pl.Series((shown & ~void).astype(np.int64)))
        return rows

    def _without_owners(self, pending: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
        """The retractions that still wait when these windows have come out."""
        bounds = [*self._keys, "__mstart", "__mend"]
        mine = chosen.select(*self._keys, pl.col(START).alias("__mstart"), pl.col(END).alias("__mend"))
        return pending.join(mine, on=bounds, how="anti", nulls_equal=True, maintain_order="left")

    def _is_void(self, rows: pl.DataFrame) -> np.ndarray:
        """For each window whether all of it was retracted; in deltas that counts only if no pane has shown any of
        it."""
        if not self._windowing.weighted:
            return np.zeros(rows.height, np.bool_)
        void = pl.col(LEFT) <= 0
        if self.notes_panes:
            void &= pl.col(PANE_GIVEN).fill_null(0) == 0
        result: np.ndarray = rows.select(void)[LEFT].to_numpy()
        return result

    def _owes(self, rows: pl.DataFrame, pending: pl.DataFrame | None) -> np.ndarray:
        """For each window whether panes of others, merged into it, are to be retracted."""
        if pending is None:
            return np.zeros(rows.height, np.bool_)
        owners = pending.select(*self._keys, pl.col("__mstart").alias(START), pl.col("__mend").alias(END)).unique()
        found = rows.select(*self._keys, START, END).join(
            owners.with_columns(pl.lit(True).alias("__owes")),
            on=[*self._keys, START, END],
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        result: np.ndarray = found["__owes"].fill_null(False).to_numpy()
        return result

    def _is_next(self, rows: pl.DataFrame, still_open: np.ndarray) -> np.ndarray:
        marked = rows.select(*self._keys, END).with_columns(pl.Series("__open", still_open))
        least = pl.col(END).filter(pl.col("__open")).min()
        least = least.over(self._keys) if self._keys else least
        result: np.ndarray = marked.select((pl.col(END) == least).fill_null(False).alias("x"))["x"].to_numpy()
        return result

    def _emptied(self, rows: pl.DataFrame, where: np.ndarray) -> pl.DataFrame:
        mask = pl.Series(where)
        return rows.with_columns(
            pl.when(mask).then(None).otherwise(pl.col(name)).alias(name)
            for name in partial_columns(self._windowing, rows)
        )


def _pane_rows(
    rows: pl.DataFrame,
    progress: _Progress,
    passed: _Passed,
    shown: np.ndarray,
    void: np.ndarray,
    ended: np.ndarray,
) -> pl.DataFrame:
    """The windows that come out, each with what its pane says of itself."""
    firm = np.where(progress.past, Timing.LATE.value, Timing.ON_TIME.value)
    timing = np.where(passed.now, firm, Timing.EARLY.value)
    return rows.filter(pl.Series(shown)).with_columns(
        pl.Series("pane_index", progress.index[shown], pl.Int64),
        pl.Series("pane_timing", timing[shown], pl.String),
        pl.Series("pane_last", (ended | passed.over)[shown], pl.Boolean),
        pl.Series(VOID, void[shown], pl.Boolean),
    )
