"""What each operator means, on events written as letters: their names, one a second."""

from __future__ import annotations

import itertools
from typing import Any

import polars as pl
import pytest

from tidewheel.patterns import Harness, all_of, any_of, pattern
from tidewheel.patterns.define.builder import Pattern
from tidewheel.patterns.measures import count, last, previous
from tidewheel.patterns.measures import sum as total

SECOND = 1_000_000
SCHEMA = {"name": pl.String(), "x": pl.Int64()}


def is_(letters: str) -> pl.Expr:
    return pl.col("name").is_in(list(letters))


def harness_of(built: Pattern, letters: str, *, times: list[int] | None = None, **options: Any) -> Harness:
    harness = Harness(built, SCHEMA, **options)
    moments = times or list(range(len(letters)))
    for x, (time, name) in enumerate(zip(moments, letters, strict=True)):
        harness.add({"name": name, "x": x}, time=time * SECOND)
    return harness


def found(built: Pattern, letters: str, *, times: list[int] | None = None, until: int = 100) -> list[str]:
    """The matches as the numbers of their events, like "0 2"."""
    harness = harness_of(built, letters, times=times)
    harness.advance(until * SECOND)
    taken = [sorted(itertools.chain(*match.values())) for match in harness.matches]
    return sorted(" ".join(map(str, events)) for events in taken)


A = pattern("a", is_("a"))


# Contiguity -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letters", "matches"), [("ab", ["0 1"]), ("axb", []), ("aab", ["1 2"]), ("abb", ["0 1"]), ("ba", []), ("a", [])]
)
def test_next_is_the_very_next_event(letters, matches):
    assert found(A.next("b", is_("b")), letters) == matches


@pytest.mark.parametrize(
    ("letters", "matches"), [("ab", ["0 1"]), ("axxb", ["0 3"]), ("aab", ["0 2", "1 2"]), ("axbb", ["0 2"]), ("ba", [])]
)
def test_followed_by_is_the_first_one_that_fits(letters, matches):
    assert found(A.followed_by("b", is_("b")), letters) == matches


@pytest.mark.parametrize(("letters", "matches"), [("axbxb", ["0 2", "0 4"]), ("aabb", ["0 2", "0 3", "1 2", "1 3"])])
def test_followed_by_any_is_each_one_that_fits(letters, matches):
    assert found(A.followed_by_any("b", is_("b")), letters) == matches


def test_followed_by_passes_over_what_does_not_fit_the_events_taken():
    grows = pl.col("x") > previous("x") + 2
    assert found(A.followed_by("b", grows), "axxxx") == ["0 3"]


# What must not come -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letters", "matches"), [("abc", []), ("axc", ["0 2"]), ("axbc", ["0 3"]), ("ac", ["0 1"]), ("aabxc", ["0 4"])]
)
def test_not_next_is_about_the_very_next_event_only(letters, matches):
    assert found(A.not_next("b", is_("b")).followed_by("c", is_("c")), letters) == matches


@pytest.mark.parametrize(("letters", "matches"), [("abc", []), ("axbc", []), ("axc", ["0 2"]), ("abac", ["2 3"])])
def test_not_followed_by_is_about_all_events_until_the_next_stage(letters, matches):
    assert found(A.not_followed_by("b", is_("b")).followed_by("c", is_("c")), letters) == matches


def test_an_event_that_the_next_stage_takes_does_not_come_between():
    assert found(A.not_followed_by("b", is_("bd")).followed_by("c", is_("cd")), "axd") == ["0 2"]


def test_an_event_that_must_not_come_next_is_not_taken_either():
    assert found(A.not_next("b", is_("bd")).followed_by("c", is_("cd")), "add") == []


@pytest.mark.parametrize(("letters", "matches"), [("ab", []), ("ax", ["0"]), ("a", []), ("aax", ["0", "1"])])
def test_at_the_end_the_next_event_decides_what_must_not_come_next(letters, matches):
    assert found(A.not_next("b", is_("b")), letters) == matches


@pytest.mark.parametrize(
    ("letters", "until", "matches"), [("axx", 5, ["0"]), ("axx", 4, []), ("axb", 9, []), ("axxxxb", 9, ["0"])]
)
def test_at_the_end_time_decides_that_nothing_came(letters, until, matches):
    assert found(A.not_followed_by("b", is_("b")).within("5 s"), letters, until=until) == matches


