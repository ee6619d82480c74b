"""The search for the preferred match from a row on: depth first, the preferred way first, no way twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidewheel.match_recognize.compile.program import ACCEPT, CHOOSE, END, JUMP, START, TAKE, Program
from tidewheel.match_recognize.matching.history import History

__all__ = ["TOO_LONG", "Partition", "Search", "Undecided"]

TOO_LONG = object()
"""A preferred way takes more rows than an attempt may keep."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A preferred alternative needs rows that have not arrived: it waits at this instruction, before this row."""

    place: int
    row: int


@dataclass(frozen=True, slots=True)
class Partition:
    """Rows `first` up to `last` of the frame.

    known: the first row is the partition's very first. ended: no row will follow. after: rows that will follow are not
    earlier than this.
    """

    first: int
    last: int
    known: bool
    ended: bool
    after: int | None = None


class Search:
    """Searches for matches with a compiled program.

    masks: for each variable, which rows may be mapped to it as far as columns tell (None: all). residues: what else a
    row must meet, given the history. ahead: how many rows after a row its condition looks at.
    can_resume: whether an attempt that was undecided can be looked at again from where it stood.
    """

    def __init__(
        self,
        program: Program,
        residues: Sequence[Callable[[History], Any] | None],
        ahead: Sequence[int],
        history: History | None,
        within: int | None,
    ) -> None:
        self._program, self._residues, self._ahead = program, residues, ahead
        self._history, self._within = history, within
        self.can_resume = history is None

    def match(
        self,
        start: int,
        partition: Partition,
        masks: Sequence[Any],
        times: Sequence[int | None] | None,
        number: int,
        failed: set[Any],
        longest: int | None = None,
        resumed: Undecided | None = None,
    ) -> Any:
        """Return the instructions that took the rows of the preferred match; None if there is none, Undecided, or
        TOO_LONG.

        failed: places at rows that led to no match, if the attempt before this one was of the same partition and
        failed too. longest: how many rows an attempt may take. resumed: where the attempt stood before these rows came;
        Undecided or TOO_LONG is then the truth, and anything else means that it must be looked at from its start.

        One long loop: it is run for every row and instruction, where a call would take longer than most of them do.
        """
        program = self._program
        kinds, variables, firsts, seconds = program.kind, program.variable, program.first, program.second
        residues, ahead, history = self._residues, self._ahead, self._history
        last = partition.last
        limit, ended, until = self._reach(start, partition, times)
        end = None if longest is None else start + longest
        if history is not None:
            history.begin(start, partition.first, last, number)
        taken: list[int] = []
        waiting: list[tuple[int, int]] = [(0, start) if resumed is None else (resumed.place, resumed.row)]
        # Whether a match can be ended from here depends on its beginning only by the history and the time that is left.
        seen = failed if history is None and self._within is None and resumed is None else set()
        size = len(kinds)
        while waiting:
            place, row = waiting.pop()
            del taken[row - start :]
            if history is not None:
                history.back(row)
            while True:
                kind = kinds[place]
                if kind == TAKE:
                    variable = variables[place]
                    if row >= limit:
                        if not ended:
                            return Undecided(place, row)
                        break
                    if until is not None and not self._in_time(times, row, until):
                        break
                    mask = masks[variable]
                    if row + ahead[variable] >= last and not partition.ended:
                        return Undecided(place, row)
                    if mask is not None and not mask[row]:
                        break
                    if history is not None:
                        history.push(row, variable)
                        residue = residues[variable]
                        if residue is not None and residue(history) is not True:
                            break
                    if row == end:
                        return TOO_LONG
                    taken.append(place)
                    row += 1
                    place += 1
                elif kind == CHOOSE:
                    key = row * size + place if history is None else (place, row, history.key())
                    if key in seen:
                        break
                    seen.add(key)
                    waiting.append((seconds[place], row))
                    place = firsts[place]
                elif kind == JUMP:
                    place = firsts[place]
                elif kind == ACCEPT:
                    return taken
                elif kind == START:
                    if row != partition.first or not partition.known:
                        break
                    place += 1
                else:
                    assert kind == END
                    if row < last:
                        break
                    if not partition.ended:
                        return Undecided(place, row)
                    place += 1
        return None

    def _reach(
        self, start: int, partition: Partition, times: Sequence[int | None] | None
    ) -> tuple[int, bool, int | None]:
        """Before which row an attempt ends, whether no row will follow that it could take, and before which time."""
        if self._within is None or times is None:
            return partition.last, partition.ended, None
        began = times[start] if start < partition.last else None
        if began is None:
            return start, True, None  # a row without a time is in no match
        until = began + self._within
        return partition.last, partition.ended or (partition.after is not None and partition.after >= until), until

    @staticmethod
    def _in_time(times: Sequence[int | None] | None, row: int, until: int) -> bool:
        time = times[row] if times is not None else None
        return time is not None and time < until
