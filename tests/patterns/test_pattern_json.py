"""Patterns as text and back: what is sent is what comes, and what makes no sense is refused."""

from __future__ import annotations

import copy
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import polars as pl
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import tidewheel as tw
from tests.patterns.pattern_strategies import patterns
from tidewheel.errors import DefinitionError
from tidewheel.patterns.serde.expression_json import expression_from_json, expression_to_json
from tidewheel.patterns.serde.pattern_json import (
    MOST_DEPTH,
    MOST_LETTERS,
    MOST_PARTS,
    pattern_from_json,
    pattern_to_json,
)

HARD_STOP = (
    tw.pattern("fast", pl.col("speed") >= 10)
    .next("braking", pl.col("acc") < 0)
    .one_or_more(within="2 s")
    .consecutive()
    .greedy()
    .until(pl.col("door") == "open")
    .next("standing", pl.col("speed") < tw.measures.last("braking.speed"), within="3 s")
    .within("10 s")
    .within("5 s", between="neighbours")
    .after_match("skip to last", stage="braking")
    .select("last", reuse=False)
)
MEASURES = {
    "drop": tw.measures.first("fast.speed") - tw.measures.last("standing.speed"),
    "n": tw.measures.count("braking"),
}
GOLDEN = (
    '{"version":1,"parts":['
    '{"call":"pattern","stage":"fast","if":[">=",["col","speed"],["lit",10]]},'
    '{"call":"next","stage":"braking","if":["<",["col","acc"],["lit",0]],"least":1,"most":null,"apart":2000000,'
    '"inner":"next","until":["==",["col","door"],["lit","open"]],"greedy":true},'
    '{"call":"next","stage":"standing","if":["<",["col","speed"],["col","last(braking.speed)"]],"within":3000000}],'
    '"within":10000000,"gap":5000000,"after_match":"skip to last","stage":"braking","select":"last","reuse":false,'
    '"measures":{"drop":["-",["col","first(fast.speed)"],["col","last(standing.speed)"]],"n":["col","count(braking)"]}}'
)
"""Version 1 of the format, as it is in topics and checkpoints: it must be read for ever."""


def same(one: pl.Expr, other: pl.Expr) -> bool:
    return one.meta.eq(other)


def test_the_format_of_version_1_does_not_change():
    assert pattern_to_json(HARD_STOP, MEASURES) == GOLDEN
    pattern, measures = pattern_from_json(GOLDEN)
    assert pattern == HARD_STOP
    assert measures.keys() == MEASURES.keys()
    assert all(same(measures[name], MEASURES[name]) for name in MEASURES)


@pytest.mark.parametrize(
    "pattern",
    [
        tw.pattern("a"),
        tw.pattern("a", "is_a").optional().followed_by_any("b", "is_b").times(2, 4).combinations(),
        tw.pattern("a", "is_a")
        .not_next("b", "is_b")
        .followed_by("c", "is_c")
        .not_followed_by("d", "is_d", within="5 us"),
        tw.pattern(tw.pattern("a", "is_a").next("b", "is_b")).at_least(3).next("c", "is_c", differs_in="vehicle"),
        tw.any_of(tw.pattern("a", "is_a"), tw.pattern("b", "is_b").times(2)).optional().next("c", "is_c"),
        tw.pattern(tw.pattern("a", "is_a").next("b", "is_b")).one_or_more().until(pl.col("x") > 3).next("c", "is_c"),
        tw.pattern("x", "is_x").next(tw.all_of(tw.pattern("a", "is_a"), tw.pattern("b", "is_b")).consecutive()),
        tw.pattern("a", "is_a").times(1, within="1 s").next("b", "is_b"),
        tw.pattern("a", "is_a").followed_by("b", "is_b").select("first"),
        tw.pattern("a", "is_a").followed_by("b", "is_b").after_match("skip to first", stage="b", missing="fail"),
        tw.rising("speed", 3),
        tw.monotonic("speed", 4, or_equal=True),
        tw.pattern("ahead").followed_by("behind", tw.geo.distance_to("ahead") < 200, differs_in="vehicle"),
        tw.pattern("in", tw.geo.inside(tw.geo.polygon([(60.1, 24.9), (60.1, 25.0), (60.2, 25.0)]))),
        tw.pattern("there", tw.geo.entering(tw.geo.circle(60.17, 24.94, radius=500))),
    ],
)
def test_every_kind_of_pattern_comes_back_as_it_was(pattern):
    assert pattern_from_json(pattern_to_json(pattern))[0] == pattern


