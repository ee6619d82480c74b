"""A program with the conditions of a schema, laid out for running: what the partial matches of all keys share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.time import Duration, Instant
from tidewheel.patterns.compile.conditions import Conditions
from tidewheel.patterns.compile.functions import Function
from tidewheel.patterns.compile.program import FINAL, MOST_EDGES, Edge, Position, Program

__all__ = ["NEVER", "BoundProgram", "Predicate", "Transition"]

NEVER: Instant = 2 * END_OF_TIME
"""A moment that no watermark reaches."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A test: a bit of the event without which it does not hold, and what else must hold."""

    mask: int
    function: Function | None


@dataclass(frozen=True, slots=True)
class Transition:
    """An edge at run time; `bit` marks it as open. plain: only its test matters.

    untils: what it does not take, and whether that closes it. guards: what closes it, what lifts that, and the bit that
    marks it as lifted.
    """

    bit: int
    target: int
    test: Predicate
    strict: bool
    any: bool
    untils: tuple[tuple[Predicate, bool], ...]
    stops: tuple[Predicate, ...]
    not_next: tuple[Predicate, ...]
    guards: tuple[tuple[Predicate, tuple[Predicate, ...], int], ...]
    gap: Duration | None
    plain: bool

    @property
    def _guarding(self) -> list[Predicate]:
        return [one for guard, untils, _ in self.guards for one in (guard, *untils)]

    @property
    def ends(self) -> list[Predicate]:
        """The events that end a loop it leads into or goes on in."""
        return [until for until, _ in self.untils]

    @property
    def later(self) -> int:
        """The bits of events that may do something to the edge, if it stays open beyond the next event."""
        if self.strict:
            return 0
        asked = [*self.stops, *self._guarding, *self.ends]
        if self.target != FINAL:
            asked.append(self.test)
        return _union(asked)

    @property
    def first(self) -> int:
        """The bits of events that may do something to the edge, if they come right after the last one taken."""
        asked = [*self.not_next, *self.stops, *self._guarding, *self.ends]
        # At the end of a pattern, what is not the event that must not come next completes the match.
        return _union([*asked, self.test] if self.target != FINAL or self.strict else asked)


def _union(predicates: list[Predicate]) -> int:
    mask = 0
    for predicate in predicates:
        mask |= predicate.mask
    return mask


class BoundProgram:
    """The program by the number of a position. later, first: which events matter to a partial match that stands there.

    strict: its edges that only the next event may take. lifetime: how long after its last event a partial match lives
    at most, by its open edges.
    """

    def __init__(self, program: Program, schema: dict[str, pl.DataType]) -> None:
        self.program = program
        self.conditions = Conditions(program, schema)
        self.accumulators = self.conditions.accumulators
        predicates = [
            Predicate(mask, function)
            for mask, function in zip(self.conditions.masks, self.conditions.functions, strict=True)
        ]
        self.transitions = [_transitions(position, predicates) for position in program.positions]
        self.accepts = [position.accepts for position in program.positions]
        self.stages = [position.stage for position in program.positions]
        self.everything = [(1 << len(transitions)) - 1 for transitions in self.transitions]
        self.strict = [
            sum(transition.bit for transition in transitions if transition.strict) for transitions in self.transitions
        ]
        self.plain = [all(transition.plain for transition in transitions) for transitions in self.transitions]
        self.final = [
            sum(transition.bit for transition in transitions if transition.target == FINAL)
            for transitions in self.transitions
        ]
        self.later = [_or(transition.later for transition in transitions) for transitions in self.transitions]
        self.first = [_or(transition.first for transition in transitions) for transitions in self.transitions]
        self.matters = _or([*self.later, *self.first])
        self.starts = tuple(edge.target for edge in program.starts)
        self.start_masks = self.conditions.start_masks
        self.window: Duration = NEVER if program.window is None else program.window
        self.accumulates = bool(self.accumulators.slots)
        self._gaps = [
            [
                (transition.bit, transition.gap)
                for transition in transitions
                if transition.gap is not None and transition.target != FINAL
            ]
            for transitions in self.transitions
        ]
        self._waits: dict[tuple[int, int], Duration] = {}

    def wait(self, position: int, opened: int) -> Duration:
        """How long after its last event time alone does something to a partial match, by its open edges."""
        known = self._waits.get((position, opened))
        if known is None:
            final = self.final_wait(position, opened)
            known = min(self.lifetime(position, opened), NEVER if final is None else final)
            self._waits[position, opened] = known
        return known

    def lifetime(self, position: int, opened: int) -> Duration:
        """How long after its last event the open edges wait; the end of a pattern waits for its own time."""
        longest = 0
        for transition in self.transitions[position]:
            if transition.bit & opened:
                if transition.gap is None:
                    return NEVER
                longest = max(longest, transition.gap)
        return longest

    def outwaited(self, position: int, waited: Duration) -> int:
        """The edges that are closed so long after the last event; the end of a pattern waits for its own time."""
        return _or(bit for bit, gap in self._gaps[position] if gap <= waited)

    def closed(self, position: int, waited: Duration) -> int:
        """The edges that the next event closes if it satisfies nothing and comes so long after the last one."""
        return self.strict[position] | self.outwaited(position, waited)

    def final_wait(self, position: int, opened: int) -> Duration | None:
        """How long after its last event a partial match is complete if nothing comes that must not; if it waits so."""
        for transition in self.transitions[position]:
            if transition.bit & opened & self.final[position] and not transition.strict:
                return NEVER if transition.gap is None else transition.gap
        return None


def _or(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _transitions(position: Position, predicates: list[Predicate]) -> tuple[Transition, ...]:
    lifted = (1 << number for number in itertools.count())
    found = tuple(_transition(number, edge, predicates, lifted) for number, edge in enumerate(position.edges))
    if sum(len(transition.guards) for transition in found) > MOST_EDGES:
        raise DefinitionError(f"stage {position.stage!r}: too many greedy loops may be left out after it")
    return found


def _transition(number: int, edge: Edge, predicates: list[Predicate], lifted: Iterator[int]) -> Transition:
    guards = tuple(
        (predicates[guard.test], tuple(predicates[until] for until in guard.untils), next(lifted))
        for guard in edge.guards
    )
    return Transition(
        bit=1 << number,
        target=edge.target,
        test=predicates[edge.test],
        strict=edge.contiguity == "next",
        any=edge.contiguity == "followed_by_any",
        untils=tuple((predicates[until.test], until.closes) for until in edge.untils),
        stops=tuple(predicates[test] for test in edge.stops),
        not_next=tuple(predicates[test] for test in edge.not_next),
        guards=guards,
        gap=edge.gap,
        plain=not (edge.untils or edge.stops or edge.not_next or guards or edge.gap) and edge.target != FINAL,
    )
