"""Expressions taken apart say what polars says."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.patterns.compile.functions import function_of, kind_of
from tidewheel.patterns.define.expressions import conjuncts, parse, source

NUMBERS, TRUTHS, TEXTS = ["i", "f"], ["p", "q"], ["s", "t"]
KINDS = {**dict.fromkeys(NUMBERS, "number"), **dict.fromkeys(TRUTHS, "truth"), **dict.fromkeys(TEXTS, "text")}
SCHEMA = {"i": pl.Int64, "f": pl.Float64, "p": pl.Boolean, "q": pl.Boolean, "s": pl.String, "t": pl.String}
ROWS = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-3, 3),
        "f": st.none() | st.sampled_from([-1.5, 0.0, 0.5, 2.0, math.inf, math.nan]),
        "p": st.none() | st.booleans(),
        "q": st.none() | st.booleans(),
        "s": st.none() | st.sampled_from(["", "a", "ä", "b"]),
        "t": st.none() | st.sampled_from(["", "a", "ä", "b"]),
    }
)


def numbers(depth: int = 2) -> st.SearchStrategy[pl.Expr]:
    leaves = st.sampled_from(NUMBERS).map(pl.col) | st.sampled_from([0, 1, 2.5]).map(pl.lit)
    if not depth:
        return leaves
    inner = numbers(depth - 1)
    return (
        leaves
        | st.tuples(inner, inner, st.sampled_from("+-*/")).map(
            lambda given: {"+": given[0] + given[1], "-": given[0] - given[1], "*": given[0] * given[1]}.get(
                given[2], given[0] / given[1]
            )
        )
        | inner.map(lambda part: -part)
        | inner.map(lambda part: part.abs())
        | st.tuples(truths(depth - 1), inner, inner).map(
            lambda given: pl.when(given[0]).then(given[1]).otherwise(given[2])
        )
    )


def truths(depth: int = 2) -> st.SearchStrategy[pl.Expr]:
    leaves = st.sampled_from(TRUTHS).map(pl.col)
    if not depth:
        return leaves
    sides = st.tuples(numbers(depth - 1), numbers(depth - 1)) | st.tuples(
        *[st.sampled_from(TEXTS).map(pl.col) | st.just(pl.lit("a"))] * 2
    )
    compared = st.tuples(sides, st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"])).map(
        lambda given: getattr(given[0][0], given[1])(given[0][1])
    )
    inner = truths(depth - 1)
    return (
        leaves
        | compared
        | st.tuples(inner, inner).map(lambda given: given[0] & given[1])
        | st.tuples(inner, inner).map(lambda given: given[0] | given[1])
        | inner.map(lambda part: ~part)
        | numbers(depth - 1).map(lambda part: part.is_null())
        | st.tuples(numbers(depth - 1), numbers(0), numbers(0)).map(
            lambda given: given[0].is_between(given[1], given[2])
        )
    )


@settings(max_examples=600, deadline=None)
@given(truths(), st.lists(ROWS, min_size=1, max_size=4))
def test_python_says_what_polars_says(expression, rows):
    node = parse(expression)
    assert node is not None
    if kind_of(node, KINDS) != "truth":
        return
    frame = pl.DataFrame(rows, schema=SCHEMA)
    function = function_of(node, {name: frame[name].to_list() for name in SCHEMA}, {})
    asked = frame.select(expression.alias("it"))["it"].to_list()
    asked = asked * len(rows) if len(asked) == 1 else asked
    assert [function(number, ()) for number in range(len(rows))] == asked


@settings(max_examples=300, deadline=None)
@given(truths())
def test_the_source_of_an_expression_gives_it_again(expression):
    typed = eval(source(expression), {"pl": pl, "inf": math.inf})
    typed = pl.lit(typed) if not isinstance(typed, pl.Expr) else typed
    assert source(typed) == source(expression)


def test_moments_and_spans_are_understood():
    expression = pl.col("at") - pl.col("before") > timedelta(seconds=5)
    node = parse(expression)
    assert node is not None
    assert kind_of(node, {"at": "moment", "before": "moment"}) == "truth"
    times = [datetime(2026, 1, 1, 12, 0, second) for second in (0, 6)]
    function = function_of(node, {"at": times, "before": [times[0]] * 2}, {})
    assert [function(number, ()) for number in range(2)] == [False, True]


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("s").str.contains("a"),
        pl.col("i").cast(pl.Int8) > 3,
        pl.col("i").is_in([1, 2]),
        pl.col("i").rolling_mean(3) > 1,
        (pl.col("i") % 2) == 0,
    ],
)
def test_what_is_not_known_is_left_to_polars(expression):
    assert parse(expression) is None
    assert source(expression) == str(expression)


@pytest.mark.parametrize("kinds", [{"i": "text"}, {}, {"i": "truth"}])
def test_types_that_python_treats_otherwise_are_left_to_polars(kinds):
    node = parse((pl.col("i") & pl.col("i")) | (pl.col("i") > 3))
    assert node is not None
    assert kind_of(node, kinds) is None


def test_conjuncts_are_what_must_all_hold():
    a, b, c = (pl.col(name) for name in "abc")
    assert [str(part) for part in conjuncts(a & (b | c) & ~c)] == [str(a), str(b | c), str(~c)]
