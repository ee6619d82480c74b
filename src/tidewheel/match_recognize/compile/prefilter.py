"""Rows at which a match may start, found for all rows at once: the others never meet the search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidewheel.match_recognize.compile.program import ACCEPT, Program

__all__ = ["possible_starts"]

Booleans = np.ndarray[Any, np.dtype[np.bool_]]
Integers = np.ndarray[Any, np.dtype[np.int64]]

_EFFORT = 24
"""How many rows may be looked at, per row of the frame, before the rest is left to the search."""
_PLACES = 64


def possible_starts(
    program: Program,
    masks: Sequence[Booleans | None],
    ahead: Sequence[int],
    last: Integers,
    unended: Booleans,
    times: Integers | None,
    within: int | None,
    asked: Booleans | None = None,
    longest: int | None = None,
) -> Booleans:
    """For each row, whether a match may start there; for those that are not asked for, no.

    The program runs without regard to preference or to conditions that are not columns, from all rows in step.
    last: for each row, where its partition ends; unended: whether more rows may follow there. longest: how many rows an
    attempt may take; what comes after them must not be known here, or it would matter in which batch it comes.
    """
    count = len(last)
    possible: Booleans = np.zeros(count, dtype=bool)
    begin = program.reachable([0])
    everyone = np.arange(count) if asked is None else np.flatnonzero(asked)
    if any(program.kind[place] == ACCEPT for place in begin) or not len(everyone):
        possible[everyone] = True
        return possible
    alive = dict.fromkeys(begin, everyone)
    follow: dict[int, list[int]] = {}
    effort, distance = _EFFORT * len(everyone), 0
    while alive:
        effort -= sum(len(starts) for starts in alive.values())
        if effort < 0 or len(alive) > _PLACES or (longest is not None and distance > longest):
            for starts in alive.values():
                possible[starts] = True
            break
        following: dict[int, list[Integers]] = {}
        for place, starts in alive.items():
            taking = _taking(program.variable[place], starts, distance, possible, masks, ahead, last, unended)
            if within is not None and times is not None:
                taking = taking[times[taking + distance] - times[taking] < within]
            if place not in follow:
                follow[place] = program.reachable([place + 1])
            if any(program.kind[target] == ACCEPT for target in follow[place]):
                possible[taking] = True
                continue
            for target in follow[place]:
                following.setdefault(target, []).append(taking)
        alive = {}
        for place, parts in following.items():
            starts = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
            starts = starts[~possible[starts]]
            if len(starts):
                alive[place] = starts
        distance += 1
    return possible


def _taking(
    variable: int,
    starts: Integers,
    distance: int,
    possible: Booleans,
    masks: Sequence[Booleans | None],
    ahead: Sequence[int],
    last: Integers,
    unended: Booleans,
) -> Integers:
    """The starts whose row at that distance may be taken; those that wait for rows are possible."""
    rows = starts + distance
    there = rows < last[starts]
    waits = (rows + ahead[variable] >= last[starts]) & unended[starts]
    possible[starts[waits]] = True
    starts = starts[there & ~waits]
    mask = masks[variable]
    return starts if mask is None else starts[mask[starts + distance]]
