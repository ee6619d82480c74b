"""Fixed and sliding windows that wait for the watermark: slices, not copies.

State holds one partial aggregate for each key and slice of time, however many windows overlap there. Each batch appends
what it brought to a slice as a frame of its own, so nothing is read to be written. A window that the watermark passes
is put together from its slices; runs of slices are merged once and shared by the windows that hold them (a tree, as in
"General Incremental Sliding-Window Aggregation", Tangwongsan et al., 2015).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from tidewheel.engine.judging import judge
from tidewheel.engine.operator import RESULTS, Outputs, Store, Tick
from tidewheel.engine.pane_columns import pane_frame
from tidewheel.engine.partials import N, finished, merging, partials
from tidewheel.engine.window_columns import END, SLICE, last_end, slice_length
from tidewheel.model.panes import END_OF_TIME, Timing
from tidewheel.model.time import Duration, Instant
from tidewheel.model.triggers import AfterCount, AfterWatermark, EachBatch, Repeatedly, Trigger
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Sliding

__all__ = ["SlicedOperator", "can_slice"]

_MOST_PIECES = 8  # frames of one slice before they are merged into one
_LATE_PANES = "late"


def can_slice(windowing: Windowing) -> bool:
    """Does this operator answer it: aligned windows, nothing early, late events shown in the batch that they are in."""
    windows = windowing.windows
    return (
        isinstance(windows, Sliding)
        and not windows.stagger
        and windowing.timestamp == "end"
        and _waits_for_watermark(windowing.trigger)
    )


def _waits_for_watermark(trigger: Trigger) -> bool:
    match trigger:
        case Repeatedly(AfterWatermark(early=None, late=None)):
            return True
        case AfterWatermark(early=None, late=EachBatch() | AfterCount(1) | Repeatedly(AfterCount(1) | EachBatch())):
            return True
    return False


class SlicedOperator:
    """One step for one bucket; see the module."""

    takes_rows = False

    def __init__(self, windowing: Windowing, keys: Sequence[str]) -> None:
        assert isinstance(windowing.windows, Sliding)
        self.windowing = windowing
        self.windows = windowing.windows
        self.keys = list(keys)
        self._length = slice_length(self.windows)

    def judge(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The rows that are in time, and the others with the reason."""
        return judge(
            rows,
            before=before,
            last_end=lambda sound: last_end(self.windows, sound, self.keys),
            lateness=self.windowing.lateness,
            future=future,
            arrival=arrival,
        )

    def first_half(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """What `step` takes: can be done anywhere, for any part of a batch."""
        return partials(self.windowing, rows, self.keys, before)

    def step(self, store: Store, rows: pl.DataFrame | None, tick: Tick) -> Outputs:
        """Take a batch's partial aggregates of this bucket and its time."""
        slices = _Slices(self, store)
        panes: list[pl.DataFrame] = []
        if rows is not None and rows.height:
            if tick.before is not None and rows[SLICE].min() < tick.before:  # type: ignore[operator]
                panes += self._late_panes(store, slices, rows, tick)
            slices.add(rows)
        if tick.watermark is not None and (tick.before is None or tick.watermark > tick.before):
            panes += self._on_time_panes(slices, tick.before, tick.watermark)
            self._forget(store, slices, tick.watermark)
        slices.save()
        return {RESULTS: pl.concat(panes)} if panes else {}

    def _ends(self, starts: Iterable[Instant], after: Instant | None, until: Instant) -> list[Instant]:
        """The ends, within these bounds, of all windows that hold one of these slices, in order."""
        size, every, offset = self.windows.size, self.windows.every, self.windows.offset
        found: set[Instant] = set()
        if until >= END_OF_TIME:
            until += size  # the input has ended: so have windows that would end after all time
        for start in starts:
            last = (start - offset) // every * every + offset + size
            end = last - (last - start - 1) // every * every  # the first that ends after the slice begins
            if after is not None and end <= after:
                end += -((end - after - 1) // every) * every
            while end <= min(last, until):
                found.add(end)
                end += every
        return sorted(found)

    def _on_time_panes(self, slices: _Slices, before: Instant | None, watermark: Instant) -> list[pl.DataFrame]:
        panes = []
        for end in self._ends(slices.starts(), before, watermark):
            merged = slices.window(end - self.windows.size, end)
            if merged is not None:
                panes.append(self._shown(merged, end, pl.lit(0, pl.Int64), Timing.ON_TIME, watermark))
        return panes

    def _shown(
        self,
        merged: pl.DataFrame,
        end: Instant,
        index: pl.Expr,
        timing: Timing | pl.Expr,
        watermark: Instant,
        *,
        retraction: bool = False,
    ) -> pl.DataFrame:
        kind = pl.lit(timing.value) if isinstance(timing, Timing) else timing
        last = min(end + self.windowing.lateness, END_OF_TIME) <= watermark and not retraction
        panes = merged.select(
            *self.keys,
            *finished(self.windowing),
            pl.lit(end - self.windows.size, pl.Int64).alias("__start"),
            pl.lit(min(end, END_OF_TIME), pl.Int64).alias("__end"),
            pl.lit(min(end, END_OF_TIME) - 1, pl.Int64).alias("__event"),
            index.alias("pane_index"),
            kind.alias("pane_timing"),
            pl.lit(last).alias("pane_last"),
            pl.lit(retraction).alias("retraction"),
        )
        return pane_frame(panes.sort(self.keys), self.keys, list(self.windowing.aggregates))

    def _late_panes(self, store: Store, slices: _Slices, rows: pl.DataFrame, tick: Tick) -> list[pl.DataFrame]:
        """Panes of windows that the watermark had passed and that still take events."""
        assert tick.before is not None
        assert tick.watermark is not None
        lateness, size = self.windowing.lateness, self.windows.size
        known = store.get(_LATE_PANES) if _LATE_PANES in store.names() else None
        counted: list[pl.DataFrame] = []
        panes: list[pl.DataFrame] = []
        for end in self._ends(rows[SLICE].unique().to_list(), tick.before - lateness - 1, tick.before):
            fresh = rows.filter(pl.col(SLICE).is_between(end - size, end, closed="left"))
            fresh = self._merge(fresh.drop(SLICE, N), self.keys)
            touched = fresh.select(self.keys)
            old = slices.window(end - size, end)
            if old is not None:
                old = old.join(touched, on=self.keys, how="semi", nulls_equal=True, maintain_order="left")
            panes_so_far = touched
            if old is not None:
                panes_so_far = touched.join(
                    old.select(*self.keys, pl.lit(1, pl.Int64).alias("__had")),
                    on=self.keys,
                    how="left",
                    nulls_equal=True,
                    maintain_order="left",
                )
            else:
                panes_so_far = touched.with_columns(pl.lit(None, pl.Int64).alias("__had"))
            extra = pl.lit(None, pl.Int64).alias("__more")
            if known is not None:
                mine = known.filter(pl.col(END) == end).drop(END)
                panes_so_far = panes_so_far.join(
                    mine, on=self.keys, how="left", nulls_equal=True, maintain_order="left"
                )
            else:
                panes_so_far = panes_so_far.with_columns(extra)
            index = panes_so_far.select(
                *self.keys, (pl.col("__had").fill_null(0) + pl.col("__more").fill_null(0)).alias("__index")
            )
            new = fresh
            if self.windowing.mode != "delta" and old is not None:
                new = self._merge(pl.concat([old.select(fresh.columns), fresh]), self.keys)
            new = new.join(index, on=self.keys, nulls_equal=True, maintain_order="left")
            timing = pl.when(pl.col("__index") == 0).then(pl.lit("ON_TIME")).otherwise(pl.lit("LATE"))
            shown = self._shown(new, end, pl.col("__index"), timing, tick.watermark)
            if self.windowing.mode == "retracting" and old is not None and old.height:
                back = old.join(index, on=self.keys, nulls_equal=True, maintain_order="left")
                was = pl.when(pl.col("__index") <= 1).then(pl.lit("ON_TIME")).otherwise(pl.lit("LATE"))
                taken = self._shown(back, end, pl.col("__index") - 1, was, tick.watermark, retraction=True)
                shown = pl.concat([taken, shown]).sort(
                    [*self.keys, "retraction"], descending=[False] * len(self.keys) + [True]
                )
            panes.append(shown)
            more = index.filter(pl.col("__index") > 0).select(*self.keys, pl.lit(end, pl.Int64).alias(END))
            counted.append(more.with_columns(pl.lit(1, pl.Int64).alias("__more")))
        if counted:
            parts = counted if known is None else [known, *(frame.select(known.columns) for frame in counted)]
            table = pl.concat(parts).group_by([*self.keys, END], maintain_order=True).agg(pl.col("__more").sum())
            if table.height:
                store.put(_LATE_PANES, table)
        return panes

    def _merge(self, frame: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
        return frame.group_by(by, maintain_order=True).agg(merging(self.windowing))

    def _forget(self, store: Store, slices: _Slices, watermark: Instant) -> None:
        limit = watermark - self.windowing.lateness
        size, every, offset = self.windows.size, self.windows.every, self.windows.offset
        for start in slices.starts():
            if (start - offset) // every * every + offset + size < limit:
                slices.forget(start)
        if _LATE_PANES in store.names():
            known = store.get(_LATE_PANES)
            assert known is not None
            kept = known.filter(pl.col(END) >= limit)
            if kept.height == 0:
                store.remove(_LATE_PANES)
            elif kept.height < known.height:
                store.put(_LATE_PANES, kept)


class _Slices:
    """The slices of a bucket in its store: `s<start>.<piece>`, and runs of them merged, in memory for one batch."""

    def __init__(self, operator: SlicedOperator, store: Store) -> None:
        self._operator = operator
        self._store = store
        self._pieces: dict[Instant, list[int]] = {}
        for name in store.names():
            if name.startswith("s"):
                start, _, piece = name[1:].partition(".")
                self._pieces.setdefault(int(start), []).append(int(piece))
        for pieces in self._pieces.values():
            pieces.sort()
        self._fresh: dict[Instant, pl.DataFrame] = {}
        self._merged: dict[tuple[int, int], pl.DataFrame | None] = {}

    def starts(self) -> list[Instant]:
        """The slices that hold anything."""
        return sorted({*self._pieces, *self._fresh})

    def add(self, rows: pl.DataFrame) -> None:
        """What a batch brought."""
        self._merged.clear()
        for (start,), frame in rows.drop(N).partition_by(SLICE, as_dict=True, maintain_order=True).items():
            self._fresh[int(start)] = self._operator._merge(frame.drop(SLICE), self._operator.keys)

    def forget(self, start: Instant) -> None:
        """Nobody will ask for it again."""
        self._fresh.pop(start, None)
        for piece in self._pieces.pop(start, []):
            self._store.remove(f"s{start}.{piece}")

    def save(self) -> None:
        """Write what is new."""
        for start, frame in self._fresh.items():
            pieces = self._pieces.get(start, [])
            if len(pieces) >= _MOST_PIECES:
                held = self._merged.get((0, start), None)
                whole = held if held is not None else self._slice(start)
                assert whole is not None
                for piece in pieces:
                    self._store.remove(f"s{start}.{piece}")
                self._store.put(f"s{start}.0", whole)
            else:
                self._store.put(f"s{start}.{pieces[-1] + 1 if pieces else 0}", frame)

    def window(self, start: Instant, end: Instant) -> pl.DataFrame | None:
        """The partial aggregates of all slices from start to end, for each key."""
        length = self._operator._length
        origin = self._operator.windows.offset
        first, last = (start - origin) // length, (end - origin) // length
        parts = []
        while first < last:
            level = 0
            while first % (2 << level) == 0 and first + (2 << level) <= last:
                level += 1
            parts.append(self._run(level, first))
            first += 1 << level
        return self._joined(parts)

    def _run(self, level: int, first: int) -> pl.DataFrame | None:
        """2^level slices from the `first`th on."""
        if level == 0:
            return self._held(first * self._operator._length + self._operator.windows.offset)
        place = (level, first)
        if place not in self._merged:
            half = 1 << (level - 1)
            self._merged[place] = self._joined([self._run(level - 1, first), self._run(level - 1, first + half)])
        return self._merged[place]

    def _held(self, start: Instant) -> pl.DataFrame | None:
        place = (0, start)
        if place not in self._merged:
            self._merged[place] = self._slice(start)
        return self._merged[place]

    def _slice(self, start: Instant) -> pl.DataFrame | None:
        frames = [self._store.get(f"s{start}.{piece}") for piece in self._pieces.get(start, [])]
        frames.append(self._fresh.get(start))
        return self._joined(frames)

    def _joined(self, parts: Sequence[pl.DataFrame | None]) -> pl.DataFrame | None:
        found = [part for part in parts if part is not None]
        if len(found) <= 1:
            return found[0] if found else None
        return self._operator._merge(pl.concat(found), self._operator.keys)
