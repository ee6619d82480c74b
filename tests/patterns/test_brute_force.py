"""The NFA finds what trying every subsequence finds, for generated patterns of all operators."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.patterns.brute_force import Found, matches
from tests.patterns.brute_force_partial import Undecided, dropped, lost, partial_matches
from tests.patterns.pattern_strategies import SCHEMA, events, patterns
from tidewheel.errors import DefinitionError
from tidewheel.patterns.nfa.harness import Harness

pytestmark = pytest.mark.long

END = 1_000
PATIENT = settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def found_by_nfa(pattern: Any, given: list[Any]) -> Counter[Any]:
    harness = Harness(pattern, SCHEMA)
    harness.add_all([(event["time"], {name: event[name] for name in SCHEMA}) for event in given])
    harness.advance(END)
    reported = zip(harness.matches, harness.completed_at, strict=True)
    return Counter(shown(match, at) for match, at in reported)


def shown(stages: dict[str, list[int]], at: int) -> Any:
    taken = sorted((event, stage) for stage, numbers in stages.items() for event in numbers)
    return tuple(taken), at


def as_shown(found: Found) -> Any:
    return tuple(zip(found.events, found.stages, strict=True)), found.completed[0]


def ready(pattern: Any) -> bool:
    try:
        pattern.check_ready()
    except DefinitionError:
        return False
    return True


@PATIENT
@given(patterns(), events())
def test_every_match_is_found_and_no_other(made, given):
    pattern, meanings = made
    assume(ready(pattern))
    expected = Counter(as_shown(one) for one in matches(pattern, meanings, given, until=END))
    assert found_by_nfa(pattern, given) == expected


@PATIENT
@given(patterns() | patterns(gaps=True), events(5))
def test_time_runs_out_for_partial_matches_whose_last_way_on_it_closes(made, given):
    pattern, meanings = made
    assume(ready(pattern))
    begun = partial_matches(pattern, meanings, given, until=END)
    assume(begun is not None)
    harness = Harness(pattern, SCHEMA)
    harness.add_all([(event["time"], {name: event[name] for name in SCHEMA}) for event in given])
    harness.advance(END)
    expected = {(tuple(zip(one.events, one.stages, strict=True)), one.over[0]) for one in begun if one.reported}
    assert {shown(stages, at) for stages, at in harness.timed_out} == expected
    still_open = {tuple(zip(one.events, one.stages, strict=True)) for one in begun if one.over is None}
    assert {shown(stages, END)[0] for stages in harness.partial} == still_open


@settings(PATIENT, max_examples=75)  # an example of which something is dropped takes ten to find
@given(patterns() | patterns(gaps=True), events(6), st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([1, 2, 100]))
def test_beyond_the_limit_those_that_began_first_are_dropped_and_nothing_else_changes(made, given, limit, share):
    pattern, meanings = made
    assume(ready(pattern))
    begun = partial_matches(pattern, meanings, given, until=END)
    assume(begun is not None)
    assume(len({(one.events, one.stages) for one in begun}) == len(begun))
    try:
        gone = dropped(begun, given, limit=limit, share=share)
    except Undecided:
        assume(False)
    assume(gone)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidewheel.patterns.nfa.partial_match.EVENTS_EACH", share)
        harness = Harness(pattern, SCHEMA, limit=limit)
        harness.add_all([(event["time"], {name: event[name] for name in SCHEMA}) for event in given])
        harness.advance(END)
    expected = Counter((tuple(zip(*path, strict=True)), given[number]["time"]) for path, number in gone.items())
    assert Counter(shown(*one) for one in harness.dropped) == expected
    reported = Counter(
        (tuple(zip(one.events, one.stages, strict=True)), one.over[0])
        for one in begun
        if one.reported and not lost(one.events, one.stages, gone) and (one.events, one.stages) not in gone
    )
    assert Counter(shown(*one) for one in harness.timed_out) == reported


def ordered(found: list[Found]) -> list[Found]:
    return sorted(found, key=lambda one: (one.events[0], one.completed, one.preference))


def after_skipping(found: list[Found], skip: str, stage: str | None) -> list[Found]:
    """Earlier starts first, then what is complete first; each rules others out."""
    left, given = ordered(found), []
    while left:
        match = left.pop(0)
        given.append(match)
        taken = dict(zip(match.events, match.stages, strict=True))
        of_stage = [event for event, name in taken.items() if name == stage]
        if skip == "skip to next":
            left = [one for one in left if one.events[0] > match.events[0]]
        elif skip == "skip past last":
            left = [one for one in left if one.events[0] > match.events[-1]]
        elif of_stage:
            to = of_stage[0] if skip == "skip to first" else of_stage[-1]
            left = [one for one in left if one.events[0] >= to]
    return given


@PATIENT
@given(
    patterns(window=True),
    events(),
    st.sampled_from(["skip to next", "skip past last", "skip to first", "skip to last"]),
    st.data(),
)
def test_a_match_ends_those_that_its_policy_says(made, given, skip, data):
    pattern, meanings = made
    assume(ready(pattern))
    stage = (
        data.draw(st.sampled_from(pattern.stages)) if skip.startswith("skip to ") and skip != "skip to next" else None
    )
    everything = matches(pattern, meanings, given, until=END)
    assume(len({(one.events[0], one.completed, one.events) for one in everything}) == len(everything))
    expected = Counter(as_shown(one) for one in after_skipping(everything, skip, stage))
    assert found_by_nfa(pattern.after_match(skip, stage=stage), given) == expected


@PATIENT
@given(patterns(window=True), events(), st.sampled_from(["first", "last"]))
def test_of_matches_that_begin_together_the_selected_one_is_given(made, given, which):
    pattern, meanings = made
    assume(ready(pattern))
    everything = ordered(matches(pattern, meanings, given, until=END))
    assume(len({(one.events[0], one.completed, one.events) for one in everything}) == len(everything))
    expected: Counter[Any] = Counter()
    for start in {one.events[0] for one in everything}:
        same = [one for one in everything if one.events[0] == start]
        moment = same[0].completed if which == "first" else max(one.completed for one in same)
        expected[as_shown(next(one for one in same if one.completed == moment))] += 1
    assert found_by_nfa(pattern.select(which), given) == expected


@PATIENT
@given(patterns(window=True), events())
def test_an_event_that_is_not_reused_serves_the_first_match_that_is_complete(made, given):
    pattern, meanings = made
    assume(ready(pattern))
    everything = matches(pattern, meanings, given, until=END)
    everything.sort(key=lambda one: (one.completed, one.events[0], one.preference))
    assume(len({(one.events[0], one.completed, one.events) for one in everything}) == len(everything))
    used: set[int] = set()
    expected: Counter[Any] = Counter()
    for one in everything:
        if used.isdisjoint(one.events):
            used |= set(one.events)
            expected[as_shown(one)] += 1
    assert found_by_nfa(pattern.select(reuse=False), given) == expected


def test_the_brute_force_matcher_finds_matches_at_all():
    counts: Counter[bool] = Counter()

    @settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(patterns(), events())
    def look(made, given):
        if ready(made[0]):
            counts[bool(matches(*made, given, until=END))] += 1

    look()
    assert counts[True] > 20


@pytest.mark.parametrize("length", [0, 1])
def test_few_events_give_few_matches(length):
    from tidewheel.patterns.define.builder import pattern

    given = [{"time": 0, "name": "a", "x": 1, "who": "v"}][:length]
    assert sum(found_by_nfa(pattern("s0", "name" == "a" or None), given).values()) == length
