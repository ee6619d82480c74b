"""From a pattern to its program.

The parts are walked from left to right with the loose ends: the positions from which the next part may be reached, and
what must hold on the way (what must not come, and greedy loops that were left). Each stage ties the loose ends to its
own position and is the next loose end. It is Glushkov's construction, so no edge is without an event.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidewheel.errors import DefinitionError
from tidewheel.model.time import Duration
from tidewheel.patterns.compile.program import FINAL, MOST_EDGES, Edge, Guard, Position, Program, Test, Until
from tidewheel.patterns.define.builder import Pattern
from tidewheel.patterns.define.stages import Condition, Contiguity, Group, Part, Stage

__all__ = ["compile_pattern"]

MOST_POSITIONS = 5_000
_START = -2
_NOWHERE = -3


@dataclass(frozen=True, slots=True)
class _Loose:
    """A loose end: a position, and what must hold until the next stage takes an event.

    passed: how many of the stops are on the way to a part that was left out. If no other stage takes an event, there
    was no such way, and they say nothing.
    """

    source: int
    stops: tuple[int, ...] = ()
    passed: int = 0
    not_next: tuple[int, ...] = ()
    guards: tuple[Guard, ...] = ()
    due: Duration | None = None

    def past(self, guards: tuple[Guard, ...] = ()) -> _Loose:
        """The end if an optional part is left out."""
        return replace(self, passed=len(self.stops), guards=self.guards + guards)


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop that an event ends. first: its first position; placeholders: those made later are inside, too."""

    until: int
    first: int
    placeholders: int

    def contains(self, source: int) -> bool:
        return source >= self.first or source < self.placeholders


def compile_pattern(pattern: Pattern) -> Program:
    """Compile a pattern; one that is malformed is refused.

    >>> from tidewheel.patterns.define.builder import pattern
    >>> [position.stage for position in compile_pattern(pattern("a", "x").next("b", "y").times(2)).positions]
    ['a', 'b', 'b']
    """
    pattern.check_ready()
    return _Compiler(pattern).program()