def test_what_must_not_come_after_a_loop_must_not_come_within_it():
    built = A.followed_by("b", is_("b")).one_or_more().not_followed_by("c", is_("c")).followed_by("d", is_("d"))
    assert found(built, "abcbd") == []
    assert found(built, "abxbd") == ["0 1 3 4", "0 1 4"]


def test_an_event_that_must_not_come_between_optional_stages_counts_until_one_is_taken():
    built = A.not_followed_by("b", is_("b")).followed_by("c", is_("c")).optional().followed_by("d", is_("d"))
    assert found(built, "acbd") == ["0 1 3"]
    assert found(built, "abd") == []


@pytest.mark.parametrize(
    ("letters", "matches"),
    [
        ("a", ["0"]),  # complete at once: what must not come is about the way to the optional stage
        ("abc", ["0"]),
        ("acbc", ["0", "0 1"]),
        ("axc", ["0", "0 2"]),
    ],
)
def test_what_must_not_come_before_an_optional_last_stage_is_about_the_way_to_it(letters, matches):
    built = A.not_followed_by("b", is_("b")).followed_by("c", is_("c")).optional()
    assert found(built, letters, until=1) == matches
    assert found(built.within("1 min"), letters, until=1) == matches
    group = A.not_followed_by("b", is_("b")).followed_by(pattern("c", is_("c"))).optional()
    assert found(group, letters, until=1) == matches


def test_a_match_without_its_optional_last_stage_is_complete_with_its_event():
    built = A.not_followed_by("b", is_("b")).followed_by("c", is_("c")).optional().within("5 s")
    harness = harness_of(built, "axc")
    assert harness.completed_at == [0, 2 * SECOND]
    assert harness.timed_out == []
    harness.advance(100 * SECOND)
    assert harness.timed_out == []


def test_several_optional_stages_may_follow_what_must_not_come():
    built = A.not_followed_by("b", is_("b")).followed_by("c", is_("c")).optional().followed_by("d", is_("d")).optional()
    assert found(built, "abd") == ["0"]
    assert found(built, "acbd") == ["0", "0 1", "0 1 3"]
    waits = built.not_followed_by("e", is_("e"), within="3 s")
    assert found(waits, "axxx") == ["0"]
    assert found(waits, "abxx") == found(waits, "aexx") == []


def test_what_must_not_come_next_counts_before_an_optional_last_stage_too():
    built = A.not_next("b", is_("b")).followed_by("c", is_("c")).optional()
    assert found(built, "ab") == []
    assert found(built, "axc") == ["0", "0 2"]


@pytest.mark.parametrize(
    ("times", "matches"),
    [
        ([0, 1, 2], ["0", "0 1", "0 1 2"]),
        ([0, 1, 3], ["0", "0 1"]),
        ([0, 3, 4], ["0"]),
    ],
)
def test_an_event_just_at_the_end_of_the_time_is_out_after_what_must_not_come(times, matches):
    built = A.not_followed_by("b", is_("b")).followed_by("c", is_("c")).times(1, 2).optional().within("3 s")
    assert found(built, "acc", times=times) == matches
    must = A.not_followed_by("b", is_("b")).followed_by("c", is_("c")).times(1, 2).within("3 s")
    assert found(must, "acc", times=times) == matches[1:]


@pytest.mark.parametrize(("times", "matches"), [([0, 1, 2, 3], ["0 1 2"]), ([0, 1, 2, 2], []), ([0, 1, 3, 3], [])])
def test_at_the_end_of_the_time_nothing_is_too_late_for_what_was_taken_before(times, matches):
    built = A.followed_by("c", is_("c")).times(2).not_followed_by("b", is_("b")).within("3 s")
    assert found(built, "accb", times=times) == matches


# Quantifiers ------------------------------------------------------------------------------------------------


def test_a_loop_gives_each_length():
    assert found(A.one_or_more(), "aa") == ["0", "0 1", "1"]


def test_a_loop_passes_over_what_does_not_fit_unless_it_is_consecutive():
    assert found(A.times(2), "axa") == ["0 2"]
    assert found(A.times(2).consecutive(), "axa") == []
    assert found(A.times(2).combinations(), "aaa") == ["0 1", "0 2", "1 2"]


