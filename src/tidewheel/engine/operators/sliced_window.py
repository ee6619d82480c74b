"""Tumbling and sliding windows that wait for the watermark: slices, not copies.

State holds one partial aggregate for each key and slice of time, however many windows overlap there. Each batch appends
what it brought to a slice as a frame of its own, so nothing is read to be written. Windows that the watermark passes
are put together from their slices, many at once: the slices that all of them share are merged first, and only once.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import polars as pl

from tidewheel.engine.operators.operator import RESULTS, BatchTime, Outputs, Store, check_names
from tidewheel.engine.operators.windows.aggregating_operator import AggregatingOperator
from tidewheel.engine.operators.windows.assignment import END, SLICE, slice_length
from tidewheel.engine.operators.windows.pane_schema import pane_frame
from tidewheel.engine.operators.windows.partial_aggregates import LEFT, N, finished, merging
from tidewheel.model.panes import END_OF_TIME, Timing
from tidewheel.model.time import Instant
from tidewheel.model.triggers import AfterCount, AfterWatermark, EachBatch, Repeatedly, Trigger
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Sliding

__all__ = ["SlicedWindowOperator", "can_slice"]

_MOST_PIECES = 8  # frames of one slice before they are merged into one
_FEW = 8  # slices in a window: sharing their merges is not worth it
_MANY = 32  # windows that are put together at once if they have few slices
_SLICES, _LATE_PANES = "slices/1/", "late_panes/1"  # with the version of what they hold
_MORE = "__more"
_VOID = "__void"
_BACK = "__back"


def can_slice(windowing: Windowing) -> bool:
    """Whether this operator can compute it: aligned windows, nothing early, late events shown in the batch that they
    are in."""
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


class SlicedWindowOperator(AggregatingOperator):
    """Computes the windows of one key group, a batch at a time."""

    late_by_slice = True

    def __init__(self, windowing: Windowing, keys: Sequence[str]) -> None:
        assert isinstance(windowing.windows, Sliding)
        super().__init__(windowing, keys)
        self.windows = windowing.windows
        self._length = slice_length(self.windows)
        self._merging = merging(windowing)

    def step(self, store: Store, rows: pl.DataFrame | None, batch_time: BatchTime) -> Outputs:
        """Take a batch's partial aggregates of this key group and its time."""
        slices = _Slices(self, store)
        panes: list[pl.DataFrame] = []
        if rows is not None and rows.height:
            if batch_time.watermark_before is not None and rows[SLICE].min() < batch_time.watermark_before:  # type: ignore[operator]
                panes += self._late_panes(store, slices, rows, batch_time)
            slices.add(rows)
        if batch_time.watermark is not None and (
            batch_time.watermark_before is None or batch_time.watermark > batch_time.watermark_before
        ):
            panes += self._on_time_panes(store, slices, batch_time.watermark_before, batch_time.watermark)
            self._forget(store, slices, batch_time.watermark_before, batch_time.watermark)
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

    def _on_time_panes(
        self, store: Store, slices: _Slices, before: Instant | None, watermark: Instant
    ) -> list[pl.DataFrame]:
        ends = self._ends(slices.starts(), before, watermark)
        length = self.windows.size // self._length
        # So many windows at a time that merging what they share, and giving each of them the rest, costs least.
        together = math.isqrt(length) if length > _FEW else _MANY
        panes = []
        for first in range(0, len(ends), together):
            chosen = ends[first : first + together]
            merged = self._windows(slices, chosen)
            if self.windowing.weighted:
                # What is void has no pane: the next one is its first.
                self._count(store, merged.filter(pl.col(LEFT) <= 0).with_columns(pl.lit(-1, pl.Int64).alias(_MORE)))
                merged = merged.filter(pl.col(LEFT) > 0)
            last = pl.col(END) + self.windowing.lateness
            last = last.clip(upper_bound=END_OF_TIME) <= watermark
            panes.append(self._shown(merged, pl.lit(0, pl.Int64), pl.lit(Timing.ON_TIME.value), last))
        return panes

    def _windows(self, slices: _Slices, ends: Sequence[Instant]) -> pl.DataFrame:
        """The partial aggregates of these windows, for each end and key."""
        size = self.windows.size
        shared = range(ends[-1] - size, ends[0]) if len(ends) > 1 and ends[-1] - size < ends[0] else range(0)
        inside: list[pl.DataFrame] = []
        parts: list[tuple[Instant, pl.DataFrame]] = []
        for start in slices.between(ends[0] - size, ends[-1]):
            if start in shared:
                inside += slices.frames(start)
                continue
            for end in ends:
                if end - size <= start < end:
                    parts += [(end, frame) for frame in slices.frames(start)]
        if inside:
            core = self._merge(pl.concat(inside), self.keys)
            parts += [(end, core) for end in ends]
        return self._merge(_stacked(parts), [END, *self.keys])

    def _shown(
        self, merged: pl.DataFrame, index: pl.Expr, timing: pl.Expr, last: pl.Expr, *, retraction: bool = False
    ) -> pl.DataFrame:
        end = pl.col(END).clip(upper_bound=END_OF_TIME)
        panes = merged.select(
            *self.keys,
            *finished(self.windowing),
            (pl.col(END) - self.windows.size).alias("__start"),
            end.alias("__end"),
            (end - 1).alias("__event"),
            index.alias("pane_index"),
            timing.alias("pane_timing"),
            last.alias("pane_last"),
            pl.lit(retraction).alias("retraction"),
        )
        return pane_frame(panes.sort("__end", "__start", *self.keys), self.keys, list(self.windowing.aggregates))

    def _late_panes(
        self, store: Store, slices: _Slices, rows: pl.DataFrame, batch_time: BatchTime
    ) -> list[pl.DataFrame]:
        """Panes of windows that the watermark had passed and that still take events."""
        assert batch_time.watermark_before is not None
        assert batch_time.watermark is not None
        lateness, size, by = self.windowing.lateness, self.windows.size, [END, *self.keys]
        ends = self._ends(
            rows[SLICE].unique().to_list(), batch_time.watermark_before - lateness, batch_time.watermark_before
        )
        if not ends:
            return []
        parts = [
            (end, rows.filter(pl.col(SLICE).is_between(end - size, end, closed="left")).drop(SLICE, N)) for end in ends
        ]
        fresh = self._merge(_stacked(parts), by)
        touched = fresh.select(by)
        old = self._held(slices, ends, touched, fresh)
        known = store.get(_LATE_PANES)
        if known is None:
            known = touched.head(0).with_columns(pl.lit(0, pl.Int64).alias(_MORE))
        had = old.select(*by, pl.lit(1, pl.Int64).alias("__had"))
        index = self._joined(self._joined(touched, had, "left"), known, "left").select(
            *by,
            pl.col("__had").fill_null(0),
            (pl.col("__had").fill_null(0) + pl.col(_MORE).fill_null(0)).alias("__index"),
        )
        new = whole = fresh
        if old.height and (self.windowing.mode != "delta" or self.windowing.weighted):
            whole = self._merge(pl.concat([old.select(fresh.columns), fresh]), by)
            new = fresh if self.windowing.mode == "delta" else whole
        index = self._with_void(index, old, whole)
        last = (pl.col(END) + lateness).clip(upper_bound=END_OF_TIME) <= batch_time.watermark
        timing = pl.when(pl.col("__index") == 0).then(pl.lit("ON_TIME")).otherwise(pl.lit("LATE"))
        shown = self._shown(self._joined(new, index.filter(~pl.col(_VOID))), pl.col("__index"), timing, last)
        back = self._joined(old, index.filter(_BACK))
        if back.height:
            was = pl.when(pl.col("__index") <= 1).then(pl.lit("ON_TIME")).otherwise(pl.lit("LATE"))
            taken = self._shown(back, pl.col("__index") - 1, was, pl.lit(False), retraction=True)
            falling = [False] * (2 + len(self.keys)) + [True]
            shown = pl.concat([taken, shown]).sort(
                ["window_end", "window_start", *self.keys, "retraction"], descending=falling
            )
        # A window that has held anything counts as shown once; the table has the rest.
        self._count(store, index.with_columns((pl.col("__had") - pl.col(_VOID).cast(pl.Int64)).alias(_MORE)))
        return [shown] if shown.height else []

    def _with_void(self, index: pl.DataFrame, old: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
        """Mark the windows that are void, so that there is no pane, and those whose last pane is retracted."""
        mode = self.windowing.mode
        if not self.windowing.weighted:
            back = pl.lit(mode == "retracting") & (pl.col("__had") > 0)
            return index.with_columns(pl.lit(False).alias(_VOID), back.alias(_BACK))
        by = [END, *self.keys]
        before, after = (frame.select(*by, pl.col(LEFT).alias(name)) for frame, name in ((old, _BACK), (whole, _VOID)))
        index = self._joined(self._joined(index, before, "left"), after, "left")
        void, held = pl.col(_VOID) <= 0, pl.col(_BACK).fill_null(0) > 0
        if mode == "delta":
            return index.with_columns(void & (pl.col("__index") == 0), pl.lit(False).alias(_BACK))
        return index.with_columns(void, held if mode == "retracting" else held & void)

    def _count(self, store: Store, more: pl.DataFrame) -> None:
        """Note how many more panes than one these windows have given."""
        by = [END, *self.keys]
        more = more.filter(pl.col(_MORE) != 0).select(*by, _MORE)
        if not more.height:
            return
        known = store.get(_LATE_PANES)
        parts = [more] if known is None else [known.select(more.columns), more]
        store.put(_LATE_PANES, pl.concat(parts).group_by(by, maintain_order=True).agg(pl.sum(_MORE)))

    def _held(
        self, slices: _Slices, ends: Sequence[Instant], touched: pl.DataFrame, fresh: pl.DataFrame
    ) -> pl.DataFrame:
        """The partial aggregates of the touched windows before this batch."""
        parts = [
            (end, frame)
            for end in ends
            for start in slices.between(end - self.windows.size, end)
            for frame in slices.frames(start)
        ]
        if not parts:
            return fresh.head(0)
        return self._merge(self._joined(_stacked(parts), touched, "semi"), [END, *self.keys])

    def _joined(
        self, frame: pl.DataFrame, other: pl.DataFrame, how: Literal["inner", "left", "semi"] = "inner"
    ) -> pl.DataFrame:
        return frame.join(other, on=[END, *self.keys], how=how, nulls_equal=True, maintain_order="left")

    def _merge(self, frame: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
        return frame.group_by(by, maintain_order=True).agg(self._merging)

    def _forget(self, store: Store, slices: _Slices, before: Instant | None, watermark: Instant) -> None:
        limit = watermark - self.windowing.lateness
        size, every, offset = self.windows.size, self.windows.every, self.windows.offset
        for start in slices.starts():
            last = (start - offset) // every * every + offset + size
            if last <= limit:
                slices.forget(start)
            elif last <= watermark and (before is None or last > before):
                slices.compact(start)
        known = store.get(_LATE_PANES)
        if known is not None:
            still_open = known.filter(pl.col(END) > limit)
            if still_open.height == 0:
                store.remove(_LATE_PANES)
            elif still_open.height < known.height:
                store.put(_LATE_PANES, still_open)


def _stacked(parts: Sequence[tuple[Instant, pl.DataFrame]]) -> pl.DataFrame:
    """Concatenate frames, each row with the end of its window."""
    ends = np.repeat([end for end, _ in parts], [frame.height for _, frame in parts])
    return pl.concat([frame for _, frame in parts]).with_columns(pl.Series(END, ends, pl.Int64))


def _name(start: Instant, piece: int) -> str:
    return f"{_SLICES}{start}.{piece}"


class _Slices:
    """The slices of a key group in its store, by start and piece: one piece for each batch that brought something."""

    def __init__(self, operator: SlicedWindowOperator, store: Store) -> None:
        self._operator = operator
        self._store = store
        self._pieces: dict[Instant, list[int]] = {}
        names = store.names()
        check_names("this window", names, (_SLICES, _LATE_PANES))
        for name in names:
            if name.startswith(_SLICES):
                start, _, piece = name.removeprefix(_SLICES).partition(".")
                self._pieces.setdefault(int(start), []).append(int(piece))
        for pieces in self._pieces.values():
            pieces.sort()
        self._fresh: dict[Instant, pl.DataFrame] = {}
        self._read: dict[Instant, list[pl.DataFrame]] = {}
        self._to_compact: set[Instant] = set()
        self._sorted: list[Instant] | None = None

    def starts(self) -> list[Instant]:
        """The slices that hold anything."""
        return sorted({*self._pieces, *self._fresh})

    def between(self, start: Instant, end: Instant) -> list[Instant]:
        """The slices that begin in this stretch of time."""
        if self._sorted is None:
            self._sorted = self.starts()
        return self._sorted[bisect_left(self._sorted, start) : bisect_left(self._sorted, end)]

    def add(self, rows: pl.DataFrame) -> None:
        """Add the partial aggregates of a batch."""
        self._sorted = None
        merged = self._operator._merge(rows.drop(N), [SLICE, *self._operator.keys])
        parts = merged.partition_by(SLICE, as_dict=True, include_key=False, maintain_order=True)
        self._fresh |= {int(start): frame for (start,), frame in parts.items()}

    def frames(self, start: Instant) -> list[pl.DataFrame]:
        """Read all partial aggregates of a slice, in the order in which they came."""
        if start not in self._read:
            found = [self._store.get(_name(start, piece)) for piece in self._pieces.get(start, [])]
            self._read[start] = [frame for frame in found if frame is not None]
        fresh = self._fresh.get(start)
        return self._read[start] if fresh is None else [*self._read[start], fresh]

    def forget(self, start: Instant) -> None:
        """Drop a slice that no window needs any more."""
        self._sorted = None
        self._fresh.pop(start, None)
        for piece in self._pieces.pop(start, []):
            self._store.remove(_name(start, piece))

    def compact(self, start: Instant) -> None:
        """Keep a slice, for which only late events are still to come, in one piece: it may be kept for long."""
        if len(self._pieces.get(start, [])) + (start in self._fresh) > 1:
            self._to_compact.add(start)

    def save(self) -> None:
        """Write what is new; many pieces of a slice become one."""
        for start in sorted(self._to_compact | self._fresh.keys()):
            pieces = self._pieces.get(start, [])
            if start not in self._to_compact and len(pieces) < _MOST_PIECES:
                self._store.put(_name(start, pieces[-1] + 1 if pieces else 0), self._fresh[start])
                continue
            whole = self._operator._merge(pl.concat(self.frames(start)), self._operator.keys)
            for piece in pieces:
                self._store.remove(_name(start, piece))
            self._store.put(_name(start, 0), whole)
