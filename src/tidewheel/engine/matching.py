"""Patterns on one bucket of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import polars as pl

from tidewheel.engine import event_buffer
from tidewheel.engine.event_buffer import ARRIVAL, Queue
from tidewheel.engine.judging import judge
from tidewheel.engine.match_book import BookMatch
from tidewheel.engine.matched import Frames, Matched
from tidewheel.engine.operator import Outputs, Store, Tick
from tidewheel.engine.window_columns import TIME
from tidewheel.errors import CheckpointError
from tidewheel.model.time import Duration, Instant

__all__ = ["BookOperator", "MatchOperator"]

VERSION = 1
_KEPT = "match/"
_QUEUE = {"version": pl.Int64(), "next_event": pl.Int64(), "arrivals": pl.Int64()}


class MatchOperator:
    """Recognises what it is given in the events of a bucket.

    The store holds the events that wait (`events/...`), what open matches need (`match/...`) and `queue`. A batch calls
    it a number of times that depends on the slices of event time it touches.
    """

    takes_rows = True
    late_by_slice = False

    def __init__(self, matched: Matched, keys: Sequence[str]) -> None:
        self.matched = matched
        self.keys = list(keys)
        self.columns = list(dict.fromkeys([*keys, *matched.columns]))

    def judge(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The rows that are not behind the watermark, and the others with the reason."""
        return judge(
            rows, before=before, last_end=lambda sound: sound[TIME] + 1, lateness=0, future=future, arrival=arrival
        )

    def first_half(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """The columns that are needed of each row."""
        return rows.select([*self.columns, TIME])

    def step(self, store: Store, rows: pl.DataFrame | None, tick: Tick) -> Outputs:
        """Take the batch's rows that are in time, and its time; give what was recognised."""
        watermark = max((time for time in (tick.before, tick.watermark) if time is not None), default=None)
        queue = old = _read_queue(store)
        if rows is None:
            rows = pl.DataFrame(schema={**{name: self._type(name) for name in self.columns}, TIME: pl.Int64()})
        released, queue = event_buffer.release(store, rows.select([*self.columns, TIME]), watermark, queue)
        if queue != old:
            store.put("queue", pl.DataFrame([(VERSION, *astuple(queue))], schema=_QUEUE, orient="row"))
        if not released.height and (watermark is None or watermark == tick.before):
            return {}
        ordered = released.sort([*self.keys, TIME, *self.matched.order, ARRIVAL]).drop(ARRIVAL)
        state = _state(store)
        outputs, after = self.matched.step(state, ordered, watermark)
        _keep(store, state, after)
        return {name: _timed(frame, tick.before) for name, frame in outputs.items()}

    def _type(self, name: str) -> pl.DataType:
        return self.matched.schema.get(name, pl.Int8())  # a stream without keys has a constant one


class BookOperator(MatchOperator):
    """The same for patterns that come and go: what is in force is part of what is kept."""

    def __init__(self, book: BookMatch, keys: Sequence[str]) -> None:
        super().__init__(book, keys)
        self.book = book

    def heed(self, store: Store, definitions: pl.DataFrame, tick: Tick) -> Outputs:
        """Take definitions that were read in this batch: they count for all rows that are released from now on."""
        state = _state(store)
        at = tick.clock if tick.before is None else tick.before - 1
        outputs, after = self.book.change(state, definitions, at)
        _keep(store, state, after)
        return outputs


def _state(store: Store) -> Frames:
    names = [name for name in store.names() if name.startswith(_KEPT)]
    return {name.removeprefix(_KEPT): frame for name in names if (frame := store.get(name)) is not None}


def _keep(store: Store, before: Frames, after: Frames) -> None:
    for name in before.keys() - after.keys():
        store.remove(_KEPT + name)
    for name, frame in after.items():
        if name not in before or not frame.equals(before[name]):
            store.put(_KEPT + name, frame)


def _timed(frame: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
    """Rows have a time of their own, unless the watermark had passed it: a stage that follows must not miss them."""
    if TIME not in frame.columns:
        return frame
    known = pl.col(TIME) if before is None else pl.max_horizontal(TIME, pl.lit(before, pl.Int64))
    return frame.select(pl.exclude(TIME), known.cast(pl.Datetime("us", "UTC")).alias("event_time"))


def _read_queue(store: Store) -> Queue:
    frame = store.get("queue")
    if frame is None:
        return Queue()
    version, next_event, arrivals = frame.row(0)
    if version != VERSION:
        raise CheckpointError(
            f"the state of these matches was written in format {version}, this Tidewheel reads {VERSION}; "
            "start on a new checkpoint, or with the Tidewheel that wrote it"
        )
    return Queue(next_event, arrivals)
