"""Patterns: how they are written, and what is refused when they are defined."""

from __future__ import annotations

import pickle
from datetime import timedelta

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.errors import DefinitionError
from tidewheel.patterns import Matcher, all_of, any_of, pattern
from tidewheel.patterns.define.references import collect
from tidewheel.patterns.measures import count, first, last, previous

FAST, SLOW = pl.col("speed") > 10, pl.col("speed") < 1

WRITTEN = [
    "pattern('a')",
    "pattern('a', 'is_a').next('b', 'is_b').followed_by('c').followed_by_any('d')",
    "pattern('a', pl.col('x') > 1).not_next('b', 'is_b').followed_by('c', ((pl.col('x') + 1) * 2) == 3)",
    "pattern('a').one_or_more().consecutive().until(pl.col('x') < 3).greedy().optional().next('b')",
    "pattern('a').times(2).combinations().next('b').times(2, 4).next('c').at_least(3, within='3 s')",
    "pattern('a').followed_by('b', ~pl.col('x') & (pl.col('y') | pl.col('z').is_null()), within='1 min')",
    "pattern('a').followed_by(pattern('b').next('c')).times(2)",
    "any_of(pattern('a'), pattern('b').next('c')).one_or_more()",
    "pattern('a').followed_by(pattern('b').next('c')).one_or_more().until(pl.col('count(b)') > 2).optional()",
    "pattern('z').followed_by(all_of(pattern('a'), pattern('b')).consecutive()).optional()",
    "pattern('a').next('b', pl.col('first(a.x)') < pl.col('x'), differs_in='vehicle')",
    "pattern('a').not_followed_by('b', 'is_b', within='5 s')",
    "pattern('a').next('b').within('10 s').within('2 s', between='neighbours').after_match('skip to next')",
    "pattern('a').next('b').after_match('skip to last', stage='b', missing='fail').select('last', reuse=False)",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_pattern_is_written_so_that_it_could_be_typed_back(text):
    typed = eval(text, {"pl": pl, "pattern": pattern, "any_of": any_of, "all_of": all_of})
    assert repr(typed) == text
    assert pickle.loads(pickle.dumps(typed)) == typed
    assert hash(pickle.loads(pickle.dumps(typed))) == hash(typed)


def test_patterns_are_equal_if_they_say_the_same():
    assert pattern("a", FAST) == pattern("a", pl.col("speed") > 10)
    assert pattern("a", FAST) != pattern("a", SLOW)
    assert pattern("a").within("1 s") == pattern("a").within(timedelta(seconds=1)) != pattern("a")


def test_every_call_gives_a_new_pattern():
    begun = pattern("a", FAST)
    begun.next("b", SLOW).one_or_more()
    begun.optional()
    assert repr(begun) == "pattern('a', pl.col('speed') > 10)"


def test_an_expression_that_has_no_python_of_its_own_is_shown_in_the_words_of_polars():
    assert "str.contains" in repr(pattern("a", pl.col("name").str.contains("x")))


def test_a_pattern_names_the_columns_it_needs():
    built = (
        pattern("a", pl.col("x") > 1)
        .next("b", (pl.col("y") > first("a.z")) & (count("a") > 1) & (previous("w") > 0), differs_in="who")
        .one_or_more()
        .until(pl.col("stop") & (last("v") > 1))
    )
    assert built.columns({"m": tw.measures.max("b.u")}) == ("x", "y", "z", "w", "stop", "v", "who", "u")
    assert built.stages == ("a", "b")


def test_a_group_may_speak_of_stages_before_it():
    inner = pattern("b", pl.col("x") > last("a.x")).next("c", pl.col("x") > first("b.x"))
    pattern("a").followed_by(inner).check_ready()
    with pytest.raises(DefinitionError, match=r"refers to a stage 'a', but those .* are b"):
        Matcher(inner)
    with pytest.raises(DefinitionError, match="refers to a stage 'a'"):
        pattern("z").followed_by(inner).check_ready()


def test_what_comes_in_any_order_may_speak_of_each_other_and_alternatives_only_in_a_loop():
    more = pattern("b", pl.col("x") > last("a.x"))
    all_of(pattern("a"), more).check_ready()
    any_of(pattern("a"), more).one_or_more().check_ready()
    with pytest.raises(DefinitionError, match="refers to a stage 'a'"):
        any_of(pattern("a"), more).check_ready()


def test_the_package_offers_patterns():
    assert tw.pattern is pattern
    assert str(tw.measures.first("a.x")) == str(first("a.x"))
    assert tw.geo.cell is not None
    assert tw.geo.distance_to is not None


MALFORMED = {
    "an empty name": (lambda: pattern(""), "needs a name"),
    "a blank name": (lambda: pattern("a").next("  "), "needs a name"),
    "a name that is no text": (lambda: pattern(3), "needs a name"),
    "a name with a dot": (lambda: pattern("a.b"), "no dot and no brackets"),
    "the same name twice": (lambda: pattern("a").next("a"), "two stages are named 'a'"),
    "the same name in a group": (lambda: pattern("a").next(pattern("b").next("a")), "two stages are named 'a'"),
    "the same name in alternatives": (lambda: any_of(pattern("a"), pattern("a")), "two stages are named 'a'"),
    "a condition that is a number": (lambda: pattern("a", 3), "a condition is the name of a boolean column"),
    "an empty condition": (lambda: pattern("a", ""), "a condition is the name of a boolean column"),
    "a condition that reads nothing": (lambda: pattern("a", pl.lit(True)), "reads no column"),
    "a list in a condition": (lambda: pattern("a", collect("a.x").list.len() > 1), "collect gives lists"),
    "a reference to a later stage": (
        lambda: pattern("a", pl.col("x") > last("b.x")).next("b"),
        "refers to a stage 'b', but those that may have taken events by then are a",
    ),
    "a reference to what must not come": (
        lambda: pattern("a").not_next("b").next("c", pl.col("x") > last("b.x")),
        "refers to a stage 'b', but those that may have taken events by then are a, c",
    ),
    "a forbidden stage that speaks of itself": (
        lambda: pattern("a").not_next("b", pl.col("x") > last("b.x")),
        "refers to a stage 'b'",
    ),
    "count of a later stage": (lambda: pattern("a", count("b") > 1).next("b"), "refers to a stage 'b'"),
    "previous of a stage": (lambda: pattern("a", pl.col("x") > previous("a.x")), "whatever its stage"),
    "a reference without a column": (lambda: pattern("a", pl.col("x") > last("a.")), "names no column"),
    "first of nothing": (lambda: first(""), 'expected "stage.column"'),
    "count of a number": (lambda: count(3), "expected the name of a stage"),
    "zero times": (lambda: pattern("a").times(0), "must be 1 or more, got 0"),
    "negative times": (lambda: pattern("a").times(-2), "must be 1 or more"),
    "times in the wrong order": (lambda: pattern("a").times(3, 2), "the smaller number first"),
    "times of a half": (lambda: pattern("a").times(1.5), "whole numbers"),
    "times of a truth": (lambda: pattern("a").times(True), "whole numbers"),
    "at least none": (lambda: pattern("a").at_least(0), "must be 1 or more"),
    "two quantifiers": (lambda: pattern("a").one_or_more().times(2), "says already how often it comes"),
    "greedy on one event": (lambda: pattern("a").greedy(), "takes one event"),
    "until on one event": (lambda: pattern("a").until("x"), "takes one event"),
    "until nothing": (lambda: pattern("a").one_or_more().until(None), "expected a condition"),
    "consecutive on one event": (lambda: pattern("a").consecutive(), "takes one event"),
    "combinations on one event": (lambda: pattern("a").combinations(), "takes one event"),
    "greedy on a group": (lambda: pattern(pattern("a")).one_or_more().greedy(), "for a stage, not for a group"),
    "until on a group that comes once": (lambda: pattern(pattern("a")).until("x"), "the group takes one event"),
    "until on a group that speaks of a later stage": (
        lambda: pattern(pattern("a")).one_or_more().until(count("b") > 1).next("b"),
        "until of a group: .* refers to a stage 'b'",
    ),
    "a limit on a group's loop": (
        lambda: pattern(pattern("a")).one_or_more(within="3 us"),
        "for a stage, not for a group",
    ),
    "two limits": (lambda: pattern("a").next("b", within="3 us").times(2, within="3 us"), "two limits"),
    "a quantifier on what must not come": (lambda: pattern("a").not_next("b").one_or_more(), "has no quantifier"),
    "what must not come made optional": (lambda: pattern("a").not_followed_by("b").optional(), "has no quantifier"),
    "within nothing": (lambda: pattern("a").within(0), "longer than nothing"),
    "within a negative time": (lambda: pattern("a").within("-3 s"), "longer than nothing"),
    "within a word": (lambda: pattern("a").within("soon"), "must be text like"),
    "within strangers": (lambda: pattern("a").within("3 us", between="strangers"), "'ends', 'neighbours'"),
    "a stage within nothing": (lambda: pattern("a").next("b", within=0), "longer than nothing"),
    "a loop within nothing": (lambda: pattern("a").times(2, within=0), "longer than nothing"),
    "a stage after within": (lambda: pattern("a").within("3 us").next("b"), "comes before within"),
    "a quantifier after within": (lambda: pattern("a").within("3 us").times(2), "call it before within"),
    "a group with a limit": (lambda: pattern("a").next(pattern("b").within("3 us")), "not for a group in it"),
    "a group with a policy": (lambda: any_of(pattern("a"), pattern("b").select("first")), "not for a group in it"),
    "a group with a condition": (lambda: pattern("a").next(pattern("b"), "x"), "pass it alone"),
    "one alternative": (lambda: any_of(pattern("a")), "two or more patterns"),
    "alternatives that are names": (lambda: any_of("a", "b"), "two or more patterns"),
    "an alternative that may be empty": (
        lambda: any_of(pattern("a").optional(), pattern("b")),
        "make the group optional",
    ),
    "seven in any order": (lambda: all_of(*(pattern(name) for name in "abcdefg")), "up to 6"),
    "an unknown skip": (lambda: pattern("a").after_match("skip"), "must be one of"),
    "a skip to no stage": (lambda: pattern("a").after_match("skip to first"), "needs stage= one of a, got None"),
    "a skip to an unknown stage": (lambda: pattern("a").after_match("skip to last", stage="b"), "got 'b'"),
    "a skip to what must not come": (
        lambda: pattern("a").not_next("b").next("c").after_match("skip to last", stage="b"),
        "needs stage= one of a, c",
    ),
    "a stage for a skip without": (lambda: pattern("a").after_match("skip to next", stage="a"), "needs no stage="),
    "an unknown way to miss": (
        lambda: pattern("a").next("b").after_match("skip to last", stage="b", missing="maybe"),
        "'ignore', 'fail'",
    ),
    "a skip that goes nowhere": (
        lambda: pattern("a").after_match("skip to first", stage="a", missing="fail"),
        "goes nowhere",
    ),
    "an unknown selection": (lambda: pattern("a").select("best"), "'each', 'first', 'last'"),
    "reuse that is no truth": (lambda: pattern("a").select(reuse=1), "reuse must be True or False"),
    "overlap that is no truth": (lambda: pattern("a").select(overlap=0), "overlap must be True or False"),
    "no overlap, and another skip": (
        lambda: pattern("a").after_match("skip to next").select(overlap=False),
        "overlap=False",
    ),
    "another key that is a number": (lambda: pattern("a").next("b", differs_in=3), "name of a column"),
}

INCOMPLETE = {
    "what must not come first": (lambda: pattern(pattern("a").not_next("b")).next("c"), "a group cannot end"),
    "an endless wait": (lambda: pattern("a").not_followed_by("b"), "waited for for ever"),
    "an endless wait after what may be left out": (
        lambda: pattern("a").next("c").optional().not_followed_by("b").not_next("d"),
        "waited for for ever",
    ),
    "a limit in the middle": (
        lambda: pattern("a").not_followed_by("b", within="3 us").next("c"),
        "at the end of a pattern",
    ),
    "a loop that can match nothing": (
        lambda: pattern("z").next(pattern("a").optional()).one_or_more(),
        "match nothing for ever",
    ),
    "a group that may be left out in two ways": (
        lambda: pattern("z").next(pattern("a").optional()).optional(),
        "left out in two ways",
    ),
    "an unknown stage": (lambda: pattern("a", pl.col("x") > last("b.x")), "refers to a stage 'b'"),
    "too many steps": (lambda: pattern("a").times(100_000), "more than 5000 steps"),
    "too many ways": (lambda: many_optional(70), "ways lead on from here"),
}


def many_optional(count: int):
    built = pattern("begin")
    for number in range(count):
        built = built.followed_by(f"s{number}").optional()
    return built


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_pattern_is_refused_at_once(name):
    build, message = MALFORMED[name]
    with pytest.raises(DefinitionError, match=message):
        build()


@pytest.mark.parametrize("name", INCOMPLETE)
def test_what_only_the_whole_pattern_shows_is_refused_when_it_is_used(name):
    build, message = INCOMPLETE[name]
    with pytest.raises(DefinitionError, match=message):
        Matcher(build())


def test_a_pattern_cannot_begin_with_what_must_not_come():
    begun = pattern("a")
    assert begun.not_next("b").parts[1].forbids
    with pytest.raises(DefinitionError, match="cannot begin with what must not come"):
        type(begun)((begun.not_next("b").parts[1],))
