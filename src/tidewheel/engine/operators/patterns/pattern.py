"""Operators that recognize patterns in the rows of one key group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import polars as pl

from tidewheel.engine.operators import event_buffer
from tidewheel.engine.operators.event_buffer import ARRIVAL, read_queue, write_queue
from tidewheel.engine.operators.operator import BatchTime, Outputs, StageOperator, Store
from tidewheel.model.columns import TIME
from tidewheel.model.time import Instant

__all__ = ["DynamicPatternsOperator", "Frames", "PatternOperator"]

Frames = dict[str, pl.DataFrame]
_PREFIX = "match/"


class EventRecognizer(Protocol):
    """What the operator asks of a `Recognizer`."""

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        """The columns of the events."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that are needed."""

    @property
    def order(self) -> Sequence[str]:
        """The columns that order events of the same time."""

    def step(self, state: Frames, events: pl.DataFrame, watermark: Instant | None) -> tuple[Frames, Frames]:
        """Take events: rows by output, and the state after them."""


class DynamicRecognizer(EventRecognizer, Protocol):
    """A recognizer of patterns that are part of its state."""

    def change(self, state: Frames, definitions: pl.DataFrame, at: Instant) -> tuple[Frames, Frames]:
        """Take definitions: rows by output, and the state after them."""


class PatternOperator(StageOperator):
    """Recognizes what it is given in the events of a key group.

    The store holds the events that wait (`events/...`), what open matches need (`match/...`) and `queue`. A batch calls
    it a number of times that depends on the slices of event time it touches.
    """

    def __init__(self, recognizer: EventRecognizer, keys: Sequence[str]) -> None:
        self.recognizer = recognizer
        self.keys = list(keys)
        self.columns = list(dict.fromkeys([*keys, *recognizer.columns]))

    def pre_aggregate(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """The columns that are needed of each row."""
        return rows.select([*self.columns, TIME])

    def step(self, store: Store, rows: pl.DataFrame | None, batch_time: BatchTime) -> Outputs:
        """Take the batch's rows that are in time, and its time; give what was recognized."""
        watermark = batch_time.reached
        queue = old = read_queue(store)
        if rows is None:
            rows = pl.DataFrame(schema={**{name: self._type(name) for name in self.columns}, TIME: pl.Int64()})
        released, queue = event_buffer.release(store, rows.select([*self.columns, TIME]), watermark, queue)
        if queue != old:
            write_queue(store, queue)
        if not released.height and (watermark is None or watermark == batch_time.watermark_before):
            return {}
        ordered = released.sort([*self.keys, TIME, *self.recognizer.order, ARRIVAL]).drop(ARRIVAL)
        state = _state(store)
        outputs, after = self.recognizer.step(state, ordered, watermark)
        _keep(store, state, after)
        return {name: _timed(frame, batch_time.watermark_before) for name, frame in outputs.items()}

    def _type(self, name: str) -> pl.DataType:
        return self.recognizer.schema.get(name, pl.Int8())  # a stream without keys has a constant one


class DynamicPatternsOperator(PatternOperator):
    """Recognizes patterns that come and go: those in force are part of the state."""

    def __init__(self, patterns: DynamicRecognizer, keys: Sequence[str]) -> None:
        super().__init__(patterns, keys)
        self.patterns = patterns

    def on_control(self, store: Store, definitions: pl.DataFrame, batch_time: BatchTime) -> Outputs:
        """Take definitions that were read in this batch: they count for all rows that are released from now on."""
        state = _state(store)
        at = batch_time.clock if batch_time.watermark_before is None else batch_time.watermark_before - 1
        outputs, after = self.patterns.change(state, definitions, at)
        _keep(store, state, after)
        return outputs


def _state(store: Store) -> Frames:
    names = [name for name in store.names() if name.startswith(_PREFIX)]
    return {name.removeprefix(_PREFIX): frame for name in names if (frame := store.get(name)) is not None}


def _keep(store: Store, before: Frames, after: Frames) -> None:
    for name in before.keys() - after.keys():
        store.remove(_PREFIX + name)
    for name, frame in after.items():
        if name not in before or not frame.equals(before[name]):
            store.put(_PREFIX + name, frame)


def _timed(frame: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
    """Rows have a time of their own, unless the watermark had passed it: a stage that follows must not miss them."""
    if TIME not in frame.columns:
        return frame
    known = pl.col(TIME) if before is None else pl.max_horizontal(TIME, pl.lit(before, pl.Int64))
    return frame.select(pl.exclude(TIME), known.cast(pl.Datetime("us", "UTC")).alias("event_time"))
