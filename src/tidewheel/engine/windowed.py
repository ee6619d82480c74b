"""Windowed aggregation in columns, any window and any trigger: one row of state for each key and window.

What the reference interpreter does window by window is done here to all windows of a bucket at once. State is kept in
frames, of which a batch reads and writes only those that its events or its time touch (see `window_segments`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from tidewheel.engine.judging import judge, with_verdict
from tidewheel.engine.operator import LATE, RESULTS, Outputs, Store, Tick
from tidewheel.engine.pane_columns import pane_frame
from tidewheel.engine.partials import HOLD, LATEST, LEFT, N, finished, group, merging, partial_columns, partials
from tidewheel.engine.trigger_columns import NEVER_DUE, Arrays, Moment, compile_trigger, expected_column
from tidewheel.engine.window_columns import END, SLICE, START, TIME, is_covering, last_end, merged, sliced, to_windows
from tidewheel.engine.window_segments import SEGMENT, is_spread, segments
from tidewheel.model.panes import END_OF_TIME, FINISHED, Timing, Window
from tidewheel.model.time import Duration, Instant
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Custom

__all__ = ["WindowedOperator"]

_INDEX = "__index"
_PAST = "__past"
_FINISHED = "__finished"
_UNREPORTED = "__unreported"
_SHOWN = "__shown."  # the values of the last pane
_SHOWN_TIMING = "__shown_timing"  # null if it was retracted, and none followed
_SHOWN_TIME = "__shown_time"
_TOLD = "__told"  # in deltas of windows that may be void: has a pane had anything of it, or of what merged into it?
_VOID = "__void"
_HINTS = "hints"
_PENDING = "pending"
_ROW = "__row"


class WindowedOperator:
    """One step for one bucket; see the module."""

    def __init__(self, windowing: Windowing, keys: Sequence[str]) -> None:
        self.windowing = windowing
        self.keys = list(keys)
        self._trigger = compile_trigger(windowing.trigger)
        # Whether an event still finds its window open is known here only if that may have been finished before it is
        # closed: such events come as they are.
        self.takes_rows = windowing.trigger.finishes and (windowing.trigger.may_finish or windowing.lateness > 0)
        self._retracting = windowing.mode == "retracting"
        # Without retractions before each pane the last one is still retracted if nothing is left of its window.
        self._remembers = windowing.retracts
        self._notes_told = windowing.weighted and windowing.mode == "delta"
        self._merging = windowing.windows.merging
        # Windows that merge hold more than a slice, and the earliest event in time is one that was not late.
        self.late_by_slice = not self.takes_rows and not self._merging and windowing.timestamp != "earliest"

    def judge(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The rows that are in time, and the others with the reason."""
        windows = self.windowing.windows
        return judge(
            rows,
            before=before,
            last_end=lambda sound: last_end(windows, sound, self.keys),
            lateness=self.windowing.lateness,
            future=future,
            arrival=arrival,
            covered=is_covering(windows),
        )

    def first_half(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """What `step` takes: can be done anywhere, for any part of a batch."""
        return rows if self.takes_rows else partials(self.windowing, rows, self.keys, before)

    def step(self, store: Store, rows: pl.DataFrame | None, tick: Tick) -> Outputs:
        """Take a batch's rows of this bucket, as `first_half` made them, and its time."""
        hints = store.get(_HINTS) if _HINTS in store.names() else None
        fresh: pl.DataFrame | None = None
        if rows is not None and rows.height:
            fresh = self._windows_of(rows, tick.before)
        spread = is_spread(self.windowing.windows, [] if hints is None else hints[SEGMENT].to_list(), 0)
        loaded, old = self._load(store, hints, fresh, tick, spread)
        if old is None and fresh is None:
            return {}
        late = None
        if fresh is not None and self.takes_rows:
            assert rows is not None
            fresh, late = self._admit(rows, fresh, old, tick.before)
        outputs: dict[str, pl.DataFrame] = {} if late is None else {LATE: late}
        waiting, elsewhere = self._pending(store, loaded, spread)
        combined, pending = self._combine(old, fresh, waiting)
        state, panes, pending = self._fire(combined, pending, tick)
        if panes is not None:
            outputs[RESULTS] = panes
        self._save(store, hints, loaded, state, tick, spread)
        held = [part for part in (elsewhere, pending) if part is not None and part.height]
        if held:
            store.put(_PENDING, pl.concat(held))
        elif _PENDING in store.names():
            store.remove(_PENDING)
        return outputs

    # What comes in ------------------------------------------------------------------------------------------------

    def _windows_of(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """The windows of the rows, without those that are over."""
        windows = self.windowing.windows
        if self.takes_rows:
            rows = sliced(windows, rows.with_row_index(_ROW), self.keys)
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
            both = pl.concat([old.select(*bounds, _FINISHED), fresh.select(bounds)], how="diagonal")
            both = both.hstack(merged(self.windowing.windows, both, self.keys))
            done = pl.col(_FINISHED).min().over([*self.keys, "__mstart", "__mend"]).fill_null(0) == 1
            closed = both.select(done.alias("closed"))["closed"].tail(fresh.height)
        else:
            joined = fresh.select(bounds).join(
                old.select(*bounds, _FINISHED), on=bounds, how="left", maintain_order="left", nulls_equal=True
            )
            closed = joined[_FINISHED].fill_null(0) == 1
        welcome = fresh.filter(~closed)
        accepted = rows.with_row_index(_ROW).join(welcome.select(_ROW, START, END), on=_ROW, maintain_order="left")
        entries = group(self.windowing, accepted, bounds, before)
        if closed.any():
            shut = fresh.filter(closed).select(bounds).unique(maintain_order=True)
            entries = pl.concat([entries, shut.with_columns(pl.lit(0, pl.Int64).alias(N))], how="diagonal")
        refused = rows.with_row_index(_ROW).join(welcome.select(_ROW), on=_ROW, how="anti").drop(_ROW)
        if not refused.height:
            return entries, None
        by = pl.lit(0) if before is None else (before - pl.col(TIME)).clip(lower_bound=0)
        return entries, with_verdict(refused, pl.lit(FINISHED), by)

    # State ----------------------------------------------------------------------------------------------------------

    def _load(
        self, store: Store, hints: pl.DataFrame | None, fresh: pl.DataFrame | None, tick: Tick, spread: bool
    ) -> tuple[list[int], pl.DataFrame | None]:
        """The frames of state that this batch is about: their numbers, and what they hold."""
        if hints is None:
            return [], None
        due = pl.col("wake_clock") <= tick.clock
        if tick.watermark is not None:
            due |= pl.col("wake_watermark") <= tick.watermark
        if fresh is not None:
            touched = segments(self.windowing.windows, fresh, self.keys, spread=spread)
            due |= pl.col(SEGMENT).is_in(touched.unique().to_list())
        wanted = hints.filter(due)[SEGMENT].to_list()
        if self.windowing.early_windows == "next" and (wanted or fresh is not None):
            wanted = sorted({*wanted, *hints.filter(pl.col("open"))[SEGMENT].to_list()})
        frames = [frame for frame in (store.get(f"w{number}") for number in wanted) if frame is not None]
        return wanted, pl.concat(frames) if frames else None

    def _pending(
        self, store: Store, loaded: Sequence[int], spread: bool
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """The retractions that wait in windows of these frames, and in others."""
        held = store.get(_PENDING) if _PENDING in store.names() else None
        if held is None or not spread:
            return held, None
        here = segments(self.windowing.windows, held, self.keys, spread=True).is_in(loaded)
        return held.filter(here), held.filter(~here)

    def _combine(
        self, old: pl.DataFrame | None, fresh: pl.DataFrame | None, waiting: pl.DataFrame | None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """One row for each window: what was known and what is new; and retractions that wait."""
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
        kept = pl.col("__old").is_not_null()
        by = [*self.keys, START, END]
        if self._merging:
            rows = rows.hstack(merged(self.windowing.windows, rows, self.keys))
            same = (pl.col(START) == pl.col("__mstart")) & (pl.col(END) == pl.col("__mend"))
            kept &= same
            if self._remembers:
                pending = self._waiting(waiting, rows, same)
            by = [*self.keys, "__mstart", "__mend"]
        carried = [_INDEX, _PAST, *(name for name in rows.columns if name.startswith("__shown"))]
        aggregations = [
            *merging(self.windowing),
            pl.col(N).sum(),
            pl.col("__old").sum(),
            pl.col(_UNREPORTED).sum(),
            pl.col(_FINISHED).min(),
            *(pl.col(name).filter(kept).first() for name in carried),
            *(getattr(pl.col(column.name), column.merge)() for column in self._trigger.columns()),
            *(pl.col(expected_column(name)).max() for name in self.windowing.trigger.inputs),
            *([pl.col(_TOLD).max()] if self._notes_told else []),
        ]
        combined = rows.group_by(by, maintain_order=True).agg(aggregations)
        if self._merging:
            combined = combined.rename({"__mstart": START, "__mend": END})
        return combined.sort([END, START, *self.keys]), pending

    def _state_columns(self, rows: pl.DataFrame) -> dict[str, pl.DataType]:
        integers = [N, "__old", _INDEX, _PAST, _FINISHED, _UNREPORTED]
        integers += [column.name for column in self._trigger.columns()]
        integers += [expected_column(name) for name in self.windowing.trigger.inputs]
        integers += [_TOLD] if self._notes_told else []
        columns: dict[str, pl.DataType] = dict.fromkeys(integers, pl.Int64())
        if self._remembers:
            results = rows.head(0).select(finished(self.windowing)).schema
            columns |= {_SHOWN + name: kind for name, kind in results.items()}
            columns |= {_SHOWN_TIMING: pl.String(), _SHOWN_TIME: pl.Int64()}
        return columns

    def _waiting(self, before: pl.DataFrame | None, rows: pl.DataFrame, same: pl.Expr) -> pl.DataFrame | None:
        """What must be retracted before a merged window comes out: the panes of the windows that are in it now."""
        gone = rows.filter(pl.col("__old").is_not_null() & ~same & pl.col(_SHOWN_TIMING).is_not_null())
        shown = [name for name in rows.columns if name.startswith("__shown")]
        columns = [*self.keys, "__mstart", "__mend", START, END, _INDEX, *shown]
        parts = [gone.select(columns)]
        if before is not None:
            moved = rows.filter(pl.col("__old").is_not_null()).select(*self.keys, START, END, "__mstart", "__mend")
            moved = moved.rename({START: "__ostart", END: "__oend"})
            owners = before.rename({"__mstart": "__ostart", "__mend": "__oend"})
            moved = owners.join(moved, on=[*self.keys, "__ostart", "__oend"], nulls_equal=True, maintain_order="left")
            parts.insert(0, moved.select(columns))
        waiting = pl.concat(parts)
        return waiting if waiting.height else None

    def _save(
        self,
        store: Store,
        hints: pl.DataFrame | None,
        loaded: Sequence[int],
        state: pl.DataFrame,
        tick: Tick,
        spread: bool,
    ) -> None:
        lateness = self.windowing.lateness
        new_hints = []
        now: set[int] = set()
        spread = spread or is_spread(self.windowing.windows, [], state.height)
        state = state.with_columns(segments(self.windowing.windows, state, self.keys, spread=spread))
        for (number,), frame in state.partition_by(SEGMENT, as_dict=True).items():
            now.add(int(number))
            store.put(f"w{number}", frame.drop(SEGMENT, "__due"))
            closes = (pl.col(END) + lateness).clip(upper_bound=END_OF_TIME)
            still_open = pl.lit(True) if tick.watermark is None else pl.col(END) > tick.watermark
            wake = pl.when(still_open).then(END).otherwise(closes)
            ends, is_open = frame.select(wake.min().alias("wake"), still_open.any().alias("open")).row(0)
            new_hints.append((number, ends, frame["__due"].min(), is_open))
        for number in {*loaded} - now:
            store.remove(f"w{number}")
        schema = {SEGMENT: pl.Int64, "wake_watermark": pl.Int64, "wake_clock": pl.Int64, "open": pl.Boolean}
        table = pl.DataFrame(new_hints, schema=schema, orient="row")
        if hints is not None:
            table = pl.concat([hints.filter(~pl.col(SEGMENT).is_in([*loaded, *now])), table])
        if table.height:
            store.put(_HINTS, table)
        elif hints is not None:
            store.remove(_HINTS)

    # Firing ---------------------------------------------------------------------------------------------------------

    def _fire(
        self, rows: pl.DataFrame, pending: pl.DataFrame | None, tick: Tick
    ) -> tuple[pl.DataFrame, pl.DataFrame | None, pl.DataFrame | None]:
        """The new state, the panes, and the retractions that still wait."""
        spec = self.windowing
        ends = rows[END].to_numpy()
        counts = rows[N].to_numpy()
        old = rows["__old"].to_numpy() > 0
        done = rows[_FINISHED].fill_null(0).to_numpy() == 1
        unreported = rows[_UNREPORTED].to_numpy().copy()
        past = rows[_PAST].fill_null(0).to_numpy() == 1
        index = rows[_INDEX].fill_null(0).to_numpy().copy()
        state: Arrays = {
            column.name: rows[column.name].fill_null(column.initial).to_numpy().copy()
            for column in self._trigger.columns()
        }
        for column in self._trigger.columns():
            state[column.name][~old] = column.initial
        for name in spec.trigger.inputs:
            state[expected_column(name)] = rows[expected_column(name)].fill_null(-1).to_numpy().copy()
        state["__size"] = ends
        passed_before = np.zeros_like(done) if tick.before is None else ends <= tick.before
        passed = np.zeros_like(done) if tick.watermark is None else ends <= tick.watermark
        closes = np.minimum(ends + spec.lateness, END_OF_TIME)
        over = np.zeros_like(done) if tick.watermark is None else closes <= tick.watermark
        if self._merging:
            self._trigger.settle(state, old, passed_before)
        touched = (counts > 0) & ~done
        self._trigger.on_elements(state, touched, counts, tick.clock)
        unreported[touched] += counts[touched]
        at = Moment(passed, tick.clock, touched)
        asked = ~done & (touched | (passed & ~passed_before) | (self._trigger.due(state) <= tick.clock))
        fires = asked & self._trigger.should_fire(state, at)
        if spec.early_windows == "next":
            fires &= passed | self._is_next(rows, ~done & ~passed)
        # A window that closes shows what no pane has shown, whatever its trigger is waiting for.
        owes = self._owes(rows, pending)
        shown = fires | (~done & over & ((unreported > 0) | owes))
        void = shown & self._is_void(rows)
        ended = self._trigger.on_fire(state, shown, at)
        timing = np.where(passed, np.where(past, Timing.LATE.value, Timing.ON_TIME.value), Timing.EARLY.value)
        panes, current = None, None
        if shown.any():
            chosen = rows.filter(pl.Series(shown)).with_columns(
                pl.Series("pane_index", index[shown], pl.Int64),
                pl.Series("pane_timing", timing[shown], pl.String),
                pl.Series("pane_last", (ended | over)[shown], pl.Boolean),
                pl.Series(_VOID, void[shown], pl.Boolean),
            )
            current = self._panes(chosen)
            panes = self._with_retractions(chosen, current, pending)
            if pending is not None:
                mine = chosen.select(*self.keys, pl.col(START).alias("__mstart"), pl.col(END).alias("__mend"))
                pending = pending.join(
                    mine, on=[*self.keys, "__mstart", "__mend"], how="anti", nulls_equal=True, maintain_order="left"
                )
        unseen = void & (index == 0) & ~owes  # nobody has seen anything of it: as if it had never been
        index[shown & ~void] += 1
        past |= shown & ~void & passed
        done |= ended
        unreported[shown] = 0
        for column in self._trigger.columns():
            state[column.name][ended] = column.initial
        if spec.mode == "delta":
            rows = self._emptied(rows, shown | done)
        elif done.any() and not self._merging:  # a window that merges with others may show its elements again
            rows = self._emptied(rows, done)
        rows = rows.with_columns(
            pl.Series(_INDEX, index),
            pl.Series(_PAST, past.astype(np.int64)),
            pl.Series(_FINISHED, done.astype(np.int64)),
            pl.Series(_UNREPORTED, unreported),
            pl.Series("__due", np.where(done, NEVER_DUE, self._trigger.due(state))),
            *(pl.Series(column.name, state[column.name]) for column in self._trigger.columns()),
        )
        if self._notes_told:
            rows = rows.with_columns(pl.col(_TOLD).fill_null(0) | pl.Series((shown & ~void).astype(np.int64)))
        if self._remembers and current is not None:
            rows = self._remember(rows, shown, void, current)
        keep = np.ones_like(done) if tick.watermark is None else closes > tick.watermark
        rows = rows.filter(pl.Series(keep & ~unseen)).drop(N, "__old")
        return rows, panes, pending

    def _is_void(self, rows: pl.DataFrame) -> np.ndarray:
        """For each window: was all of it retracted? In deltas that is of interest only if none has shown any of it."""
        if not self.windowing.weighted:
            return np.zeros(rows.height, np.bool_)
        void = pl.col(LEFT) <= 0
        if self._notes_told:
            void &= pl.col(_TOLD).fill_null(0) == 0
        result: np.ndarray = rows.select(void)[LEFT].to_numpy()
        return result

    def _owes(self, rows: pl.DataFrame, pending: pl.DataFrame | None) -> np.ndarray:
        """For each window: are there panes of others, merged into it, to be retracted?"""
        if pending is None:
            return np.zeros(rows.height, np.bool_)
        owners = pending.select(*self.keys, pl.col("__mstart").alias(START), pl.col("__mend").alias(END)).unique()
        found = rows.select(*self.keys, START, END).join(
            owners.with_columns(pl.lit(True).alias("__owes")),
            on=[*self.keys, START, END],
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        result: np.ndarray = found["__owes"].fill_null(False).to_numpy()
        return result

    def _is_next(self, rows: pl.DataFrame, still_open: np.ndarray) -> np.ndarray:
        marked = rows.select(*self.keys, END).with_columns(pl.Series("__open", still_open))
        least = pl.col(END).filter(pl.col("__open")).min()
        least = least.over(self.keys) if self.keys else least
        result: np.ndarray = marked.select((pl.col(END) == least).fill_null(False).alias("x"))["x"].to_numpy()
        return result

    def _panes(self, chosen: pl.DataFrame) -> pl.DataFrame:
        """Values and time of the panes, one row for each that fires."""
        end = pl.col(END) - 1
        match self.windowing.timestamp:
            case "latest":
                time = pl.coalesce(pl.col(LATEST), end)
            case "earliest":
                time = pl.coalesce(pl.col(HOLD), end)
            case _:
                time = end
        panes = chosen.select(
            *self.keys,
            pl.col(START).alias("__start"),
            pl.col(END).alias("__end"),
            time.alias("__event"),
            *finished(self.windowing),
            "pane_index",
            "pane_timing",
            "pane_last",
            pl.lit(False).alias("retraction"),
        )
        if self.windowing.timestamp == "earliest" and isinstance(self.windowing.windows, Custom):
            stamp = self.windowing.windows.stamp
            bounds = zip(chosen[START].to_list(), chosen[END].to_list(), chosen[HOLD].to_list(), strict=True)
            moved = [end - 1 if time is None else stamp(Window(start, end), time) for start, end, time in bounds]
            panes = panes.with_columns(pl.Series("__event", moved, pl.Int64))
        return panes

    def _with_retractions(
        self, chosen: pl.DataFrame, current: pl.DataFrame, pending: pl.DataFrame | None
    ) -> pl.DataFrame:
        names = list(self.windowing.aggregates)
        place = pl.int_range(pl.len(), dtype=pl.Int64).alias("__place")
        parts = [current.with_columns(place, pl.lit(2).alias("__turn")).filter(~chosen[_VOID])]
        if self._remembers:
            chosen = chosen.with_columns(place).filter(pl.lit(self._retracting) | pl.col(_VOID))
            again = chosen.filter(pl.col(_SHOWN_TIMING).is_not_null())
            if again.height:
                parts.append(self._retracted(again, pl.col("pane_index") - 1, names, turn=1))
            if pending is not None:
                owners = chosen.select(
                    *self.keys, pl.col(START).alias("__mstart"), pl.col(END).alias("__mend"), "__place"
                )
                gone = pending.join(
                    owners, on=[*self.keys, "__mstart", "__mend"], nulls_equal=True, maintain_order="left"
                )
                if gone.height:
                    parts.append(self._retracted(gone, pl.col(_INDEX) - 1, names, turn=0))
        panes = pl.concat(parts, how="vertical_relaxed").sort("__place", "__turn", "__end", "__start")
        return pane_frame(panes.drop("__place", "__turn"), self.keys, names)

    def _retracted(self, rows: pl.DataFrame, index: pl.Expr, names: Sequence[str], *, turn: int) -> pl.DataFrame:
        return rows.select(
            *self.keys,
            pl.col(START).alias("__start"),
            pl.col(END).alias("__end"),
            pl.col(_SHOWN_TIME).alias("__event"),
            *(pl.col(_SHOWN + name).alias(name) for name in names),
            index.alias("pane_index"),
            pl.col(_SHOWN_TIMING).alias("pane_timing"),
            pl.lit(False).alias("pane_last"),
            pl.lit(True).alias("retraction"),
            "__place",
            pl.lit(turn).alias("__turn"),
        )

    def _emptied(self, rows: pl.DataFrame, where: np.ndarray) -> pl.DataFrame:
        mask = pl.Series(where)
        return rows.with_columns(
            pl.when(mask).then(None).otherwise(pl.col(name)).alias(name)
            for name in partial_columns(self.windowing, rows)
        )

    def _remember(self, rows: pl.DataFrame, shown: np.ndarray, void: np.ndarray, current: pl.DataFrame) -> pl.DataFrame:
        """What the last pane of each window showed: the next one retracts it. Of void windows it is retracted."""
        places = np.cumsum(shown) - 1
        index = pl.Series(np.where(shown, places, 0))
        mask = pl.Series(shown)
        names = {_SHOWN + name: name for name in self.windowing.aggregates}
        names |= {_SHOWN_TIMING: "pane_timing", _SHOWN_TIME: "__event"}
        rows = rows.with_columns(
            pl.when(mask).then(current[source].gather(index)).otherwise(pl.col(name)).alias(name)
            for name, source in names.items()
        )
        return rows.with_columns(pl.when(~pl.Series(void)).then(pl.col(name)).alias(name) for name in names)