@given(patterns())
def test_generated_patterns_come_back_as_they_were(built):
    pattern = built[0]
    try:
        pattern.check_ready()
    except DefinitionError:
        reject()
    assert pattern_from_json(pattern_to_json(pattern))[0] == pattern


a, b = pl.col("a"), pl.col("b")


@pytest.mark.parametrize(
    "expression",
    [
        a.is_in(["x", "y"]),
        a.is_in([1, 2, 3]) | b.is_null(),
        pl.when(a > 1).then(b).otherwise(None) == 3,
        a.is_between(1, 2.5),
        (a - b) ** 2 % 7 // 3 != -b,
        a == float("inf"),
        a > datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone.utc),
        a > datetime(2026, 1, 2),
        a - b < timedelta(seconds=1.5),
        a.fill_null(0).abs().sqrt() < 2**40,
        a.str.starts_with("1") & ~a.str.to_lowercase().str.ends_with("x"),
        a.dt.hour().is_between(7, 9),
        a.eq_missing(b) ^ a.ne_missing(None),
    ],
)
def test_expressions_come_back_as_they_were(expression):
    text = json.dumps(expression_to_json(expression), allow_nan=False)
    assert same(expression_from_json(json.loads(text)), expression)


@pytest.mark.parametrize(
    "expression",
    [
        a.map_elements(lambda value: True, return_dtype=pl.Boolean),
        a.cast(pl.Int64) > 1,
        a.str.contains("x.*y"),
        a.is_between(1, 2, closed="left"),
        a == datetime(2026, 1, 2).date(),
        a.shift(1) > 3,
    ],
)
def test_what_has_no_stable_form_is_refused_when_it_is_sent(expression):
    with pytest.raises(DefinitionError, match=r"stage 'x': .* cannot be written as JSON.*with_columns"):
        pattern_to_json(tw.pattern("x", expression))


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(GOLDEN), **fields})


