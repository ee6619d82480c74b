"""Count windows in columns: events wait until the watermark has passed them, and are then numbered in event-time
order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from tidewheel.engine.operators import event_buffer
from tidewheel.engine.operators.event_buffer import ARRIVAL, read_queue, write_queue
from tidewheel.engine.operators.operator import RESULTS, BatchTime, Outputs, StageOperator, Store, check_names
from tidewheel.engine.operators.windows.assignment import END, START
from tidewheel.engine.operators.windows.pane_schema import pane_frame
from tidewheel.engine.operators.windows.partial_aggregates import aggregates, finished, group
from tidewheel.model.columns import TIME
from tidewheel.model.panes import END_OF_TIME, Timing
from tidewheel.model.time import Instant
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Count

__all__ = ["CountWindowOperator"]

_NUMBER = "__number"
_WINDOW = "__window"
_OPEN = "open/1"  # the number is the version of what they hold
_COUNTS = "counts/1"
_COUNT = "__count"


class CountWindowOperator(StageOperator):
    """Count windows on one key group. The store holds the events that wait, those in windows that are not full yet
    (`open`, numbered), and the number of events of each key (`counts`)."""

    def __init__(
        self, windowing: Windowing, windows: Count, keys: Sequence[str], schema: Mapping[str, pl.DataType]
    ) -> None:
        self.windowing = windowing
        self.windows = windows
        self.keys = list(keys)
        asked = {column for aggregate in aggregates(windowing).values() for column in aggregate.columns}
        # A stream without keys has a constant one.
        self._schema = {name: schema.get(name, pl.Int8()) for name in dict.fromkeys([*keys, *sorted(asked)])}
        self._schema[TIME] = pl.Int64()

    def pre_aggregate(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        return rows.select(list(self._schema))

    def step(self, store: Store, rows: pl.DataFrame | None, batch_time: BatchTime) -> Outputs:
        """Take a batch's rows of this key group and its time; give the windows that are full."""
        released = self._release(store, rows, batch_time.reached)
        ended = batch_time.watermark is not None and batch_time.watermark >= END_OF_TIME
        held = store.get(_OPEN) if released.height or ended else None
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
        """Release the events that the watermark has passed, in order; the others wait."""
        check_names("this window", store.names(), (_OPEN, _COUNTS, event_buffer.QUEUE, event_buffer.EVENTS))
        queue = read_queue(store)
        fresh = pl.DataFrame(schema=self._schema) if rows is None else rows
        released, after = event_buffer.release(store, fresh, watermark, queue)
        if after != queue:
            write_queue(store, after)
        return released.sort([*self.keys, TIME, ARRIVAL])

    def _numbered(self, store: Store, released: pl.DataFrame) -> pl.DataFrame:
        """Each event with its number among those of its key."""
        before = store.get(_COUNTS)
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
        """Keep the events that open windows will need: from the start of the first of them on."""
        size, every = self.windows.size, self.windows.every
        total = pl.col(_NUMBER).max().over(self.keys) + 1
        first_open = ((total - size) // every + 1).clip(lower_bound=0) * every
        still = events.filter(pl.col(_NUMBER) >= first_open)
        if still.height and not ended:
            store.put(_OPEN, still)
        else:
            store.remove(_OPEN)
