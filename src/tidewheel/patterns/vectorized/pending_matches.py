"""Partial matches of the state, classified in columns: those to which something happens in this batch, so that the NFA
must run them (active), and those that columns can handle: they stay rows, take events, end, or time out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tidewheel.model.time import Instant
from tidewheel.patterns.compile.bound_program import BoundProgram
from tidewheel.patterns.nfa.partial_match import weight
from tidewheel.patterns.vectorized.event_batch import EventBatch, Numbers, Truths
from tidewheel.patterns.vectorized.measures import EVENTS, POSITIONS
from tidewheel.patterns.vectorized.strict_contiguity import can_be_followed, follow

__all__ = ["Continued", "PendingMatches", "pending_matches_of"]


@dataclass
class PendingMatches:
    """The partial matches of the state, row by row. weight: of all that each becomes, at most, at a time. stays,
    over_time, continued: for those that Python does not run."""

    active: Truths
    weight: Numbers
    stays: Truths
    over_time: Truths
    open: Numbers
    fresh: Truths
    continued: Continued

    def take(self, taken: Truths) -> None:
        """Remove partial matches that Python has run."""
        self.stays &= ~taken
        self.over_time &= ~taken
        self.continued = self.continued.without(taken)

    def rows(self, runs: pl.DataFrame, next_id: int) -> pl.DataFrame:
        """Their rows in the state after the batch."""
        changed = [pl.Series("__open", self.open[self.stays]), pl.Series("__fresh", self.fresh[self.stays])]
        stay = runs.filter(self.stays).with_columns(changed)
        return pl.concat([stay, self.continued.rows(runs, next_id)]) if len(self.continued.origin) else stay

    def timed_out(self, runs: pl.DataFrame, keys: Numbers, next_id: int) -> pl.DataFrame:
        """The paths of the timed-out ones."""
        known = runs.with_columns(pl.Series("__key", keys), __at="__due")
        stood = known.filter(self.over_time)
        if not self.continued.over_time.any():
            return stood
        return pl.concat([stood, self.continued.timed_out(known, next_id)])


@dataclass
class Continued:
    """The partial matches that remain at the end of the batch, or that timed out.

    origin: the partial match; first: the row of the first event that came to it; length, positions: where it stood, and
    where it stands after each event that it took since; last_time: of the last of those.
    """

    bound: BoundProgram
    origin: Numbers
    first: Numbers
    length: Numbers
    positions: Numbers
    last_time: Numbers
    over_time: Truths

    def without(self, taken: Truths) -> Continued:
        """Without those that Python has run."""
        return self._only(~taken[self.origin])

    def rows(self, runs: pl.DataFrame, next_id: int) -> pl.DataFrame:
        """The partial matches that go on, as rows of the state."""
        some = self._only(~self.over_time)
        stands = some.positions[np.arange(len(some.origin)), some.length - 1]
        everything = np.array(self.bound.everything, dtype=np.int64)
        return some._paths(runs, next_id).with_columns(
            pl.Series("__position", stands, dtype=pl.Int32),
            pl.Series("__open", everything[stands]),
            pl.Series("__last_time", some.last_time),
        )

    def timed_out(self, runs: pl.DataFrame, next_id: int) -> pl.DataFrame:
        """The timed-out partial matches, with the events taken by then."""
        return self._only(self.over_time)._paths(runs, next_id)

    def _paths(self, runs: pl.DataFrame, next_id: int) -> pl.DataFrame:
        first, more = self.first + next_id, self.length - 1
        width = self.positions.shape[1] - 1
        rows = runs[self.origin]
        if not width:
            return rows
        new = pl.DataFrame(
            {
                "first": first,
                "end": first + more,
                "positions": pl.Series(self.positions[:, 1:].astype(np.int32), dtype=pl.Array(pl.Int32, width)),
            }
        ).select(
            pl.int_ranges("first", "end").alias(EVENTS),
            pl.col("positions").cast(pl.List(pl.Int32)).list.head(pl.col("end") - pl.col("first")).alias(POSITIONS),
        )
        return rows.with_columns(
            rows[name].to_frame().select(pl.concat_list(name, new[name].alias("more")).alias(name)).to_series()
            for name in (EVENTS, POSITIONS)
        )

    def _only(self, keep: Truths) -> Continued:
        return Continued(
            self.bound,
            self.origin[keep],
            self.first[keep],
            self.length[keep],
            self.positions[keep],
            self.last_time[keep],
            self.over_time[keep],
        )


def pending_matches_of(
    bound: BoundProgram, runs: pl.DataFrame, keys: Numbers, batch: EventBatch, mark: Instant
) -> PendingMatches:
    """Find what this batch does to the partial matches of the state."""
    position = runs["__position"].to_numpy()
    due = runs["__due"].to_numpy()
    fresh = runs["__fresh"].to_numpy().copy()
    opened = runs["__open"].to_numpy().copy()
    active = np.zeros(runs.height, dtype=np.bool_)
    followed = np.zeros(runs.height, dtype=np.bool_)
    has_events = keys < len(batch.firsts)
    for number in np.unique(position).tolist():
        here = (position == number) & has_events
        if can_be_followed(bound, number):
            followed |= here & fresh
            here &= ~fresh
        rows = np.flatnonzero(here)
        if len(rows):
            first, end = batch.firsts[keys[rows]], batch.ends[keys[rows]]
            acts = batch.next_time(bound.later[number], first, end) < due[rows]
            in_time = fresh[rows] & (batch.times[first] < due[rows])
            acts |= in_time & ((batch.bits[first] & bound.first[number]) != 0)
            if any(transition.gap is not None for transition in bound.transitions[number]):
                acts |= in_time  # an edge that closes may change when the time runs out
            active[rows] = acts
            opened[rows] = np.where(in_time, opened[rows] & ~bound.strict[number], opened[rows])
            fresh[rows] &= ~in_time
        if bound.final[number]:
            active |= (position == number) & (due <= mark)
    sizes = runs[EVENTS].list.len().to_numpy().astype(np.int64)
    continued, weighs = _continued(bound, batch, np.flatnonzero(followed), position, keys, sizes, due, mark, active)
    expired = due <= mark
    accepts = np.array(bound.accepts, dtype=np.bool_)[position]
    idle = ~active & ~followed & (opened != 0)
    return PendingMatches(
        active=active,
        weight=weighs,
        stays=idle & ~expired,
        over_time=idle & expired & ~accepts,
        open=opened,
        fresh=fresh,
        continued=continued,
    )


def _continued(
    bound: BoundProgram,
    batch: EventBatch,
    which: Numbers,
    position: Numbers,
    keys: Numbers,
    sizes: Numbers,
    due: Numbers,
    mark: Instant,
    active: Truths,
) -> tuple[Continued, Numbers]:
    """Follow these; those that get to where Python must run them become active."""
    weighs = weight(sizes)
    first, ends = batch.firsts[keys[which]], batch.ends[keys[which]]
    outcome = follow(bound, batch, first, ends, position[which], sizes[which], due[which], mark)
    active[which[outcome.reaches]] = True
    weighs[which] = outcome.weight
    begun = first[outcome.origin]
    last = begun + outcome.length - 2
    taken = outcome.length > 1
    last_time = np.zeros(len(begun), dtype=np.int64)
    last_time[taken] = batch.times[last[taken]]
    found = Continued(
        bound=bound,
        origin=which[outcome.origin],
        first=begun,
        length=outcome.length,
        positions=outcome.positions,
        last_time=last_time,
        over_time=outcome.over_time,
    )
    return found, weighs
