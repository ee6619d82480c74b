"""Partial matches and their ends: they match, time out, or are dropped at the limit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tidewheel.model.time import Instant
from tidewheel.patterns.compile.accumulators import Taken
from tidewheel.patterns.compile.bound_program import NEVER

__all__ = ["BY_TIME", "Dropped", "Match", "Path", "PartialMatch", "TimedOut", "events_of", "steps_of", "weight"]

Path = tuple["Path | None", int, int]
"""The path before, an event, and the position at which it was taken."""

BY_TIME = -(2**62)
"""In place of the event that completed a match: time did."""

EVENTS_EACH = 100
"""How many events a partial match may hold and still count as one towards the limit."""

_Count = TypeVar("_Count", int, npt.NDArray[np.int64])


def weight(size: _Count) -> _Count:
    """The weight of a partial match, or of a match held back, towards the limit, by the number of its events.

    >>> weight(1), weight(100), weight(101)
    (1, 1, 2)
    """
    return -(-size // EVENTS_EACH)


class PartialMatch:
    """A partial match. size: how many events it has taken. fresh: no event has come since its last one. released:
    guards that `until` has lifted."""

    __slots__ = (
        "dead",
        "due",
        "fresh",
        "last_time",
        "open",
        "path",
        "position",
        "released",
        "size",
        "start",
        "start_time",
        "taken",
    )

    def __init__(
        self,
        position: int,
        opened: int,
        path: Path,
        size: int,
        start: int,
        start_time: Instant,
        last_time: Instant,
        taken: Taken,
    ) -> None:
        self.position = position
        self.open = opened
        self.path = path
        self.size = size
        self.start = start
        self.start_time = start_time
        self.last_time = last_time
        self.taken = taken
        self.released = 0
        self.fresh = True
        self.dead = False
        self.due: Instant = NEVER


@dataclass(frozen=True)
class Match:
    """completed_at, completed_by: the time, and the event if it was one, that made it a match."""

    path: Path
    start: int
    completed_at: Instant
    completed_by: int

    @cached_property
    def size(self) -> int:
        """The number of its events."""
        return len(steps_of(self.path))

    @cached_property
    def order(self) -> tuple[object, ...]:
        """Earlier starts first, then what was complete first, then what took events rather than passed them over."""
        steps = steps_of(self.path)
        events = [float(event) for event, _ in steps] + [float("inf")]
        return self.start, self.completed_at, self.completed_by, events, [position for _, position in steps]


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A partial match that timed out."""

    path: Path
    at: Instant


@dataclass(frozen=True, slots=True)
class Dropped:
    """A partial match that was given up because there were too many."""

    path: Path
    at: Instant


def steps_of(path: Path) -> list[tuple[int, int]]:
    """The events of a path with the positions at which they were taken, first to last."""
    found = []
    node: Path | None = path
    while node is not None:
        node, event, position = node
        found.append((event, position))
    return found[::-1]


def events_of(path: Path) -> list[int]:
    """The events of a path, first to last."""
    return [event for event, _ in steps_of(path)]
