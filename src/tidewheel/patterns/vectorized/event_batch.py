"""The events of a batch as arrays, and which of them matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidewheel.patterns.compile.bound_program import NEVER

__all__ = ["EventBatch", "Numbers", "Truths"]

Truths = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EventBatch:
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