@dataclass
class _Compiler:
    pattern: Pattern
    tests: dict[Test, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    edges: dict[int, list[Edge]] = field(default_factory=dict)
    accepts: set[int] = field(default_factory=set)
    placeholders: int = _NOWHERE
    loops: tuple[_Loop, ...] = ()

    def program(self) -> Program:
        ends = self._sequence(self.pattern.parts, [_Loose(_START)], "followed_by")
        for end in dict.fromkeys(ends):
            if end.source == _START:
                continue  # a match has at least one event
            stops = end.stops if len(end.stops) > end.passed else ()
            if stops or end.not_next:
                self.edges.setdefault(end.source, []).append(
                    Edge(
                        FINAL,
                        self._test(None),
                        "next" if not stops else "followed_by",
                        stops=stops,
                        not_next=end.not_next,
                        guards=end.guards,
                        gap=end.due,
                    )
                )
            else:
                self.accepts.add(end.source)
        positions = []
        for number, name in enumerate(self.names):
            edges = tuple(self.edges.get(number, ()))
            if len(edges) > MOST_EDGES:
                raise DefinitionError(
                    f"stage {name!r}: {len(edges)} ways lead on from here, {MOST_EDGES} is the most; "
                    "use fewer optional stages in a row, or fewer alternatives"
                )
            positions.append(Position(name, edges, number in self.accepts))
        return Program(
            tests=tuple(self.tests),
            starts=tuple(self.edges.get(_START, ())),
            positions=tuple(positions),
            window=self.pattern.window,
            policy=self.pattern.policy,
            stages=self.pattern.stages,
        )

    def _test(self, condition: Condition | None, differs_in: str | None = None) -> int:
        return self.tests.setdefault(Test(condition, differs_in), len(self.tests))

    def _sequence(self, parts: tuple[Part, ...], loose: list[_Loose], head: Contiguity) -> list[_Loose]:
        """head: the contiguity of the first part."""
        for place, part in enumerate(parts):
            contiguity = head if place == 0 else part.contiguity
            if isinstance(part, Stage) and part.forbids:
                loose = [self._forbid(part, end) for end in loose]
                continue
            nots, around = self._nots(parts[place + 1 :]), self.loops
            if part.quantifier.until is not None:
                until = self._test(part.quantifier.until)
                self.loops = (*around, _Loop(until, len(self.names), self.placeholders))
            if isinstance(part, Group):
                loose = self._group(part, loose, contiguity, nots)
            else:
                loose = self._stage(part, loose, contiguity, nots)
            self.loops = around
        return loose

    def _nots(self, later: tuple[Part, ...]) -> _Loose:
        """The stages that must not come right after a part: within a loop, they must not come either."""
        found = _Loose(_NOWHERE)
        for part in later:
            if not isinstance(part, Stage) or not part.forbids:
                break
            found = self._forbid(part, found)
        return found

    def _forbid(self, part: Stage, end: _Loose) -> _Loose:
        test = self._test(part.condition)
        if part.contiguity == "next":
            return replace(end, not_next=(*end.not_next, test))
        return replace(end, stops=(*end.stops, test), due=part.within)

    def _stage(self, part: Stage, loose: list[_Loose], contiguity: Contiguity, nots: _Loose) -> list[_Loose]:
        quantifier = part.quantifier
        test = self._test(part.condition, part.differs_in)
        every = part.within or quantifier.within or self.pattern.gap
        # A loop's own limit is for its neighbours; before the first it counts only if the stage must come.
        first_gap = part.within or self.pattern.gap if quantifier.optional else every

        position = self._position(part.name)
        self._tie(loose, Edge(position, test, contiguity, gap=first_gap))
        guard = (Guard(test, tuple(loop.until for loop in self.loops)),) if quantifier.greedy else ()
        ends = [end.past(guard) for end in loose] if quantifier.optional else []
        inner = Edge(position, test, quantifier.inner, gap=every)
        taken = 1
        while True:
            may_leave = taken >= quantifier.least
            full = quantifier.most is not None and taken >= quantifier.most
            if may_leave:
                ends.append(_Loose(position, guards=() if full else guard))
            if full:
                return ends
            again = _again(_Loose(position), nots, may_leave)
            if quantifier.most is None and may_leave:
                self._tie([again], replace(inner, target=position))
                return ends
            position = self._position(part.name)
            self._tie([again], replace(inner, target=position))
            taken += 1

    def _group(self, group: Group, loose: list[_Loose], contiguity: Contiguity, nots: _Loose) -> list[_Loose]:
        quantifier = group.quantifier
        ends = [end.past() for end in loose] if quantifier.optional else []
        taken = 0
        while True:
            if quantifier.most is None and taken == quantifier.least:
                return ends + self._endless(group, loose, nots)
            loose = self._once(group, loose, contiguity)
            taken += 1
            may_leave = taken >= quantifier.least
            if may_leave:
                ends += loose
            if taken == quantifier.most:
                return ends
            contiguity = quantifier.inner
            loose = [_again(end, nots, may_leave) for end in loose]

    def _endless(self, group: Group, loose: list[_Loose], nots: _Loose) -> list[_Loose]:
        """Another iteration that leads back to its own beginning: to where a placeholder was tied."""
        self.placeholders -= 1
        placeholder = self.placeholders
        ends = self._once(group, [*loose, _Loose(placeholder)], group.quantifier.inner)
        heads = self.edges.pop(placeholder, [])
        ends = [end for end in ends if end.source != placeholder]
        for head in heads:
            for end in _different([_again(end, nots, True) for end in ends]):
                self._link(end, head)
        return ends

    def _once(self, group: Group, loose: list[_Loose], contiguity: Contiguity) -> list[_Loose]:
        if group.kind != "all_of":
            return [end for sequence in group.sequences for end in self._sequence(sequence, loose, contiguity)]
        whole = frozenset(range(len(group.sequences)))
        ends: dict[frozenset[int], list[_Loose]] = {frozenset(): loose}
        for done in sorted(_subsets(whole), key=lambda subset: (len(subset), sorted(subset))):
            for number in sorted(whole - done):
                head = group.quantifier.inner if done else contiguity
                after = self._sequence(group.sequences[number], ends[done], head)
                ends.setdefault(done | {number}, []).extend(after)
        return ends[whole]

    def _position(self, name: str) -> int:
        self.names.append(name)
        if len(self.names) > MOST_POSITIONS:
            raise DefinitionError(
                f"stage {name!r}: the pattern has more than {MOST_POSITIONS} steps when its repetitions are written "
                "out; use smaller numbers in times and at_least"
            )
        return len(self.names) - 1

    def _tie(self, loose: list[_Loose], edge: Edge) -> None:
        for end in _different(loose):
            untils = tuple(Until(loop.until, loop.contains(end.source)) for loop in self.loops)
            self._link(end, replace(edge, untils=untils))

    def _link(self, end: _Loose, edge: Edge) -> None:
        linked = replace(
            edge,
            stops=end.stops + edge.stops,
            not_next=end.not_next + edge.not_next,
            guards=end.guards + edge.guards,
        )
        self.edges.setdefault(end.source, []).append(linked)


def _different(loose: list[_Loose]) -> list[_Loose]:
    """Each end once: an optional part with nothing in it may be left out in two ways, which are the same."""
    return list(dict.fromkeys(replace(end, passed=0) for end in loose))


def _again(end: _Loose, nots: _Loose, may_leave: bool) -> _Loose:
    """The end of an iteration as the beginning of the next: what must not come after the loop must not come here."""
    not_next = nots.not_next if may_leave else ()
    return replace(end, stops=end.stops + nots.stops, not_next=end.not_next + not_next)


def _subsets(whole: frozenset[int]) -> list[frozenset[int]]:
    found = [frozenset[int]()]
    for number in sorted(whole):
        found += [subset | {number} for subset in found]
    return [subset for subset in found if subset != whole]
