"""Matches by trying everything: each way to write a pattern out as a list of takes, on each subsequence of the events.

Written from what the operators mean, and nothing of the automaton is used. A pattern comes with the meaning of its
conditions: for each stage, a function of an event and the events taken so far.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewheel.patterns.pattern import Pattern
from tidewheel.patterns.stage import Group, Part, Stage

Event = Mapping[str, Any]
TakenSoFar = list[tuple[str, Event]]
Meaning = Callable[[Event, TakenSoFar], bool]


@dataclass(frozen=True)
class Meanings:
    """What stages take, what ends their loops, and in which column an event must differ from those taken."""

    takes: Mapping[str, Meaning]
    ends: Mapping[str, Meaning] = field(default_factory=dict)


@dataclass(frozen=True)
class Leaving:
    """A greedy loop that is left before it is full, or left out."""

    stage: str
    other_key: str | None


@dataclass(frozen=True)
class Never:
    """What must not come: ever until the next take, or next."""

    stage: str
    next: bool
    within: int | None = None


@dataclass(frozen=True)
class Take:
    """nevers, greedy: what must hold since the take before."""

    stage: str
    contiguity: str
    first: bool
    gap: int | None
    other_key: str | None
    between: tuple[Never | Leaving, ...] = ()


Word = tuple[Take | Never | Leaving, ...]


@dataclass(frozen=True)
class Found:
    stages: tuple[str, ...]
    events: tuple[int, ...]
    completed: tuple[int, int]
    """The time, and the event (-1: time did)."""

    @property
    def preference(self) -> Any:
        return [*self.events, float("inf")]


def matches(pattern: Pattern, meanings: Meanings, events: list[Event], *, until: int) -> list[Found]:
    """All matches in events with their `time`, when the watermark has come to `until`; policies apart."""
    found = []
    for word in words(pattern, len(events)):
        takes = [step for step in word if isinstance(step, Take)]
        for numbers in itertools.combinations(range(len(events)), len(takes)):
            completed = _completed(word, numbers, pattern, meanings, events, until)
            if completed is not None:
                found.append(Found(tuple(take.stage for take in takes), numbers, completed))
    return found


@dataclass(frozen=True)
class Partial:
    """A beginning of a match, with when it was over: the time and the event, -1 if time did it; None if it is not.

    told: its time ran out.
    """

    stages: tuple[str, ...]
    events: tuple[int, ...]
    over: tuple[int, int] | None
    told: bool


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
        accepts = any(not any(isinstance(step, Never | Take) for step in way) for way in onward)
        goes_on = [way for way in onward if any(isinstance(step, Never | Take) for step in way)]
        for numbers in itertools.combinations(range(len(events)), len(stages)) if goes_on else ():
            taken = _taken(word, numbers, pattern, meanings, events)
            if taken is not None:
                over, by_time = _over(goes_on, numbers, taken, pattern, meanings, events, until)
                found.append(Partial(stages, numbers, over, by_time and not accepts))
    return found


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


# Writing a pattern out --------------------------------------------------------------------------------------


def words(pattern: Pattern, length: int) -> Iterator[Word]:
    # A part that may be left out, with nothing in it but such parts, is left out in ways that are the same.
    for word in dict.fromkeys(_sequence(pattern.parts, pattern.gap, length, None)):
        count = sum(isinstance(step, Take) for step in word)
        if 0 < count <= length:
            yield word


def _sequence(parts: tuple[Part, ...], gap: int | None, length: int, head: str | None) -> Iterator[Word]:
    if not parts:
        yield ()
        return
    first, *others = parts
    nevers = tuple(
        _never(part) for part in itertools.takewhile(lambda part: isinstance(part, Stage) and part.forbids, others)
    )
    for beginning in _part(first, gap, length, first.contiguity if head is None else head, nevers):
        for end in _sequence(tuple(others), gap, length - _size(beginning), None):
            yield beginning + end


def _size(word: Word) -> int:
    return sum(isinstance(step, Take) for step in word)


def _never(stage: Stage) -> Never:
    return Never(stage.name, stage.contiguity == "next", stage.within)


def _part(part: Part, gap: int | None, length: int, contiguity: str, nevers: tuple[Never, ...]) -> Iterator[Word]:
    if isinstance(part, Stage) and part.forbids:
        yield (_never(part),)
        return
    quantifier = part.quantifier
    if quantifier.optional:
        yield (Leaving(part.name, part.other_key),) if isinstance(part, Stage) and quantifier.greedy else ()
    # A group whose stages may all be left out needs no events.
    most = length if quantifier.most is None else min(quantifier.most, max(length, quantifier.least))
    for count in range(quantifier.least, most + 1):
        yield from _repeated(part, count, gap, length, contiguity, nevers)


def _repeated(
    part: Part, count: int, gap: int | None, length: int, contiguity: str, nevers: tuple[Never, ...]
) -> Iterator[Word]:
    quantifier = part.quantifier
    iterations = []
    for number in range(count):
        joint = contiguity if number == 0 else quantifier.inner
        # What must not come after a loop must not come inside: never at all, or not next where it could have ended.
        inside: Word = ()
        if number > 0:
            inside = tuple(one for one in nevers if not one.next or number >= quantifier.least)
        if isinstance(part, Stage):
            own = part.within or quantifier.within or gap
            if number == 0 and quantifier.optional:
                own = part.within or gap
            iterations.append([(*inside, Take(part.name, joint, number == 0, own, part.other_key))])
        else:
            iterations.append([inside + word for word in _group(part, gap, length, joint)])
    left: Word = ()
    if isinstance(part, Stage) and quantifier.greedy and count != quantifier.most:
        left = (Leaving(part.name, part.other_key),)
    written: list[Word] = [()]
    for options in iterations:
        longer = (word + one for word in written for one in options)
        written = [word for word in longer if _size(word) <= length]
    for word in written:
        yield word + left


def _group(group: Group, gap: int | None, length: int, joint: str) -> Iterator[Word]:
    if group.kind != "all_of":
        for sequence in group.sequences:
            yield from _sequence(sequence, gap, length, joint)
        return
    for order in itertools.permutations(group.sequences):
        heads = [joint, *[group.quantifier.inner] * (len(order) - 1)]
        ways = [list(_sequence(one, gap, length, head)) for one, head in zip(order, heads, strict=True)]
        for chosen in itertools.product(*ways):
            yield tuple(itertools.chain(*chosen))


# Judging one subsequence ------------------------------------------------------------------------------------


def _completed(
    word: Word, numbers: tuple[int, ...], pattern: Pattern, meanings: Meanings, events: list[Event], until: int
) -> tuple[int, int] | None:
    """When it is a match; None if it is none."""
    taken = _taken(word, numbers, pattern, meanings, events)
    if taken is None:
        return None
    between = list(itertools.takewhile(lambda step: not isinstance(step, Take), reversed(word)))[::-1]
    return _ending(between, numbers[-1], taken, events[numbers[0]]["time"], pattern, meanings, events, until)


def _taken(
    word: Word, numbers: tuple[int, ...], pattern: Pattern, meanings: Meanings, events: list[Event]
) -> TakenSoFar | None:
    """What the word's takes are if they take these events; None if they do not."""
    if pattern.window is not None and events[numbers[-1]]["time"] - events[numbers[0]]["time"] >= pattern.window:
        return None
    taken: TakenSoFar = []
    left = list(numbers)
    between: list[Never | Leaving] = []
    last: int | None = None
    for step in word:
        if not isinstance(step, Take):
            between.append(step)
            continue
        number = left.pop(0)
        if not _fits(step, number, last, between, taken, meanings, events):
            return None
        taken.append((step.stage, events[number]))
        last, between = number, []
    return taken