STAGE = {"call": "pattern", "stage": "a"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a pattern as JSON"),
        ("[" * 100_000, "not a pattern as JSON"),
        ("{}", "with a version"),
        ("[1]", "with a version"),
        ('{"version": NaN}', "NaN is not JSON"),
        (changed(version=2), "version 2, this Tidewheel reads 1"),
        (changed(version=True), "version True"),
        (changed(code="1"), "no field 'code'"),
        (changed(parts=[]), "at least one"),
        (changed(parts="a"), "list of parts"),
        (changed(parts=[1]), "is an object"),
        (changed(parts=[{"call": "next", "stage": "a"}]), "begins with pattern"),
        (changed(parts=[STAGE, STAGE]), "begins with pattern"),
        (changed(parts=[STAGE, {"call": "__class__", "stage": "b"}]), "begins with pattern"),
        (changed(parts=[STAGE, {"call": "next", "stage": "a"}]), "two stages are named 'a'"),
        (changed(parts=[{**STAGE, "stage": 3}]), "a stage has a name"),
        (changed(parts=[{**STAGE, "stage": "a.b"}]), "no dot"),
        (changed(parts=[{**STAGE, "if": ["eval", "1"]}]), "stage 'a': there is no operator 'eval'"),
        (changed(parts=[{**STAGE, "if": ["<", ["col", "a"]]}]), "< takes 2 parts, got 1"),
        (changed(parts=[{**STAGE, "if": ["col", "*"]}]), "several columns"),
        (changed(parts=[{**STAGE, "if": ["col", "^a.*$"]}]), "several columns"),
        (changed(parts=[{**STAGE, "if": ["lit", [1]]}]), "is not a plain value"),
        (changed(parts=[{**STAGE, "if": ["<", ["col", "a"], ["lit", {"time": "today"}]]}]), "stage 'a'"),
        (changed(parts=[{**STAGE, "if": ["<", ["col", "a"], ["lit", 10**60]]}]), "stage 'a': .*too large"),
        (changed(parts=[{**STAGE, "if": ["is_in", ["col", "a"], ["col", "b"]]}]), "is_in takes a list"),
        (changed(parts=[{**STAGE, "within": 1}]), "within"),
        (changed(parts=[{**STAGE, "least": 0, "most": 3}]), "must be 1 or more"),
        (changed(parts=[{**STAGE, "least": 2.5, "most": None}]), "whole number"),
        (changed(parts=[{**STAGE, "inner": "sideways"}]), "inner must be one of"),
        (changed(parts=[{**STAGE, "greedy": 1}]), "greedy is true or left out"),
        (changed(parts=[{"call": "any_of", "of": [[STAGE]]}]), "two or more patterns"),
        (changed(parts=[{"call": "pattern", "of": [[STAGE], [STAGE]]}]), "has one sequence, got 2"),
        (changed(parts=[{"call": "pattern", "of": 7}]), "list of sequences"),
        (changed(within=0), "whole number of microseconds"),
        (changed(within="10 s"), "whole number of microseconds"),
        (changed(after_match="skip everything"), "after_match must be one of"),
        (changed(measures=[]), "measures are an object"),
        (changed(measures={"x": ["col", "speed"]}), "could be that of any event"),
        (changed(measures={"x": ["col", "first(nobody.speed)"]}), "refers to a stage 'nobody'"),
        (" " * MOST_LETTERS + GOLDEN, "at most 200,000 letters"),
        (
            changed(parts=[STAGE] + [{"call": "next", "stage": f"s{i}"} for i in range(MOST_PARTS)]),
            "at most 200 stages",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(text, reason):
    with pytest.raises(DefinitionError, match=reason):
        pattern_from_json(text)


def test_what_is_too_deep_is_refused():
    parts: Any = [STAGE]
    for _ in range(MOST_DEPTH):
        parts = [{"call": "pattern", "of": [parts]}]
    with pytest.raises(DefinitionError, match="at most 10 deep"):
        pattern_from_json(changed(parts=parts))
    condition: Any = ["col", "a"]
    for _ in range(60):
        condition = ["~", condition]
    with pytest.raises(DefinitionError, match="deeper than 50"):
        pattern_from_json(changed(parts=[{**STAGE, "if": condition}]))


@given(st.data())
def test_definitions_that_were_meddled_with_are_refused_or_are_patterns(data):
    """Whatever comes: a pattern or a `DefinitionError`, nothing else."""
    fields = json.loads(GOLDEN)
    junk = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    junk |= st.sampled_from([[], {}, ["col", "speed"], ["lit", 1], ["<"], {"time": "1"}, {"span": 10**20}, "next"])
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = fields
        while True:
            steps = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not steps:
                break
            step = data.draw(st.sampled_from(steps))
            if isinstance(place[step], (dict, list)) and place[step] and data.draw(st.booleans()):
                place = place[step]
                continue
            if isinstance(place, dict) and data.draw(st.booleans()):
                del place[step]
            else:
                place[step] = copy.deepcopy(data.draw(junk))  # or one would be in another, and in itself
            break
    try:
        pattern, measures = pattern_from_json(json.dumps(fields))
    except DefinitionError:
        return
    assert pattern_from_json(pattern_to_json(pattern, measures))[0] == pattern
