"""Drive a process function over released events and due timers, in rounds that hold all keys at once.

In each round every key that still has something to do takes one turn: either its next timer, if that is due and no
event comes before it, or its next run of events. A run ends

- ahead of the key's next timer,
- ahead of the first event that is so far from the run's first that a timer set within the run might come between
  (see `Timer`; only if there are timers in event time), and
- where the key's state expires between two events.

So the number of rounds is that of the key with the most turns, however many keys there are; and it is one if there
are neither timers nor gaps longer than the ttl.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from tidewheel.engine.operators.event_buffer import NEVER
from tidewheel.errors import DefinitionError
from tidewheel.model.columns import TIME
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.process.process import Clock
from tidewheel.model.process.process_call import BoundProcess
from tidewheel.model.segmented_search import first_at_or_after
from tidewheel.model.time import Instant

__all__ = ["LAST", "ProcessDriver"]

LAST = "__last"
"""The column of the state with the time of the key's last event."""

_CODE, _HERE = "__code", "__here"
_LONG_AGO: Instant = -(2**61)
_MOST_ROUNDS_AFTER_THE_END = 10_000

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class ProcessDriver:
    """Drives a bound process through one batch: `events` as released, `state` as stored."""

    def __init__(self, bound: BoundProcess, events: pl.DataFrame, state: pl.DataFrame, clock: Clock) -> None:
        self.bound = bound
        self.process = bound.process
        self.keys = list(self.process.key_columns)
        self.clock = clock
        self.watermark = _LONG_AGO if clock.watermark is None else clock.watermark
        self.results: list[pl.DataFrame] = []
        due = state.filter(self._due(state)).select(self.keys)
        active = pl.concat([events.select(self.keys), due]).unique().sort(self.keys).with_row_index(_CODE)
        self.idle = state.join(active, on=self.keys, how="anti", nulls_equal=True, maintain_order="left")
        self.table = self._beside(active, state)
        coded = self._beside(events, active).sort(_CODE, TIME, "__arrival")
        self.events = coded.select(list(self.bound.events))
        self.times: Integers = coded[TIME].to_numpy()
        codes = coded[_CODE].to_numpy()
        everyone = np.arange(active.height)
        self.position: Integers = np.searchsorted(codes, everyone, side="left")
        self.end: Integers = np.searchsorted(codes, everyone, side="right")
        self.break_after = self._breaks(codes)

    def run(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the results, by event time and key, and the new state."""
        finished = [self.idle.clear()]
        rounds_after_the_end = 0
        while self.table.height:
            first, timer = self._next_event(), self._next_timer()
            to_do = np.minimum(first, timer) < NEVER
            if not to_do.all():
                finished.append(self.table.filter(~to_do).drop(_CODE))
                self.table, first, timer = self.table.filter(to_do), first[to_do], timer[to_do]
            if self.table.height:
                self._turn(first, timer)
            if self.clock.ended and not (first < NEVER).any():
                rounds_after_the_end += 1
                self._check_that_it_ends(rounds_after_the_end)
        self.table = pl.concat(finished).filter(pl.col(LAST).is_not_null() & (self._expiry_column() >= self.watermark))
        self._processing_timers()
        state = pl.concat([self.idle, self.table])
        results = pl.concat(self.results) if self.results else pl.DataFrame(schema=dict(self.bound.results))
        return results.sort(self.process.time, *self.keys, maintain_order=True), state

    def due(self, state: pl.DataFrame) -> tuple[Instant, Instant]:
        """The least watermark and the least clock at which there is something to do for the state."""
        if not state.height:
            return NEVER, NEVER
        expiry = _instants(state, self._expiry_column() + 1)
        timer = _instants(state, self._least(self.process.timers))
        timer = np.where(timer < expiry, timer, NEVER)
        clock = _instants(state, self._least(self.process.processing_timers))
        return int(min(expiry.min(), timer.min())), int(clock.min())

    def _turn(self, first: Integers, timer: Integers) -> None:
        """One call, for the next timer or the next run of events of every key in the table."""
        by_timer = timer <= first
        by_event = ~by_timer
        codes = self.table[_CODE].to_numpy()
        expired = by_event & (first > self._expiry())
        table = self._forgotten(expired)
        begin = self.position[codes[by_event]]
        stop = self._run_ends(codes[by_event], begin, first[by_event], _instants(table, self._least())[by_event])
        reached = timer.copy()
        reached[by_event] = self.times[stop - 1]
        known = table[LAST].fill_null(_LONG_AGO).to_numpy()
        last = np.where(by_event, np.maximum(reached, known), _instants(table, pl.col(LAST)))
        due = {name: by_timer & (_instants(table, pl.col(name)) == timer) for name in self.process.timers}
        new = self._call(self._between(begin, stop), table, due)
        self.position[codes[by_event]] = stop
        self._check_promise(table, new, first, by_event)
        last_time = pl.when(_HERE).then(pl.Series(last)).alias(LAST)
        self.table = _ahead(new, self.process.timers, reached).select(table[_CODE], *self.bound.state, last_time)

    def _call(self, events: pl.DataFrame, table: pl.DataFrame, due: Mapping[str, Booleans]) -> pl.DataFrame:
        """Call the function and return the new state, a row for each row of the old and in its order; `__here` is false
        where it was given up."""
        never = np.zeros(table.height, dtype=np.bool_)
        timers = (*self.process.timers, *self.process.processing_timers)
        flags = [pl.Series(f"{name}_due", due.get(name, never)) for name in timers]
        results, new = self.bound.call(events, table.select(*self.bound.state, *flags), self.clock)
        if results.height:
            self.results.append(results)
        new = self._beside(table.select(self.keys), new.with_columns(pl.lit(True).alias(_HERE)))
        return new.with_columns(pl.col(_HERE).fill_null(False))

    def _beside(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        return left.join(right, on=self.keys, how="left", nulls_equal=True, maintain_order="left")

    def _processing_timers(self) -> None:
        """One call for all keys with a processing timer that is due, when all else is done."""
        names = self.process.processing_timers
        if not names or not self.table.height:
            return
        now = self.clock.clock
        rings = _instants(self.table, self._least(names)) <= now
        table, rest = self.table.filter(rings), self.table.filter(~rings)
        if table.height:
            due = {name: _instants(table, pl.col(name)) <= now for name in names}
            new = self._call(self.events.clear(), table, due)
            new = _ahead(new, names, np.full(table.height, now))
            new = _ahead(new, self.process.timers, np.full(table.height, self.watermark))
            new = new.with_columns(table[LAST]).filter(_HERE)
            self.table = pl.concat([rest, new.select(rest.columns)])

    def _run_ends(self, codes: Integers, begin: Integers, first: Integers, timer: Integers) -> Integers:
        """The end of each key's run of events that begins with the event at `first`."""
        if self.process.wait is None:
            stop = self.end[codes]
        else:
            limit = np.minimum(timer, first + self.process.wait)
            stop = first_at_or_after(self.times, begin, self.end[codes], limit)
        return np.minimum(stop, self.break_after[begin]) if len(begin) else stop

    def _breaks(self, codes: Integers) -> Integers:
        """For each event, where the next run must begin at the latest: behind the next gap longer than the ttl."""
        count = len(self.times)
        if self.process.ttl is None or not count:
            return np.full(count, count)
        gap = np.append((np.diff(self.times) > self.process.lifetime) & (np.diff(codes) == 0), False)
        ends = np.where(gap, np.arange(1, count + 1), count)
        return np.minimum.accumulate(ends[::-1])[::-1]

    def _between(self, begin: Integers, stop: Integers) -> pl.DataFrame:
        """The events of these runs, one run after the other."""
        lengths = stop - begin
        total = int(lengths.sum())
        if total == self.events.height:
            return self.events
        offsets = np.repeat(begin - np.append(0, np.cumsum(lengths))[:-1], lengths)
        return self.events.select(pl.all().gather(np.arange(total) + offsets))

    def _next_event(self) -> Integers:
        codes = self.table[_CODE].to_numpy()
        first = np.full(len(codes), NEVER)
        has = self.position[codes] < self.end[codes]
        first[has] = self.times[self.position[codes[has]]]
        return first

    def _next_timer(self) -> Integers:
        timer = _instants(self.table, self._least())
        return np.where(timer <= np.minimum(self._expiry(), self.watermark), timer, NEVER)

    def _expiry(self) -> Integers:
        """The last moment at which each key's state is valid."""
        return _instants(self.table, self._expiry_column())

    def _expiry_column(self) -> pl.Expr:
        if self.process.ttl is None:
            return pl.lit(NEVER - 1, dtype=pl.Int64)
        return pl.col(LAST).fill_null(_LONG_AGO) + self.process.lifetime

    def _least(self, names: tuple[str, ...] | None = None) -> pl.Expr:
        names = self.process.timers if names is None else names
        return pl.min_horizontal(names).cast(pl.Int64) if names else pl.lit(None, dtype=pl.Int64)

    def _due(self, state: pl.DataFrame) -> Booleans:
        if not state.height:
            return np.zeros(0, dtype=np.bool_)
        expiry = _instants(state, self._expiry_column())
        timer = _instants(state, self._least())
        clock = _instants(state, self._least(self.process.processing_timers))
        return (timer <= np.minimum(expiry, self.watermark)) | (clock <= self.clock.clock) | (expiry < self.watermark)

    def _forgotten(self, expired: Booleans) -> pl.DataFrame:
        if not expired.any():
            return self.table
        keep = pl.Series(~expired)
        return self.table.with_columns(pl.when(keep).then(pl.col(name)) for name in (*self.process.state, LAST))

    def _check_promise(self, old: pl.DataFrame, new: pl.DataFrame, first: Integers, by_event: Booleans) -> None:
        for name, wait in self.process.waits.items():
            before, after = _instants(old, pl.col(name)), _instants(new, pl.col(name))
            broken = by_event & (after != before) & (after < np.minimum(first, END_OF_TIME) + wait)
            if wait > 1 and broken.any():
                key = list(new.filter(broken).select(self.keys).row(0))
                raise DefinitionError(
                    f"{self.process.name} set the timer {name!r} of key {key} less than {self.process.state[name]!r} "
                    "promises after an event; promise less, or Timer() for nothing at all"
                )

    def _check_that_it_ends(self, rounds: int) -> None:
        if rounds > _MOST_ROUNDS_AFTER_THE_END:
            raise DefinitionError(
                f"{self.process.name} sets its timers again and again after the input has ended, which goes on to the "
                'year 9999. Pass ttl="1 h" or so, which ends them that long after the last event of their key'
            )


def _instants(frame: pl.DataFrame, column: pl.Expr) -> Integers:
    """A column of times as numbers, one for each row; null is never."""
    times: Integers = frame.with_columns(column.cast(pl.Int64).fill_null(NEVER).alias("__at"))["__at"].to_numpy()
    return times


def _ahead(state: pl.DataFrame, timers: tuple[str, ...], reached: Integers) -> pl.DataFrame:
    """The state without the timers that are not ahead of what was reached."""
    at = pl.Series(reached)
    return state.with_columns(pl.when(pl.col(name).cast(pl.Int64) > at).then(pl.col(name)) for name in timers)
