"""A row pattern as a program for a backtracking search: instructions that take rows, choose, and jump.

The idea is Thompson's, in the form of Russ Cox's "Regular Expression Matching: the Virtual Machine Approach" (2009):
of two ways the preferred one is tried first, so the first way that reaches the end is the preferred match.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from itertools import permutations

from tidewheel.errors import DefinitionError
from tidewheel.match_recognize.syntax.row_pattern import (
    Alternatives,
    Empty,
    End,
    Excluded,
    Permute,
    Repeat,
    RowPattern,
    Sequence,
    Start,
    Variable,
)

__all__ = ["ACCEPT", "CHOOSE", "END", "JUMP", "START", "TAKE", "Program", "compile_pattern"]

TAKE, CHOOSE, JUMP, START, END, ACCEPT = range(6)
_LONGEST = 20_000


@dataclass(slots=True)
class Program:
    """One list per field of an instruction.

    TAKE: a row for `variable` (its index). CHOOSE: go to `first`, or else to `second`. JUMP: go to `first`.
    START and END: only at that end of the partition. `excluded`: the row taken is not shown.
    """

    kind: list[int] = field(default_factory=list)
    variable: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    excluded: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kind)

    def add(self, kind: int, variable: int = -1, excluded: bool = False) -> int:
        """Append an instruction; gives its place."""
        if len(self.kind) >= _LONGEST:
            raise DefinitionError(
                f"PATTERN is too large: with its quantifiers and permutations written out it has more than {_LONGEST} "
                "steps; use smaller numbers in {} and fewer parts in PERMUTE"
            )
        self.kind.append(kind)
        self.variable.append(variable)
        self.first.append(-1)
        self.second.append(-1)
        self.excluded.append(excluded)
        return len(self.kind) - 1

    def reachable(self, places: Many[int], *, at_start: bool = True) -> list[int]:
        """The instructions that take a row or accept, reached from these without taking one, anchors ignored."""
        found: dict[int, None] = {}
        seen = set()
        waiting = list(reversed(places))
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            kind = self.kind[place]
            if kind in (TAKE, ACCEPT):
                found[place] = None
            elif kind == CHOOSE:
                waiting += [self.second[place], self.first[place]]
            else:
                waiting.append(self.first[place] if kind == JUMP else place + 1)
        return list(found)


def compile_pattern(pattern: RowPattern, variables: Many[str]) -> Program:
    """Compile a pattern; a variable's index is its place in `variables`.

    >>> from tidewheel.match_recognize.syntax.row_pattern import read_pattern
    >>> program = compile_pattern(read_pattern("A B?")[0], ["A", "B"])
    >>> program.kind == [TAKE, CHOOSE, TAKE, ACCEPT]
    True
    """
    program = Program()
    _Compiler(program, {name: index for index, name in enumerate(variables)}).emit(pattern, False)
    program.add(ACCEPT)
    return program


class _Compiler:
    def __init__(self, program: Program, variables: dict[str, int]) -> None:
        self._program, self._variables = program, variables

    def emit(self, pattern: RowPattern, excluded: bool) -> None:
        program = self._program
        if isinstance(pattern, Variable):
            program.add(TAKE, self._variables[pattern.name], excluded)
        elif isinstance(pattern, Sequence):
            for part in pattern.parts:
                self.emit(part, excluded)
        elif isinstance(pattern, Alternatives):
            self._alternatives(pattern.parts, excluded)
        elif isinstance(pattern, Permute):
            self._alternatives([Sequence(order) for order in permutations(pattern.parts)], excluded)
        elif isinstance(pattern, Excluded):
            self.emit(pattern.part, True)
        elif isinstance(pattern, Repeat):
            self._repeat(pattern, excluded)
        elif isinstance(pattern, Start):
            program.add(START)
        elif isinstance(pattern, End):
            program.add(END)
        else:
            assert isinstance(pattern, Empty)

    def _alternatives(self, parts: Many[RowPattern], excluded: bool) -> None:
        program = self._program
        jumps = []
        for part in parts[:-1]:
            choice = program.add(CHOOSE)
            program.first[choice] = len(program)
            self.emit(part, excluded)
            jumps.append(program.add(JUMP))
            program.second[choice] = len(program)
        self.emit(parts[-1], excluded)
        for jump in jumps:
            program.first[jump] = len(program)

    def _repeat(self, repeat: Repeat, excluded: bool) -> None:
        for _ in range(repeat.low - (repeat.high is None)):
            self.emit(repeat.part, excluded)
        if repeat.high is None:
            self._loop(repeat, excluded)
            return
        choices = []
        for _ in range(repeat.high - repeat.low):
            choices.append(self._program.add(CHOOSE))
            self._choose(choices[-1], repeat.greedy, inside=len(self._program))
            self.emit(repeat.part, excluded)
        for choice in choices:
            self._choose(choice, repeat.greedy, outside=len(self._program))

    def _loop(self, repeat: Repeat, excluded: bool) -> None:
        """The part once or, if it may be left out, not at all; then a choice at its end to do it again.

        An iteration that takes no row comes back to that choice where it already was, so the search leaves the loop.
        """
        program = self._program
        before = program.add(CHOOSE) if repeat.low == 0 else None
        start = len(program)
        if before is not None:
            self._choose(before, repeat.greedy, inside=start)
        self.emit(repeat.part, excluded)
        again = program.add(CHOOSE)
        self._choose(again, repeat.greedy, inside=start, outside=len(program))
        if before is not None:
            self._choose(before, repeat.greedy, outside=len(program))

    def _choose(self, choice: int, greedy: bool, *, inside: int | None = None, outside: int | None = None) -> None:
        program = self._program
        if inside is not None:
            (program.first if greedy else program.second)[choice] = inside
        if outside is not None:
            (program.second if greedy else program.first)[choice] = outside
