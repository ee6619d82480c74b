"""The compiled form of a pattern: positions, and the edges that lead from one to the next.

A position is "this stage has just taken an event"; a loop that counts has one for each number. An edge waits for the
event that leads to its target. A partial match stands at one position, with the set of edges that are still open.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidewheel.model.time import Duration
from tidewheel.patterns.define.policy import Policy
from tidewheel.patterns.define.stages import Condition, Contiguity

__all__ = ["FINAL", "MOST_EDGES", "Edge", "Guard", "Position", "Program", "Test", "Until"]

FINAL = -1
"""The target of an edge that takes no event: it waits for what must not come at the end of a pattern."""

MOST_EDGES = 62
"""Open edges are the bits of a signed 64-bit number."""


@dataclass(frozen=True, slots=True)
class Test:
    """A test of an event: a condition, and whether its key must differ from those of all events taken."""

    condition: Condition | None
    differs_in: str | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """A greedy loop keeps what it could take: such an event closes the edge, unless one of `untils` ended the loop."""

    test: int
    untils: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Until:
    """The condition that ends a loop which the edge leads into or continues; closes: the loop has begun, so this closes
    the edge."""

    test: int
    closes: bool


@dataclass(frozen=True, slots=True)
class Edge:
    """The way to a position. Tests are numbers in the program's list.

    untils: events that the edge does not take. stops: close the edge. not_next: closes the edge if the first event
    after the last one taken is such a one. gap: how long it is open.
    """

    target: int
    test: int
    contiguity: Contiguity
    untils: tuple[Until, ...] = ()
    stops: tuple[int, ...] = ()
    not_next: tuple[int, ...] = ()
    guards: tuple[Guard, ...] = ()
    gap: Duration | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """accepts: a partial match that gets here is a match."""

    stage: str
    edges: tuple[Edge, ...]
    accepts: bool


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled pattern. starts: the edges that the first event of a match may take."""

    tests: tuple[Test, ...]
    starts: tuple[Edge, ...]
    positions: tuple[Position, ...]
    window: Duration | None
    policy: Policy
    stages: tuple[str, ...] = field(default=())