def test_times_from_to_and_at_least():
    assert found(A.times(2, 3), "aaaa") == ["0 1", "0 1 2", "1 2", "1 2 3", "2 3"]
    assert found(A.at_least(3), "aaaa") == ["0 1 2", "0 1 2 3", "1 2 3"]


def test_an_optional_stage_gives_the_match_with_it_and_without():
    built = A.followed_by("b", is_("b")).optional().followed_by("c", is_("c"))
    assert found(built, "abc") == ["0 1 2", "0 2"]
    assert found(A.next("b", is_("b")).optional(), "ab") == ["0", "0 1"]


def test_a_greedy_loop_takes_all_it_can_before_the_next_stage():
    built = A.followed_by("b", is_("bc")).one_or_more().greedy().followed_by("c", is_("c"))
    assert found(built, "abbc") == []
    plain = A.followed_by("b", is_("b")).one_or_more().greedy().followed_by("c", is_("c"))
    assert found(plain, "abbxc") == ["0 1 2 4"]
    assert found(plain, "abcbc") == ["0 1 2", "0 1 3 4"]
    assert found(A.followed_by("b", is_("b")).one_or_more().followed_by("c", is_("c")), "abbxc") == ["0 1 2 4", "0 1 4"]


def test_a_greedy_loop_that_may_be_left_out_is_not_if_it_could_take_something():
    built = A.followed_by("b", is_("b")).one_or_more().optional().greedy().followed_by("c", is_("c"))
    assert found(built, "axbc") == ["0 2 3"]
    assert found(built, "axc") == ["0 2"]


def test_a_greedy_loop_at_the_end_gives_each_length():
    assert found(A.one_or_more().greedy(), "aa") == ["0", "0 1", "1"]


def test_a_greedy_loop_that_is_full_lets_others_come():
    built = A.followed_by("b", is_("b")).times(1, 2).greedy().followed_by("c", is_("bc"))
    assert found(built, "abbb") == ["0 1 2 3"]


def test_until_ends_a_loop_and_is_not_taken():
    assert found(A.one_or_more().until(pl.col("x") == 2), "aaaa") == ["0", "0 1", "1", "3"]
    built = A.followed_by("b", is_("b")).one_or_more().until(is_("u")).followed_by("c", is_("c"))
    assert found(built, "abubc") == ["0 1 4"]


def test_until_may_speak_of_the_events_taken():
    assert found(A.one_or_more().until(total("a.x") >= 1), "aaa") == ["0", "0 1", "1", "2"]


PAIRS = A.followed_by(pattern("b", is_("b")).followed_by("c", is_("c"))).one_or_more()


@pytest.mark.parametrize(
    ("letters", "matches"),
    [
        ("abcubcd", ["0 1 2 6"]),  # no iteration begins after it
        ("abcbucd", ["0 1 2 6"]),  # the one that has begun is left incomplete
        ("abucd", []),
        ("aubcd", ["0 2 3 4"]),  # before the first iteration there is no loop to end
        ("abcbcd", ["0 1 2 3 4 5", "0 1 2 5"]),
    ],
)
def test_until_ends_the_loop_of_a_group(letters, matches):
    assert found(PAIRS.until(is_("u")).followed_by("d", is_("d")), letters) == matches


def test_what_ends_the_loop_of_a_group_is_not_taken_by_any_of_its_stages():
    ended = PAIRS.until(pl.col("x") == 4).followed_by("d", is_("cd"))
    assert found(ended, "abcbc") == ["0 1 2 4"]
    assert found(PAIRS.followed_by("d", is_("cd")), "abcbc") == ["0 1 2 4"]
    assert found(PAIRS.until(pl.col("x") == 1), "abbc") == []
    begins = pattern(pattern("a", is_("a")).next("b", is_("b"))).one_or_more()
    assert found(begins.until(pl.col("x") == 2), "ababab") == ["0 1", "4 5"]


def test_until_of_a_group_and_of_a_stage_in_it_both_count():
    loop = pattern("b", is_("b")).one_or_more().consecutive().until(pl.col("x") == 2)
    built = A.followed_by(loop).times(1, 3).until(is_("u"))
    assert found(built, "abbb") == ["0 1"]
    assert found(built, "axxb") == ["0 3"]
    assert found(built, "abub") == ["0 1"]


