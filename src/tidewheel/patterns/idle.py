"""Partial matches that stay rows: those that wait, and those that an event has just begun.

Both are told apart by columns: something happens to them in this batch, so that Python must run them (active); or
nothing does: then they stay, or are over, or their time has run out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tidewheel.model.time import Duration, Instant
from tidewheel.patterns.machine import NEVER, Machine
from tidewheel.patterns.measures import EVENTS, POSITIONS
from tidewheel.patterns.prefilter import Batch, Numbers, Truths, dying

__all__ = ["Starters", "Waiting", "starters_of", "waiting_of"]


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
            acts |= fresh[rows] & ((batch.bits[first] & machine.first[number]) != 0)
            if any(way.gap is not None for way in machine.ways[number]):
                acts |= fresh[rows]  # an edge that closes may change when the time runs out
            active[rows] = acts
            opened[rows] = np.where(fresh[rows], opened[rows] & ~machine.strict[number], opened[rows])
            fresh[rows] = False
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


@dataclass
class Starters:
    """Events that begin a match, one row for each start they make: the event's row, the start's number, its position.

    dies: over within this batch, without a trace.
    """

    row: Numbers
    start: Numbers
    position: Numbers
    time: Numbers
    key: Numbers
    open: Numbers
    fresh: Truths
    due: Numbers
    dies: Truths
    active: Truths
    stays: Truths
    over_time: Truths

    def take(self, taken: Truths) -> None:
        """Python has run these."""
        self.stays &= ~taken
        self.over_time &= ~taken

    def marks(self, taken: Truths, events: int) -> Numbers:
        """For each event, the starts that Python is to consider, as bits."""
        found = np.zeros(events, dtype=np.int64)
        np.bitwise_or.at(found, self.row[taken], np.left_shift(1, self.start[taken]))
        return found

    def rows(self, keys: pl.DataFrame, next_id: int) -> pl.DataFrame:
        """Those that stay, as rows of the state."""
        stays = self.stays
        frame = self._paths(stays, next_id).with_columns(
            pl.Series("__position", self.position[stays]),
            pl.Series("__open", self.open[stays]),
            pl.lit(0, dtype=pl.Int64).alias("__released"),
            pl.Series("__fresh", self.fresh[stays]),
            pl.Series("__start_time", self.time[stays]),
            pl.Series("__last_time", self.time[stays]),
            pl.Series("__due", self.due[stays]),
        )
        return pl.concat([keys[frame["__key"]].drop("__key"), frame], how="horizontal")

    def timed_out(self, next_id: int) -> pl.DataFrame:
        """The paths of those whose time ran out."""
        return self._paths(self.over_time, next_id).with_columns(pl.Series("__at", self.due[self.over_time]))

    def _paths(self, which: Truths, next_id: int) -> pl.DataFrame:
        frame = pl.DataFrame(
            {"__key": self.key[which], "__start": self.row[which] + next_id, "__position": self.position[which]}
        )
        return frame.with_columns(
            pl.concat_list("__start").alias(EVENTS), pl.concat_list("__position").alias(POSITIONS)
        )


def starters_of(machine: Machine, batch: Batch, mark: Instant) -> Starters:
    """What this batch means for the partial matches that it begins."""
    dead = dying(machine, batch)
    parts = [_starts(machine, batch, mark, number, dead) for number in range(len(machine.starts))]
    # In the order of events; several starts of an event in the order of the pattern.
    order = np.argsort(np.concatenate([part.row for part in parts]), kind="stable") if len(parts) > 1 else None
    columns = {}
    for name in Starters.__dataclass_fields__:
        together = (
            np.concatenate([getattr(part, name) for part in parts]) if len(parts) > 1 else getattr(parts[0], name)
        )
        columns[name] = together if order is None else together[order]
    return Starters(**columns)


def _starts(machine: Machine, batch: Batch, mark: Instant, number: int, dead: dict[int, Truths]) -> Starters:
    position = machine.starts[number]
    row = np.flatnonzero(batch.satisfied(machine.start_masks[number])).astype(np.int64)
    key, time, has_next = batch.keys[row], batch.times[row], batch.has_next[row]
    dies = dead[position][row] if position in dead else np.zeros(len(row), dtype=np.bool_)

    later = machine.everything[position] & ~machine.strict[position]
    opened = np.where(has_next, later, machine.everything[position]).astype(np.int64)
    due = time + np.where(
        has_next, _wait(machine, position, later), _wait(machine, position, machine.everything[position])
    )
    active = np.full(len(row), machine.accepts[position], dtype=np.bool_)
    if len(row):
        following = batch.bits[np.minimum(row + 1, len(batch) - 1)]
        active |= has_next & ((following & machine.first[position]) != 0)
        if machine.later[position]:
            active |= batch.next_time(machine.later[position], row + 1, batch.ends[key]) < time + machine.window
    if machine.final[position]:
        active |= due <= mark
    active &= ~dies
    dies = dies | (~active & (opened == 0))
    idle = ~active & ~dies
    expired = due <= mark
    return Starters(
        row=row,
        start=np.full(len(row), number, dtype=np.int64),
        position=np.full(len(row), position, dtype=np.int64),
        time=time,
        key=key,
        open=opened,
        fresh=~has_next,
        due=due,
        dies=dies,
        active=active,
        stays=idle & ~expired,
        over_time=idle & expired,
    )


def _wait(machine: Machine, position: int, opened: int) -> Duration:
    """How long after its only event a partial match waits at most."""
    final = machine.final_wait(position, opened)
    return min(machine.window, machine.lifetime(position, opened), NEVER if final is None else final)
