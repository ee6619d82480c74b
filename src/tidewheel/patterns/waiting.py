"""Partial matches of the state, told apart by columns: something happens to them in this batch, so that Python must run
them (active); or nothing does: then they stay rows, or are over, or their time has run out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tidewheel.model.time import Instant
from tidewheel.patterns.batch import Batch, Numbers, Truths
from tidewheel.patterns.machine import Machine

__all__ = ["Waiting", "waiting_of"]


@dataclass
class Waiting:
    """The partial matches of the state, row by row. stays, over_time: for those that Python does not run."""

    active: Truths
    stays: Truths
    over_time: Truths
    open: Numbers
    fresh: Truths

    def take(self, taken: Truths) -> None:
        """Python has run these."""
        self.stays &= ~taken
        self.over_time &= ~taken

    def changed(self) -> list[pl.Series]:
        """The columns of those that stay, as they are now."""
        return [pl.Series("__open", self.open[self.stays]), pl.Series("__fresh", self.fresh[self.stays])]

    def timed_out(self, runs: pl.DataFrame, keys: Numbers) -> pl.DataFrame:
        """The paths of those whose time ran out."""
        return runs.with_columns(pl.Series("__key", keys), __at="__due").filter(self.over_time)


def waiting_of(machine: Machine, runs: pl.DataFrame, keys: Numbers, batch: Batch, mark: Instant) -> Waiting:
    """What this batch means for the partial matches of the state."""
    position = runs["__position"].to_numpy()
    due = runs["__due"].to_numpy()
    fresh = runs["__fresh"].to_numpy().copy()
    opened = runs["__open"].to_numpy().copy()
    active = np.zeros(runs.height, dtype=np.bool_)
    has_events = keys < len(batch.firsts)
    for number in np.unique(position).tolist():
        rows = np.flatnonzero((position == number) & has_events)
        if len(rows):
            first, end = batch.firsts[keys[rows]], batch.ends[keys[rows]]
            acts = batch.next_time(machine.later[number], first, end) < due[rows]
            in_time = fresh[rows] & (batch.times[first] < due[rows])
            acts |= in_time & ((batch.bits[first] & machine.first[number]) != 0)
            if any(way.gap is not None for way in machine.ways[number]):
                acts |= in_time  # an edge that closes may change when the time runs out
            active[rows] = acts
            opened[rows] = np.where(in_time, opened[rows] & ~machine.strict[number], opened[rows])
            fresh[rows] &= ~in_time
        if machine.final[number]:
            active |= (position == number) & (due <= mark)
    expired = due <= mark
    accepts = np.array(machine.accepts, dtype=np.bool_)[position]
    return Waiting(
        active=active,
        stays=~active & ~expired & (opened != 0),
        over_time=~active & expired & (opened != 0) & ~accepts,
        open=opened,
        fresh=fresh,
    )