def test_a_group_ends_a_greedy_loop_in_it():
    inside = pattern("b", is_("b")).one_or_more().greedy()
    built = A.followed_by(inside).one_or_more().until(is_("u")).followed_by("c", is_("bc"))
    assert found(built, "abub") == ["0 1 3"]  # the loop is over, so the next stage may take what it could have taken


def test_until_of_a_group_may_speak_of_the_events_taken():
    assert found(PAIRS.until(count("b") == 2).followed_by("d", is_("d")), "abcbcbcd") == ["0 1 2 7"]


@pytest.mark.parametrize("choice", [any_of, all_of])
def test_until_ends_loops_of_choices(choice):
    built = A.followed_by(choice(pattern("b", is_("b")), pattern("c", is_("c")))).one_or_more().until(is_("u"))
    before = ["0 1", "0 1 2", "0 2"] if choice is any_of else ["0 1 2"]
    assert found(built, "abcubc") == before


# Groups -----------------------------------------------------------------------------------------------------


def test_a_group_is_repeated_as_a_whole():
    built = A.followed_by(pattern("b", is_("b")).next("c", is_("c"))).times(2)
    assert found(built, "abcxbc") == ["0 1 2 4 5"]
    assert found(built.consecutive(), "abcxbc") == []


def test_a_group_may_be_left_out():
    assert found(A.next(pattern("b", is_("b")).next("c", is_("c"))).optional().next("d", is_("d")), "adabcd") == [
        "0 1",
        "2 3 4 5",
    ]


def test_any_of_takes_one_of_its_patterns():
    built = A.followed_by(any_of(pattern("b", is_("b")), pattern("c", is_("c")).next("d", is_("d"))))
    assert found(built, "axb") == ["0 2"]
    assert found(built, "acd") == ["0 1 2"]
    assert found(built, "acx") == []


def test_all_of_takes_all_of_its_patterns_in_any_order():
    built = all_of(A, pattern("b", is_("b")), pattern("c", is_("c")))
    for letters in ("abc", "cab", "bxcxa"):
        assert len(found(built, letters)) == 1
    assert found(built, "aab") == []
    assert found(built.consecutive(), "axbc") == []


# Limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "matches"), [(9, ["0 1"]), (10, []), (11, [])])
def test_within_is_strictly_less_from_first_to_last(at, matches):
    assert found(A.followed_by("b", is_("b")).within("10 s"), "ab", times=[0, at]) == matches


def test_within_counts_from_the_first_event_of_a_match():
    built = A.followed_by("b", is_("b")).followed_by("c", is_("c")).within("10 s")
    assert found(built, "abc", times=[0, 9, 10]) == []
    assert found(built, "aabc", times=[0, 1, 9, 10]) == ["1 2 3"]


@pytest.mark.parametrize(("times", "matches"), [([0, 2, 4], ["0 1 2"]), ([0, 3, 4], []), ([0, 1, 4], [])])
def test_within_between_neighbours(times, matches):
    built = A.followed_by("b", is_("b")).followed_by("c", is_("c")).within("3 s", between="neighbours")
    assert found(built, "abc", times=times) == matches


def test_a_stage_may_have_a_limit_of_its_own():
    built = A.followed_by("b", is_("b")).followed_by("c", is_("c"), within="3 s")
    assert found(built, "abc", times=[0, 50, 52]) == ["0 1 2"]
    assert found(built, "abc", times=[0, 50, 53]) == []


def test_a_partial_match_whose_time_ran_out_is_reported_once_with_what_it_took():
    built = A.followed_by_any("b", is_("b")).followed_by("c", is_("c")).within("10 s")
    harness = harness_of(built, "ab", times=[0, 4])
    harness.advance(10 * SECOND - 1)
    assert harness.timed_out == []
    harness.advance(10 * SECOND)
    assert harness.timed_out == [({"a": [0]}, 10 * SECOND), ({"a": [0], "b": [1]}, 10 * SECOND)]
    assert harness.partial == []


