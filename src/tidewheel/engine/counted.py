"""Windows of so many elements, in columns: events wait until the watermark has passed them, and are then numbered in
the order of event time."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidewheel.engine import event_buffer
from tidewheel.engine.judging import judge
from tidewheel.engine.operator import RESULTS, Outputs, Store, Tick
from tidewheel.engine.pane_columns import pane_frame
from tidewheel.engine.partials import aggregates, finished, group
from tidewheel.engine.window_columns import END, START, TIME
from tidewheel.model.panes import END_OF_TIME, Timing
from tidewheel.model.time import Duration, Instant
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Count

__all__ = ["CountedOperator"]

_ARRIVAL = "__arrival"
_NUMBER = "__number"
_WINDOW = "__window"
_HINT = "hint"
_OPEN = "open"
_COUNTS = "counts"
_COUNT = "__count"


class CountedOperator:
    """One step for one bucket. The store holds the events that wait, those in windows that are not full yet (`open`,
    numbered), and how many each key has had (`counts`)."""

    takes_rows = True
    late_by_slice = False

    def __init__(self, windowing: Windowing, keys: Sequence[str]) -> None:
        assert isinstance(windowing.windows, Count)
        self.windowing = windowing
        self.windows = windowing.windows
        self.keys = list(keys)

    def judge(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The rows that are not behind the watermark, and the others with the reason."""
        return judge(
            rows, before=before, last_end=lambda sound: sound[TIME] + 1, lateness=0, future=future, arrival=arrival
        )

    def first_half(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """The columns that are needed."""
        needed = dict.fromkeys([*self.keys, TIME])
        for aggregate in aggregates(self.windowing).values():
            needed |= dict.fromkeys(aggregate.columns)
        return rows.select(list(needed))

    def step(self, store: Store, rows: pl.DataFrame | None, tick: Tick) -> Outputs:
        """Take a batch's rows of this bucket and its time; give the windows that are full."""
        released = self._release(store, rows, tick.watermark)
        ended = tick.watermark is not None and tick.watermark >= END_OF_TIME
        held = store.get(_OPEN) if _OPEN in store.names() and (released.height or ended) else None
        if not released.height and held is None:
            return {}
        events = held
        if released.height:
            numbered = self._numbered(store, released)
            events = numbered if held is None else pl.concat([held, numbered.select(held.columns)])
        assert events is not None
        panes = self._panes(events, ended=ended)
        self._keep(store, events, ended=ended)
        return {RESULTS: panes} if panes.height else {}

    def _release(self, store: Store, rows: pl.DataFrame | None, watermark: Instant | None) -> pl.DataFrame:
        """The events that the watermark has passed, in order; the others wait."""
        hint = store.get(_HINT) if _HINT in store.names() else None
        arrivals = 0 if hint is None else int(hint["arrivals"][0])
        pending = []
        if watermark is not None:
            pending += event_buffer.take(store, watermark)
        if rows is not None and rows.height:
            number = pl.int_range(arrivals, arrivals + pl.len(), dtype=pl.Int64).alias(_ARRIVAL)
            pending.append(rows.with_columns(number))
            store.put(_HINT, pl.DataFrame({"arrivals": [arrivals + rows.height]}))
        if not pending:
            return pl.DataFrame()
        events = pl.concat(pending, how="diagonal")
        passed = pl.lit(False) if watermark is None else pl.col(TIME) < watermark
        waiting = events.filter(~passed)
        if waiting.height:
            event_buffer.keep(store, waiting)
        return events.filter(passed).sort([*self.keys, TIME, _ARRIVAL])

    def _numbered(self, store: Store, released: pl.DataFrame) -> pl.DataFrame:
        """Each event with its number among those of its key."""
        before = store.get(_COUNTS) if _COUNTS in store.names() else None
        ranked = released.with_columns((pl.int_range(pl.len(), dtype=pl.Int64).over(self.keys)).alias(_NUMBER))
        if before is not None:
            ranked = ranked.join(before, on=self.keys, how="left", nulls_equal=True, maintain_order="left")
            ranked = ranked.with_columns(pl.col(_NUMBER) + pl.col(_COUNT).fill_null(0)).drop(_COUNT)
        new = ranked.group_by(self.keys, maintain_order=True).agg((pl.col(_NUMBER).max() + 1).alias(_COUNT))
        if before is not None:
            new = pl.concat([before.join(new, on=self.keys, how="anti", nulls_equal=True), new.select(before.columns)])
        store.put(_COUNTS, new.sort(self.keys))
        return ranked

    def _panes(self, events: pl.DataFrame, *, ended: bool) -> pl.DataFrame:
        size, every = self.windows.size, self.windows.every
        last = pl.col(_NUMBER) // every
        first = ((pl.col(_NUMBER) - size) // every + 1).clip(lower_bound=0)
        rows = events.with_columns(pl.int_ranges(first, last + 1, dtype=pl.Int64).alias(_WINDOW)).explode(_WINDOW)
        rows = rows.filter(pl.col(_WINDOW).is_not_null()).sort([*self.keys, _WINDOW, _NUMBER])
        by = [*self.keys, _WINDOW]
        bounds = rows.group_by(by, maintain_order=True).agg(
            pl.col(TIME).first().alias(START),
            (pl.col(TIME).last() + 1).alias(END),
            pl.col(_NUMBER).min().alias("__least"),
            pl.len().alias("__size"),
        )
        begins = pl.col("__least") == pl.col(_WINDOW) * every
        whole = begins if ended else begins & (pl.col("__size") == size)
        found = group(self.windowing, rows, by, None).join(bounds.filter(whole), on=by, nulls_equal=True)
        panes = found.select(
            *self.keys,
            *finished(self.windowing),
            pl.col(START).alias("__start"),
            pl.col(END).alias("__end"),
            (pl.col(END) - 1).alias("__event"),
            pl.lit(0, pl.Int64).alias("pane_index"),
            pl.lit(Timing.ON_TIME.value).alias("pane_timing"),
            pl.lit(True).alias("pane_last"),
            pl.lit(False).alias("retraction"),
            _WINDOW,
        ).sort(["__end", "__start", *self.keys, _WINDOW])
        return pane_frame(panes, self.keys, list(self.windowing.aggregates))

    def _keep(self, store: Store, events: pl.DataFrame, *, ended: bool) -> None:
        """What windows that are not full will need: from the beginning of the first of them on."""
        size, every = self.windows.size, self.windows.every
        total = pl.col(_NUMBER).max().over(self.keys) + 1
        first_open = ((total - size) // every + 1).clip(lower_bound=0) * every
        still = events.filter(pl.col(_NUMBER) >= first_open)
        if still.height and not ended:
            store.put(_OPEN, still)
        elif _OPEN in store.names():
            store.remove(_OPEN)
