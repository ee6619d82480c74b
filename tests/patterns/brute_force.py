"""Matches by trying everything: each way to write a pattern out as a list of takes, on each subsequence of the events.

Written from what the operators mean, and nothing of the NFA is used. A pattern comes with the meaning of its
conditions: for each stage, a function of an event and the events taken so far.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidewheel.patterns.define.builder import Pattern
from tidewheel.patterns.define.stages import Group, Part, Stage, stages_of

Event = Mapping[str, Any]
TakenSoFar = list[tuple[str, Event]]
Meaning = Callable[[Event, TakenSoFar], bool]


@dataclass(frozen=True)
class Meanings:
    """What stages take, and what ends loops, by the name of the stage or of the group (see `group_name`)."""

    takes: Mapping[str, Meaning]
    ends: Mapping[str, Meaning] = field(default_factory=dict)


@dataclass(frozen=True)
class Leaving:
    """A greedy loop that is left before it is full, or left out. ends: what ends it."""

    stage: str
    differs_in: str | None
    ends: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeftOut:
    """An optional part that is left out."""


@dataclass(frozen=True)
class Never:
    """What must not come: ever until the next take, or next."""

    stage: str
    next: bool
    within: int | None = None


@dataclass(frozen=True)
class Take:
    """first: of its loop. ends: what ends the loops that it is in, and whether each has begun before."""

    stage: str
    contiguity: str
    first: bool
    gap: int | None
    differs_in: str | None
    ends: tuple[tuple[str, bool], ...] = ()

    def ended_by(self, event: Event, taken: TakenSoFar, meanings: Meanings) -> list[bool]:
        """For each loop that the event ends, whether it has begun."""
        return [begun for name, begun in self.ends if meanings.ends[name](event, taken)]


Between = Never | Leaving | LeftOut
Word = tuple[Take | Between, ...]


def group_name(group: Group) -> str:
    """A group goes by the name of its first stage."""
    return f"group of {next(stages_of((group,))).name}"


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
        yield (*_left(part), LeftOut())
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
            ends = () if quantifier.until is None else ((part.name, number > 0),)
            iterations.append([(*inside, Take(part.name, joint, number == 0, own, part.differs_in, ends))])
        else:
            iterations.append([inside + word for word in _group(part, gap, length, joint)])
    left = () if count == quantifier.most else _left(part)
    written: list[Word] = [()]
    for options in iterations:
        longer = (word + one for word in written for one in options)
        written = [word for word in longer if _size(word) <= length]
    for word in written:
        whole = word + left
        yield whole if isinstance(part, Stage) or quantifier.until is None else _ended(whole, group_name(part))


def _left(part: Part) -> Word:
    if isinstance(part, Group) or not part.quantifier.greedy:
        return ()
    return (Leaving(part.name, part.differs_in, () if part.quantifier.until is None else (part.name,)),)


def _ended(word: Word, name: str) -> Word:
    """A loop of a group that an event ends: nothing in it takes such an event, nor, once it has begun, any later."""
    begun = False
    found: list[Take | Between] = []
    for step in word:
        if isinstance(step, Leaving):
            step = replace(step, ends=(*step.ends, name))
        elif isinstance(step, Take):
            step, begun = replace(step, ends=(*step.ends, (name, begun))), True
        found.append(step)
    return tuple(found)


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
    taken = taken_by(word, numbers, pattern, meanings, events)
    if taken is None:
        return None
    between = list(itertools.takewhile(lambda step: not isinstance(step, Take), reversed(word)))[::-1]
    return _ending(
        at_the_end(between), numbers[-1], taken, events[numbers[0]]["time"], pattern, meanings, events, until
    )


def taken_by(
    word: Word, numbers: tuple[int, ...], pattern: Pattern, meanings: Meanings, events: list[Event]
) -> TakenSoFar | None:
    """What the word's takes are if they take these events; None if they do not."""
    if pattern.window is not None and events[numbers[-1]]["time"] - events[numbers[0]]["time"] >= pattern.window:
        return None
    taken: TakenSoFar = []
    left = list(numbers)
    between: list[Between] = []
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
    between: list[Between],
    taken: TakenSoFar,
    meanings: Meanings,
    events: list[Event],
) -> bool:
    def satisfies(event: Event) -> bool:
        return differs(event, take.differs_in, taken) and meanings.takes[take.stage](event, taken)

    event = events[number]
    if not satisfies(event) or take.ended_by(event, taken, meanings):
        return False
    if last is None:
        return True
    passed = events[last + 1 : number]
    if take.contiguity == "next" and passed:
        return False
    if take.contiguity == "followed_by" and any(satisfies(one) for one in passed):
        return False
    if any(any(take.ended_by(one, taken, meanings)) for one in passed):
        return False
    if take.gap is not None and event["time"] - events[last]["time"] >= take.gap:
        return False
    return not is_broken(between, passed, events[last + 1], [*passed, event], taken, meanings)


def differs(event: Event, column: str | None, taken: TakenSoFar) -> bool:
    if column is None:
        return True
    return event[column] is not None and all(one[column] != event[column] for _, one in taken)


def at_the_end(between: Sequence[Between]) -> list[Between]:
    """What is waited for after the last take. What must not follow until a stage takes an event, where only stages come
    that may be left out and are, says nothing."""
    left_out = max((place for place, step in enumerate(between) if isinstance(step, LeftOut)), default=-1)
    if any(isinstance(step, Never) and not step.next for step in between[left_out + 1 :]):
        return list(between)
    return [step for step in between if not isinstance(step, Never) or step.next]


def is_broken(
    between: Sequence[Between],
    passed: list[Event],
    following: Event | None,
    seen: list[Event],
    taken: TakenSoFar,
    meanings: Meanings,
) -> bool:
    for one in between:
        if isinstance(one, LeftOut):
            continue
        holds = meanings.takes[one.stage]
        if isinstance(one, Leaving):
            for event in seen:
                if any(meanings.ends[name](event, taken) for name in one.ends):
                    break
                if differs(event, one.differs_in, taken) and holds(event, taken):
                    return True
        elif one.next:
            if following is not None and holds(following, taken):
                return True
        elif any(holds(event, taken) for event in passed):
            return True
    return False


def _ending(
    between: Sequence[Between],
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
        broken = is_broken(between, [], rest[0], rest[:1], taken, meanings)
        return None if broken else (rest[0]["time"], last + 1)
    deadline = min(limits)
    if deadline > until:
        return None
    inside = [event for event in rest if event["time"] < deadline]
    broken = is_broken(between, inside, inside[0] if inside else None, inside, taken, meanings)
    return None if broken else (deadline, -1)
