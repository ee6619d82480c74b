"""Process functions the slow and obvious way: one key, one event, one timer at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from tidewheel.model.columns import TIME
from tidewheel.model.panes import END_OF_TIME, key_order, rejection
from tidewheel.model.process.process import DATETIME, Clock, DataType, Process
from tidewheel.model.process.process_call import bind
from tidewheel.model.time import Instant, instant

__all__ = ["ProcessReference", "key_order", "rejection"]

Key = tuple[Any, ...]
Row = dict[str, Any]


class ProcessReference:
    """The reference for process functions. Holds all keys; rows have a column `__time` (µs)."""

    def __init__(self, process: Process, schema: Mapping[str, DataType]) -> None:
        self.process = process
        self.bound = bind(process, schema)
        self.watermark: Instant | None = None
        self.pending: list[tuple[Instant, Row]] = []
        self.state: dict[Key, Row] = {}
        self.last: dict[Key, Instant] = {}
        self.results: list[pl.DataFrame] = []

    def step(self, rows: pl.DataFrame | None, *, watermark: Instant | None, clock: Instant) -> dict[str, list[Row]]:
        """Take some rows and the time; give the rows of each output, `results` and `late` among them."""
        before = self.watermark
        late = []
        for row in rows.to_dicts() if rows is not None else []:
            time = row[TIME]
            reason, by = rejection(time, before, lateness=self.process.lateness)
            if reason is None:
                self.pending.append((time, {name: value for name, value in row.items() if name != TIME}))
            else:
                late.append({**row, "reason": reason, "late_by": by})
        known = [time for time in (before, watermark) if time is not None]
        self.watermark = max(known, default=None)
        now = Clock(before, self.watermark, clock)
        self.results = []
        if self.watermark is not None:
            for key in sorted({*self.state, *(self._key(row) for _, row in self.pending)}, key=key_order):
                self._advance(key, self.watermark, now)
        results = [row for frame in self.results for row in frame.to_dicts()]
        results.sort(key=lambda row: (row[self.process.time], key_order(self._key(row))))
        outputs = self.bound.split(pl.DataFrame(results, schema=dict(self.bound.results)))
        return {name: frame.to_dicts() for name, frame in outputs.items()} | {"late": late}

    def _advance(self, key: Key, watermark: Instant, clock: Clock) -> None:
        """Bring one key to the watermark, then to the clock."""
        events = [(time, row) for time, row in self.pending if self._key(row) == key and time < watermark]
        self.pending = [(time, row) for time, row in self.pending if self._key(row) != key or time >= watermark]
        events.sort(key=lambda event: event[0])
        while True:
            timer = self._next(key, self.process.timers, watermark)
            if timer is not None and (not events or timer <= events[0][0]):
                self._call(key, [], clock, due=[t for t in self.process.timers if self._at(key, t) == timer])
                self._clear(key, self.process.timers, timer)
            elif events:
                time, row = events.pop(0)
                if time > self._expiry(key):
                    self._forget(key)
                self._call(key, [row | {self.process.time: time}], clock, due=[])
                if key in self.state:
                    self.last[key] = max(time, self.last.get(key, time))
                self._clear(key, self.process.timers, time)
            else:
                break
        if watermark > self._expiry(key):
            self._forget(key)
        due = [t for t in self.process.processing_timers if (at := self._at(key, t)) is not None and at <= clock.clock]
        if due:
            self._call(key, [], clock, due=due)
            self._clear(key, self.process.processing_timers, clock.clock)
            self._clear(key, self.process.timers, watermark)

    def _call(self, key: Key, events: list[Row], clock: Clock, *, due: list[str]) -> None:
        kept = self.state.get(key) or dict.fromkeys(self.process.state)
        row = dict(zip(self.process.key_columns, key, strict=True)) | kept
        flags = {f"{t}_due": t in due for t in (*self.process.timers, *self.process.processing_timers)}
        state = pl.DataFrame([row | flags], schema={**self.bound.state, **dict.fromkeys(flags, pl.Boolean())})
        raw = {**self.bound.events, self.process.time: pl.Int64()}
        frame = pl.DataFrame(events, schema=raw).with_columns(pl.col(self.process.time).cast(DATETIME))
        results, new = self.bound.call(frame, state, clock)
        self.results.append(results)
        if new.height:
            values = new.row(0, named=True)
            self.state[key] = {name: values[name] for name in self.process.state}
        else:
            self._forget(key)

    def _next(self, key: Key, timers: tuple[str, ...], reached: Instant) -> Instant | None:
        limit = min(reached, self._expiry(key))
        return min((at for t in timers if (at := self._at(key, t)) is not None and at <= limit), default=None)

    def _at(self, key: Key, timer: str) -> Instant | None:
        value = self.state.get(key, {}).get(timer)
        return None if value is None else instant(value)

    def _clear(self, key: Key, timers: tuple[str, ...], reached: Instant) -> None:
        for timer in timers:
            at = self._at(key, timer)
            if at is not None and at <= reached:
                self.state[key][timer] = None

    def _expiry(self, key: Key) -> Instant:
        """The last moment at which the state of the key is valid."""
        if self.process.ttl is None or key not in self.last:
            return 2 * END_OF_TIME
        return self.last[key] + self.process.lifetime

    def _forget(self, key: Key) -> None:
        self.state.pop(key, None)
        self.last.pop(key, None)

    def _key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.process.key_columns)
