"""Matches as columns: where each is, which rows it took for which variables, and the rows that come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidewheel.match_recognize.compile.program import Program
from tidewheel.match_recognize.syntax.clause import Rows

__all__ = ["Found", "Integers", "Matches", "Output"]

Integers = np.ndarray[Any, np.dtype[np.int64]]
Booleans = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(slots=True)
class Found:
    """Matches in the order in which they are found; rows are counted from the start of the frame."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    number: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)

    def add(self, first: int, last: int, start: int, number: int, taken: list[int]) -> None:
        """Add a match in the partition from `first` up to `last`, with the instructions that took its rows."""
        self.first.append(first)
        self.last.append(last)
        self.start.append(start)
        self.length.append(len(taken))
        self.number.append(number)
        self.taken += taken


@dataclass(frozen=True, slots=True)
class Matches:
    """The same as arrays. Each row of each match has a place, counted through all matches; `offset` is the first's."""

    first: Integers
    last: Integers
    start: Integers
    length: Integers
    number: Integers
    offset: Integers
    match_of: Integers
    row: Integers
    label: Integers
    excluded: Booleans

    @classmethod
    def of(cls, found: Found, program: Program) -> Matches:
        """The arrays of what was found."""
        start, length = _integers(found.start), _integers(found.length)
        offset = np.cumsum(length) - length
        match_of = np.repeat(np.arange(len(length)), length)
        row = np.arange(len(match_of)) - offset[match_of] + start[match_of]
        taken = _integers(found.taken)
        label = _integers(program.variable)[taken]
        excluded = np.asarray(program.excluded, dtype=bool)[taken]
        numbers = _integers(found.number)
        return cls(
            _integers(found.first),
            _integers(found.last),
            start,
            length,
            numbers,
            offset,
            match_of,
            row,
            label,
            excluded,
        )


@dataclass(frozen=True, slots=True)
class Output:
    """The output rows: the match of each (-1: none), how many of its rows are visible there, and the row itself."""

    match: Integers
    upto: Integers
    row: Integers

    @classmethod
    def of(cls, matches: Matches, rows: Rows, unmatched: Integers) -> Output:
        """One row per match, or all that are to be shown, in the order of the input."""
        if rows == "one":
            return cls(np.arange(len(matches.start)), matches.length, matches.start)
        shown = np.flatnonzero(~matches.excluded)
        match = matches.match_of[shown]
        position = shown - matches.offset[match]
        parts = [(match, position + 1, matches.row[shown])]
        if rows != "all but empty":
            empty = np.flatnonzero(matches.length == 0)
            parts.append((empty, np.zeros_like(empty), matches.start[empty]))
        if rows == "all and unmatched":
            parts.append((np.full_like(unmatched, -1), np.zeros_like(unmatched), unmatched))
        match, upto, row = (np.concatenate([part[index] for part in parts]) for index in range(3))
        begin = np.where(match >= 0, matches.start[match] if len(matches.start) else row, row)
        order = np.lexsort((upto, begin))
        return cls(match[order], upto[order], row[order])

    def last_row(self, matches: Matches) -> Integers:
        """For each row, the last one of its match; one of no match, and an empty match's, is its own."""
        if not len(matches.start):
            return self.row
        ends = matches.start + np.maximum(matches.length, 1) - 1
        return np.where(self.match >= 0, ends[self.match], self.row)


def _integers(values: list[int]) -> Integers:
    return np.asarray(values, dtype=np.int64)