def test_a_match_by_time_is_not_reported_as_timed_out_for_a_way_on_that_closed_before():
    loop = A.times(1, 2, within="2 s")
    harness = harness_of(loop.not_followed_by("c", is_("c"), within="5 s"), "a")
    harness.advance(20 * SECOND)
    assert harness.matches == [{"a": [0]}]
    assert harness.timed_out == []


def test_a_match_that_could_have_gone_on_is_not_reported_as_timed_out():
    harness = harness_of(A.one_or_more().within("10 s"), "aa")
    harness.advance(20 * SECOND)
    assert harness.timed_out == []


# Policies ---------------------------------------------------------------------------------------------------


def test_after_a_match_others_are_skipped():
    built = A.followed_by("b", is_("ab"))
    assert found(built, "aaab") == ["0 1", "1 2", "2 3"]
    assert found(built.after_match("skip past last"), "aaab") == ["0 1", "2 3"]
    assert found(A.one_or_more().after_match("skip to next"), "aa") == ["0", "1"]


def test_a_match_is_held_back_while_an_older_partial_match_may_complete():
    built = A.followed_by("b", pl.col("x") > last("a.x") * 3 + 1).after_match("skip past last")
    harness = harness_of(A.followed_by("c", is_("c")).times(1, 2).followed_by("d", is_("d")).within("9 s"), "acd")
    assert len(harness.matches) == 1
    assert found(built, "aaaa") == ["0 2"]
    ends = pl.col("x") == last("a.x") * -2 + 5  # the first event waits for the sixth, the second for the fourth
    waits = harness_of(A.followed_by("b", ends).within("9 s").after_match("skip past last"), "aaxx")
    assert waits.matches == []
    waits.add({"name": "x", "x": 4}, time=4 * SECOND)
    assert waits.matches == []
    waits.add({"name": "x", "x": 5}, time=5 * SECOND)
    assert waits.matches == [{"a": [0], "b": [5]}]


def test_selection_of_one_match_for_each_beginning():
    built = A.followed_by_any("b", is_("b")).within("10 s")
    assert found(built, "abb") == ["0 1", "0 2"]
    assert found(built.select("first"), "abb") == ["0 1"]
    assert found(built.select("last"), "abb") == ["0 2"]
    assert found(built.select("last"), "abb", until=5) == []


def test_an_event_that_may_not_be_reused_is_in_one_match():
    built = A.followed_by("b", is_("b")).within("10 s")
    assert found(built, "aabb") == ["0 2", "1 2"]
    assert found(built.select(reuse=False), "aabb") == ["0 2"]


def test_matches_that_may_not_overlap():
    built = A.followed_by_any("b", is_("b"))
    assert found(built.select(overlap=False), "abab") == ["0 1", "2 3"]


# Several keys, conditions, accumulators ---------------------------------------------------------------------------


def test_another_key_differs_from_all_events_taken():
    built = pattern("one").next("two", differs_in="name").next("three", differs_in="name")
    assert found(built, "abc") == ["0 1 2"]
    assert found(built, "aba") == []


def test_a_condition_that_is_null_does_not_hold():
    harness = Harness(pattern("a", pl.col("x") > 1), SCHEMA)
    harness.add({"name": "a", "x": None}, time=0)
    assert harness.matches == []


def test_a_condition_that_only_polars_understands_is_asked_of_polars():
    built = A.followed_by("b", pl.concat_str("name", last("a.name")) == "ba")
    assert found(built, "axb") == ["0 2"]


def test_partial_matches_beyond_the_limit_are_dropped_oldest_first_and_reported():
    harness = harness_of(A.followed_by("b", is_("b")), "aaaa", limit=2)
    assert harness.dropped == [({"a": [0]}, 2 * SECOND), ({"a": [1]}, 3 * SECOND)]
    assert harness.partial == [{"a": [2]}, {"a": [3]}]


def test_partial_matches_whose_time_ran_out_do_not_count_towards_the_limit():
    harness = harness_of(A.followed_by("b", is_("b")).within("2 s"), "aaaaaa", limit=2)
    assert harness.dropped == []


def test_nothing_is_held_when_no_match_is_open():
    harness = harness_of(A.followed_by("b", (is_("b")) & (count("a") == 1)).within("3 s"), "aaxxxxxx")
    harness.advance(50 * SECOND)
    assert harness.partial == []