def _fits(
    take: Take,
    number: int,
    last: int | None,
    between: list[Never | Leaving],
    taken: TakenSoFar,
    meanings: Meanings,
    events: list[Event],
) -> bool:
    def satisfies(event: Event) -> bool:
        return _differs(event, take.other_key, taken) and meanings.takes[take.stage](event, taken)

    ends = meanings.ends.get(take.stage, lambda event, before: False)
    event = events[number]
    if not satisfies(event) or ends(event, taken):
        return False
    if last is None:
        return True
    passed = events[last + 1 : number]
    if take.contiguity == "next" and passed:
        return False
    if take.contiguity == "followed_by" and any(satisfies(one) for one in passed):
        return False
    if not take.first and any(ends(one, taken) for one in passed):
        return False
    if take.gap is not None and event["time"] - events[last]["time"] >= take.gap:
        return False
    return not _broken(between, passed, events[last + 1], [*passed, event], taken, meanings)


def _differs(event: Event, column: str | None, taken: TakenSoFar) -> bool:
    if column is None:
        return True
    return event[column] is not None and all(one[column] != event[column] for _, one in taken)


def _broken(
    between: list[Never | Leaving],
    passed: list[Event],
    following: Event | None,
    seen: list[Event],
    taken: TakenSoFar,
    meanings: Meanings,
) -> bool:
    for one in between:
        holds = meanings.takes[one.stage]
        if isinstance(one, Leaving):
            ends = meanings.ends.get(one.stage, lambda event, before: False)
            for event in seen:
                if ends(event, taken):
                    break
                if _differs(event, one.other_key, taken) and holds(event, taken):
                    return True
        elif one.next:
            if following is not None and holds(following, taken):
                return True
        elif any(holds(event, taken) for event in passed):
            return True
    return False


def _ending(
    between: list[Never | Leaving],
    last: int,
    taken: TakenSoFar,
    began: int,
    pattern: Pattern,
    meanings: Meanings,
    events: list[Event],
    until: int,
) -> tuple[int, int] | None:
    nevers = [one for one in between if isinstance(one, Never)]
    if not nevers:
        return events[last]["time"], last
    rest = events[last + 1 :]
    limits = [] if pattern.window is None else [began + pattern.window]
    limits += [events[last]["time"] + one.within for one in nevers if one.within is not None]
    waits = [one for one in nevers if not one.next]
    if not waits:
        if not rest or (limits and rest[0]["time"] >= min(limits)):
            return None
        broken = _broken(between, [], rest[0], rest[:1], taken, meanings)
        return None if broken else (rest[0]["time"], last + 1)
    deadline = min(limits)
    if deadline > until:
        return None
    inside = [event for event in rest if event["time"] < deadline]
    broken = _broken(between, inside, inside[0] if inside else None, inside, taken, meanings)
    return None if broken else (deadline, -1)


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
        nevers = [step for step in way if isinstance(step, Never)]
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
    between = [step for step in way if not isinstance(step, Take)]
    ends = meanings.ends.get(take.stage if take else "", lambda event, before: False)
    for number in range(last + 1, len(events)):
        event = events[number]
        if take is None:
            stopped = not any(not one.next for one in between if isinstance(one, Never))
        else:
            satisfies = _differs(event, take.other_key, taken) and meanings.takes[take.stage](event, taken)
            stopped = take.contiguity == "next"
            stopped |= take.contiguity == "followed_by" and satisfies
            stopped |= not take.first and ends(event, taken)
        seen = events[last + 1 : number + 1]
        if stopped or _broken(between, seen, seen[0], seen, taken, meanings):
            return number
    return None
