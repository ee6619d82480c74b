"""Partial matches that the batch begins, divided by columns: something happens to them, so that Python must run them
(active); or nothing does: then they are rows of the new state, or are over, or their time has run out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tidewheel.model.time import Instant
from tidewheel.patterns.compile.bound_program import BoundProgram
from tidewheel.patterns.vectorized.event_batch import EventBatch, Numbers, Truths
from tidewheel.patterns.vectorized.measures import EVENTS, POSITIONS
from tidewheel.patterns.vectorized.strict_contiguity import can_be_followed, follow

__all__ = ["NewMatches", "new_matches_of"]


@dataclass
class NewMatches:
    """Events that begin a match, one for each start they make: the event's row, its key, the start's number.

    weight: of all that it becomes, at most, at a time. until: the row of the event that ended it, if one did. left:
    what is left of those that Python does not run.
    """

    row: Numbers
    key: Numbers
    start: Numbers
    weight: Numbers
    until: Numbers
    active: Truths
    left: Left

    @property
    def dies(self) -> Truths:
        """The partial matches that are over within this batch, without a trace."""
        found = ~self.active
        found[self.left.origin] = False
        return found

    def holding_back(self, left_out: Truths, starts: Numbers, completed: Numbers) -> Truths:
        """Which matches any of these would hold back: it began no later, and was there when the match was complete.
        Matches are given by the rows of the events that began and completed them."""
        order = np.flatnonzero(left_out)[np.argsort(self.row[left_out], kind="stable")]
        rows = self.row[order]
        # Keys come one after the other: what began with one of them ended before the events of the next.
        until = np.maximum.accumulate(np.append(-1, self.until[order]))
        found: Truths = until[np.searchsorted(rows, starts, side="right")] > completed
        return found

    def marks(self, taken: Truths, events: int) -> Numbers:
        """For each event, the starts that Python is to consider, as bits."""
        found = np.zeros(events, dtype=np.int64)
        np.bitwise_or.at(found, self.row[taken], np.left_shift(1, self.start[taken]))
        return found


@dataclass
class Left:
    """The partial matches that remain at the end of the batch, or that timed out. origin: the starter; length,
    positions: its path, which has taken one event after the other."""

    origin: Numbers
    row: Numbers
    key: Numbers
    time: Numbers
    last_time: Numbers
    position: Numbers
    length: Numbers
    positions: Numbers
    open: Numbers
    fresh: Truths
    due: Numbers
    over_time: Truths

    def without(self, taken: Truths) -> Left:
        """Without those that Python has run."""
        keep = ~taken[self.origin]
        return Left(**{name: getattr(self, name)[keep] for name in Left.__dataclass_fields__})

    def rows(self, keys: pl.DataFrame, next_id: int) -> pl.DataFrame:
        """The partial matches that stay, as rows of the state."""
        stays = ~self.over_time
        frame = self._paths(stays, next_id).with_columns(
            pl.Series("__position", self.position[stays]),
            pl.Series("__open", self.open[stays]),
            pl.lit(0, dtype=pl.Int64).alias("__released"),
            pl.Series("__fresh", self.fresh[stays]),
            pl.Series("__start_time", self.time[stays]),
            pl.Series("__last_time", self.last_time[stays]),
            pl.Series("__due", self.due[stays]),
        )
        return pl.concat([keys[frame["__key"]].drop("__key"), frame], how="horizontal")

    def timed_out(self, next_id: int) -> pl.DataFrame:
        """The paths of the timed-out ones."""
        return self._paths(self.over_time, next_id).with_columns(pl.Series("__at", self.due[self.over_time]))

    def _paths(self, which: Truths, next_id: int) -> pl.DataFrame:
        start, length = self.row[which] + next_id, self.length[which]
        frame = pl.DataFrame({"__key": self.key[which], "__start": start, "__end": start + length})
        width = self.positions.shape[1]
        if width == 1:
            positions = pl.Series(POSITIONS, self.positions[which].ravel()).to_frame().select(pl.concat_list(POSITIONS))
        else:
            rows = pl.Series(POSITIONS, self.positions[which], dtype=pl.Array(pl.Int64, width)).cast(pl.List(pl.Int64))
            positions = pl.DataFrame([rows, pl.Series("__length", length)]).select(
                pl.col(POSITIONS).list.head(pl.col("__length"))
            )
        events = pl.int_ranges("__start", "__end").alias(EVENTS)
        return pl.concat([frame.select("__key", "__start", events), positions], how="horizontal")


def new_matches_of(bound: BoundProgram, batch: EventBatch, mark: Instant) -> NewMatches:
    """Find what this batch does to the partial matches that it begins."""
    parts = [_starts(bound, batch, mark, number) for number in range(len(bound.starts))]
    if len(parts) == 1:
        return parts[0]
    widest = max(part.left.positions.shape[1] for part in parts)
    before = 0
    for part in parts:
        part.left.origin = part.left.origin + before
        part.left.positions = np.pad(part.left.positions, ((0, 0), (0, widest - part.left.positions.shape[1])))
        before += len(part.row)
    left = {name: np.concatenate([getattr(part.left, name) for part in parts]) for name in Left.__dataclass_fields__}
    names = [name for name in NewMatches.__dataclass_fields__ if name != "left"]
    own = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return NewMatches(**own, left=Left(**left))


def _starts(bound: BoundProgram, batch: EventBatch, mark: Instant, number: int) -> NewMatches:
    row = np.flatnonzero(batch.satisfied(bound.start_masks[number])).astype(np.int64)
    followed = can_be_followed(bound, bound.starts[number])
    active, weighs, until, left = (_followed if followed else _waiting)(bound, batch, row, bound.starts[number], mark)
    return NewMatches(
        row=row,
        key=batch.keys[row],
        start=np.full(len(row), number, dtype=np.int64),
        weight=weighs,
        until=until,
        active=active,
        left=left,
    )


def _followed(
    bound: BoundProgram, batch: EventBatch, row: Numbers, position: int, mark: Instant
) -> tuple[Truths, Numbers, Numbers, Left]:
    due = batch.times[row] + bound.window
    ones = np.ones(len(row), dtype=np.int64)
    outcome = follow(bound, batch, row + 1, batch.ends[batch.keys[row]], ones * position, ones, due, mark)
    begun = row[outcome.origin]
    last = begun + outcome.length - 1
    stands = outcome.positions[np.arange(len(last)), outcome.length - 1]
    left = Left(
        origin=outcome.origin,
        row=begun,
        key=batch.keys[begun],
        time=batch.times[begun],
        last_time=batch.times[last],
        position=stands,
        length=outcome.length,
        positions=outcome.positions,
        open=np.array(bound.everything, dtype=np.int64)[stands],
        fresh=np.ones(len(last), dtype=np.bool_),
        due=due[outcome.origin],
        over_time=outcome.over_time,
    )
    return outcome.reaches, outcome.weight, outcome.until, left


def _waiting(
    bound: BoundProgram, batch: EventBatch, row: Numbers, position: int, mark: Instant
) -> tuple[Truths, Numbers, Numbers, Left]:
    """The partial matches that have their first event only, and wait for more than the next one."""
    key, time = batch.keys[row], batch.times[row]
    # The edges that may be open: all, or those that the next event leaves, by how long after the first one it comes.
    everything = bound.everything[position]
    gaps = sorted({transition.gap for transition in bound.transitions[position] if transition.gap is not None})
    states = [everything, *(everything & ~bound.closed(position, waited) for waited in (0, *gaps))]
    waits = np.array([min(bound.window, bound.wait(position, opened)) for opened in states], dtype=np.int64)
    following = np.minimum(row + 1, len(batch) - 1)
    waited = batch.times[following] - time
    has_next = batch.has_next[row] & (waited < waits[0])
    state = np.where(has_next, 1 + np.searchsorted(gaps, waited, side="right"), 0)
    opened = np.array(states, dtype=np.int64)[state]
    due = time + waits[state]
    active = np.full(len(row), bound.accepts[position], dtype=np.bool_)
    if len(row):
        active |= has_next & ((batch.bits[following] & bound.first[position]) != 0)
        if bound.later[position]:
            active |= batch.next_time(bound.later[position], row + 1, batch.ends[key]) < time + bound.window
    if bound.final[position]:
        active |= due <= mark
    origin = np.flatnonzero(~active & (opened != 0))
    left = Left(
        origin=origin,
        row=row[origin],
        key=key[origin],
        time=time[origin],
        last_time=time[origin],
        position=np.full(len(origin), position, dtype=np.int64),
        length=np.ones(len(origin), dtype=np.int64),
        positions=np.full((len(origin), 1), position, dtype=np.int64),
        open=opened[origin],
        fresh=~has_next[origin],
        due=due[origin],
        over_time=due[origin] <= mark,
    )
    return active, np.ones(len(row), dtype=np.int64), row + 1, left
