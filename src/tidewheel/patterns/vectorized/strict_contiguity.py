"""Partial matches that only the very next event leads on from: all of them at once, one event further at a time.

Most events that could begin such a match begin none: the next event, or one soon after, does not fit. Here they, and
those that were kept from before, are followed as arrays until they are over, or their time runs out, or the batch ends.
Those that get to a match, or to a position where more than the next event matters, are left to the NFA.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidewheel.model.time import Instant
from tidewheel.patterns.compile.bound_program import BoundProgram, Predicate, Transition
from tidewheel.patterns.compile.program import FINAL
from tidewheel.patterns.nfa.partial_match import weight
from tidewheel.patterns.vectorized.event_batch import EventBatch, Numbers, Truths

__all__ = ["Followed", "can_be_followed", "follow"]

MOST_STEPS = 200
"""What takes longer is left to the NFA."""


@dataclass(frozen=True)
class Followed:
    """What becomes of partial matches. reaches: those to leave to the NFA; weight: of all that one becomes, at
    most, at a time; until: the row of the event that came last to any of that. For the others, what is left of them:
    which one (origin), how many events it has, the positions at which they were taken (a row each, of which the first
    `length` count), and whether its time has run out.
    """

    reaches: Truths
    weight: Numbers
    until: Numbers
    origin: Numbers
    length: Numbers
    positions: Numbers
    over_time: Truths


def can_be_followed(bound: BoundProgram, position: int) -> bool:
    """Whether columns can decide what the next event does to a partial match at this position, and no later event
    matters."""
    return not bound.accepts[position] and all(_is_simple(transition) for transition in bound.transitions[position])


def _is_simple(transition: Transition) -> bool:
    asked: list[Predicate] = [*transition.ends, *transition.not_next]
    asked += [one for guard, untils, _ in transition.guards for one in (guard, *untils)]
    return (
        transition.strict
        and transition.gap is None
        and transition.target != FINAL
        and all(predicate.function is None for predicate in asked)
    )


def follow(
    bound: BoundProgram,
    batch: EventBatch,
    following: Numbers,
    ends: Numbers,
    positions: Numbers,
    sizes: Numbers,
    due: Numbers,
    mark: Instant,
) -> Followed:
    """Follow partial matches at such positions that have just taken an event.

    following: the row of the event that comes next to each, which may be at the end of its key's; sizes: how many
    events it has taken; due: when its time runs out.
    """
    reaches = np.zeros(len(following), dtype=np.bool_)
    weighs, until = weight(sizes), following.copy()
    # The front: which partial match, and the positions it came by.
    origin = np.arange(len(following), dtype=np.int64)
    path = positions.astype(np.int64).reshape(-1, 1)
    left: list[tuple[Numbers, Numbers, Truths]] = []
    while len(origin):
        length = path.shape[1]
        if length > MOST_STEPS:
            reaches[origin] = True
            break
        row = following[origin] + length - 1
        until[origin] = row
        goes_on = row < ends[origin]
        # A time that runs out by the next event runs out by the watermark, too.
        expired = np.where(goes_on, batch.times[np.minimum(row, len(batch) - 1)], mark) >= due[origin]
        over = ~goes_on | expired
        if over.any():
            left.append((origin[over], path[over], expired[over]))
            origin, path, row = origin[~over], path[~over], row[~over]
        origin, path = _step(bound, batch.bits[row], origin, path, reaches)
        weighs[origin] = np.maximum(weighs[origin], np.bincount(origin)[origin] * weight(sizes[origin] + length))
    return _followed(left, reaches, weighs, until)


def _step(
    bound: BoundProgram, bits: Numbers, origin: Numbers, path: Numbers, reaches: Truths
) -> tuple[Numbers, Numbers]:
    origins, paths = [origin[:0]], [np.empty((0, path.shape[1] + 1), dtype=np.int64)]
    stands = path[:, -1]
    for position in np.unique(stands).tolist():
        here = np.flatnonzero(stands == position)
        for transition in bound.transitions[position]:
            taken = here[_takes(transition, bits[here])]
            if not len(taken):
                continue
            if transition.test.function is None and can_be_followed(bound, transition.target):
                origins.append(origin[taken])
                paths.append(np.column_stack([path[taken], np.full(len(taken), transition.target)]))
            else:
                reaches[origin[taken]] = True
    origin, path = np.concatenate(origins), np.concatenate(paths)
    follows = ~reaches[origin]
    return origin[follows], path[follows]


def _takes(transition: Transition, bits: Numbers) -> Truths:
    """Whether the next event takes the transition, as far as columns can decide."""
    found: Truths = (bits & transition.test.mask) != 0
    for predicate in (*transition.ends, *transition.not_next):
        found &= (bits & predicate.mask) == 0
    for guard, untils, _ in transition.guards:
        keeps = (bits & guard.mask) != 0
        for until in untils:
            keeps &= (bits & until.mask) == 0
        found &= ~keeps
    return found


def _followed(
    left: list[tuple[Numbers, Numbers, Truths]], reaches: Truths, weighs: Numbers, until: Numbers
) -> Followed:
    left = [(origin[keep], path[keep], expired[keep]) for origin, path, expired in left for keep in [~reaches[origin]]]
    longest = max((path.shape[1] for _, path, _ in left), default=1)
    padded = [np.pad(path, ((0, 0), (0, longest - path.shape[1]))) for _, path, _ in left]
    none = np.zeros(0, dtype=np.int64)
    return Followed(
        reaches=reaches,
        weight=weighs,
        until=until,
        origin=np.concatenate([none, *(origin for origin, _, _ in left)]),
        length=np.concatenate([none, *(np.full(len(path), path.shape[1], dtype=np.int64) for _, path, _ in left)]),
        positions=np.concatenate([np.empty((0, longest), dtype=np.int64), *padded]),
        over_time=np.concatenate([none.astype(np.bool_), *(expired for _, _, expired in left)]),
    )
