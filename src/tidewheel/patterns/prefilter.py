"""Which events matter: told by columns, so that most never reach Python.

Everything here errs on the safe side: what it rules out cannot do anything, what it lets through may.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidewheel.patterns.machine import NEVER, Machine
from tidewheel.patterns.program import FINAL

__all__ = ["Batch", "dying"]

Truths = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

LOOKAHEAD = 10
"""How many events ahead it is seen that a partial match dies."""


@dataclass(frozen=True)
class Batch:
    """Events of many keys, key after key. keys: the key of each, numbered from 0; bits: the conditions that hold."""

    keys: Numbers
    times: Numbers
    bits: Numbers

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def firsts(self) -> Numbers:
        """The first event of each key."""
        begins = np.flatnonzero(np.diff(self.keys, prepend=-1))
        return begins.astype(np.int64)

    @cached_property
    def ends(self) -> Numbers:
        """Behind the last event of each key."""
        return np.append(self.firsts[1:], len(self)).astype(np.int64)

    @cached_property
    def has_next(self) -> Truths:
        """Whether the key has another event after this one."""
        found = np.zeros(len(self), dtype=np.bool_)
        found[:-1] = self.keys[1:] == self.keys[:-1]
        return found

    def satisfied(self, mask: int) -> Truths:
        """The events that have one of these bits."""
        found: Truths = (self.bits & mask) != 0
        return found

    def next_time(self, mask: int, rows: Numbers, ends: Numbers) -> Numbers:
        """The time of the first event at or after each row, and before its end, that has one of these bits."""
        found = np.full(len(rows), NEVER, dtype=np.int64)
        if not mask or not len(rows):
            return found
        having = np.flatnonzero(self.satisfied(mask))
        if len(having):
            place = np.searchsorted(having, rows)
            there = np.minimum(place, len(having) - 1)
            row = having[there]
            reached = (place < len(having)) & (row < ends) & (row >= rows)
            found[reached] = self.times[row[reached]]
        return found


def dying(machine: Machine, batch: Batch) -> dict[int, Truths]:
    """For each position at which a match may begin: the events where one that does is over soon, in this batch, before
    its time runs out, without a match and without a trace.

    A position can be seen through if nothing but the very next event leads on from it. Looking one event further at a
    time, a partial match there dies if the next event takes none of its edges, or only such to where it dies.
    """
    seen_through = [number for number in range(len(machine.ways)) if _only_next(machine, number)]
    starts = [target for target in dict.fromkeys(machine.starts) if target in seen_through]
    if not starts or len(batch) < 2:
        return {}
    masks = {way.test.mask for number in seen_through for way in machine.ways[number]}
    fits = {mask: batch.satisfied(mask)[1:] for mask in masks}
    unknown = ~batch.has_next[:-1]
    alive = {number: np.ones(len(batch), dtype=np.bool_) for number in seen_through}
    dead = {number: np.zeros(len(batch), dtype=np.bool_) for number in starts}
    for ahead in range(1, LOOKAHEAD + 1):
        now = {}
        for number in seen_through:
            found = unknown.copy()
            for way in machine.ways[number]:
                reached = fits[way.test.mask]
                if not machine.accepts[way.target] and way.target in alive:
                    reached = reached & alive[way.target][1:]
                found |= reached
            now[number] = np.append(found, True)
        for number in starts:
            just = np.flatnonzero(alive[number] & ~now[number])
            over = batch.times[np.minimum(just + ahead, len(batch) - 1)]
            dead[number][just[over - batch.times[just] < machine.window]] = True
        if all(np.array_equal(alive[number], now[number]) for number in seen_through):
            break
        alive = now
    return dead


def _only_next(machine: Machine, number: int) -> bool:
    ways = machine.ways[number]
    return not machine.accepts[number] and all(way.strict and way.gap is None and way.target != FINAL for way in ways)
