"""Beginnings of matches by trying everything: when each is over, whether its time ran out, and which are dropped."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tests.patterns.brute_force import (
    Event,
    Meanings,
    Never,
    Take,
    TakenSoFar,
    Word,
    at_the_end,
    differs,
    is_broken,
    taken_by,
    words,
)
from tidewheel.patterns.define.builder import Pattern
from tidewheel.patterns.define.stages import Group, Part


@dataclass(frozen=True)
class Partial:
    """A beginning of a match, with when it was over: the time and the event, -1 if time did it; None if it is not.

    reported: its time ran out.
    """

    stages: tuple[str, ...]
    events: tuple[int, ...]
    over: tuple[int, int] | None
    reported: bool

    def is_open(self, event: int, time: int) -> bool:
        """Whether it has begun, and is not over, when this event has come."""
        if self.events[-1] > event or self.over is None:
            return self.events[-1] <= event
        return self.over[0] > time if self.over[1] == -1 else self.over[1] > event


def partial_matches(
    pattern: Pattern, meanings: Meanings, events: list[Event], *, until: int, most_words: int = 3_000
) -> list[Partial] | None:
    """All beginnings of matches that could go on; None where the pattern can be written out in too many ways."""
    ways: dict[Word, dict[Word, None]] = {}
    longest = len(events) + least_size(pattern.parts)
    for number, word in enumerate(words(pattern, longest)):
        if number == most_words:
            return None
        ends = [place + 1 for place, step in enumerate(word) if isinstance(step, Take)]
        for end, following in zip(ends, [*ends[1:], len(word)], strict=True):
            ways.setdefault(word[:end], {})[word[end:following]] = None
    found = []
    for word, onward in ways.items():
        stages = tuple(step.stage for step in word if isinstance(step, Take))
        goes_on = [way for way in onward if _waits(way)]
        accepts = len(goes_on) < len(onward)
        for numbers in itertools.combinations(range(len(events)), len(stages)) if goes_on else ():
            taken = taken_by(word, numbers, pattern, meanings, events)
            if taken is not None:
                over, by_time = _over(goes_on, numbers, taken, pattern, meanings, events, until)
                found.append(Partial(stages, numbers, over, by_time and not accepts))
    return found


def _waits(way: Word) -> bool:
    """Whether it waits for an event to take, or for what must not come at the end."""
    return isinstance(way[-1], Take) or any(isinstance(step, Never) for step in at_the_end(way)) if way else False


def least_size(parts: tuple[Part, ...]) -> int:
    """How many events a match has at least, if nothing optional is left out."""
    found = 0
    for part in parts:
        if isinstance(part, Group):
            sizes = [least_size(sequence) for sequence in part.sequences]
            found += part.quantifier.least * (sum(sizes) if part.kind == "all_of" else max(sizes))
        elif not part.forbids:
            found += part.quantifier.least
    return found


# Judging what could have gone on ----------------------------------------------------------------------------


def _over(
    ways: list[Word],
    numbers: tuple[int, ...],
    taken: TakenSoFar,
    pattern: Pattern,
    meanings: Meanings,
    events: list[Event],
    until: int,
) -> tuple[tuple[int, int] | None, bool]:
    """When the last way on was closed, and whether time did it and no match came of it."""
    began, last = events[numbers[0]]["time"], numbers[-1]
    closed = []
    for way in ways:
        limits = [] if pattern.window is None else [began + pattern.window]
        take = way[-1] if isinstance(way[-1], Take) else None
        nevers = [step for step in (way if take else at_the_end(way)) if isinstance(step, Never)]
        gaps = [take.gap] if take is not None else [one.within for one in nevers]
        limits += [events[last]["time"] + gap for gap in gaps if gap is not None]
        deadline = min(limits, default=until + 1)
        by_event = _closed_by(way, take, last, taken, meanings, [one for one in events if one["time"] < deadline])
        if by_event is not None:
            closed.append((events[by_event]["time"], by_event, False))
        else:
            completes = take is None and any(not one.next for one in nevers)
            closed.append((deadline, -1, completes))
    end = max(when for when, _, _ in closed)
    if end > until:
        return None, False
    # At one moment, time comes before events.
    by = max(event for when, event, _ in closed if when == end)
    completes = any(when == end and done for when, _, done in closed)
    return (end, by), by == -1 and not completes


def _closed_by(
    way: Word, take: Take | None, last: int, taken: TakenSoFar, meanings: Meanings, events: list[Event]
) -> int | None:
    """The event that closes a way on, if one does."""
    between = [step for step in way if not isinstance(step, Take)] if take else at_the_end(way)
    for number in range(last + 1, len(events)):
        event = events[number]
        if take is None:
            stopped = not any(not one.next for one in between if isinstance(one, Never))
        else:
            satisfies = differs(event, take.differs_in, taken) and meanings.takes[take.stage](event, taken)
            stopped = take.contiguity == "next"
            stopped |= take.contiguity == "followed_by" and satisfies
            stopped |= any(take.ended_by(event, taken, meanings))
        seen = events[last + 1 : number + 1]
        if stopped or is_broken(between, seen, seen[0], seen, taken, meanings):
            return number
    return None


# What there is no room for ----------------------------------------------------------------------------------

Path = tuple[tuple[int, ...], tuple[str, ...]]


class Undecided(Exception):
    """Some that took the same events by other stages go, some stay."""


def dropped(begun: list[Partial], events: list[Event], *, limit: int, share: int) -> dict[Path, int]:
    """Which partial matches go, at which event, if after each those that began first make room for others. What counts
    is how many there are, one for each `share` of the events that they took."""
    gone: dict[Path, int] = {}
    for number, event in enumerate(events):
        there = [one for one in begun if one.is_open(number, event["time"])]
        there = [
            one for one in there if not lost(one.events, one.stages, gone) and (one.events, one.stages) not in gone
        ]
        there.sort(key=lambda one: one.events)
        weight = sum(-(-len(one.events) // share) for one in there)
        for place, one in enumerate(there):
            if weight <= limit:
                if place and there[place - 1].events == one.events:
                    raise Undecided
                break
            weight -= -(-len(one.events) // share)
            gone[one.events, one.stages] = number
    return gone


def lost(events: tuple[int, ...], stages: tuple[str, ...], gone: dict[Path, int]) -> bool:
    """Whether what it would have come from was dropped before."""
    ends = range(1, len(events))
    return any((events[:end], stages[:end]) in gone and gone[events[:end], stages[:end]] < events[end] for end in ends)
