"""Trends over several events."""

from __future__ import annotations

import itertools

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import DefinitionError
from tidewheel.patterns import Harness, falling, monotonic, pattern, rising


def begins(built, values):
    harness = Harness(built, {"x": pl.Int64})
    harness.add_all([(time, {"x": x}) for time, x in enumerate(values)])
    return [min(itertools.chain(*match.values())) for match in harness.matches]


def pairs_hold(values, holds):
    return None not in values and all(holds(a, b) for a, b in itertools.pairwise(values))


@given(st.lists(st.none() | st.integers(0, 4), max_size=12), st.integers(2, 4), st.booleans())
def test_trends_hold_where_all_neighbours_say_so(values, length, or_equal):
    def up(a, b):
        return a <= b if or_equal else a < b

    def down(a, b):
        return up(b, a)

    windows = [(start, values[start : start + length]) for start in range(len(values) - length + 1)]
    rises = [start for start, window in windows if pairs_hold(window, up)]
    falls = [start for start, window in windows if pairs_hold(window, down)]
    assert begins(rising("x", length, or_equal=or_equal), values) == rises
    assert begins(falling("x", length, or_equal=or_equal), values) == falls
    assert begins(monotonic("x", length, or_equal=or_equal), values) == sorted({*rises, *falls})


def test_a_trend_may_follow_other_stages():
    built = pattern("high", pl.col("x") > 7).next(rising("x", 2, name="up"))
    assert begins(built, [9, 1, 2]) == [0]
    assert begins(built, [9, 2, 1]) == []


@pytest.mark.parametrize("build", [lambda: rising("x", 1), lambda: falling("", 3), lambda: monotonic("x", True)])
def test_a_trend_needs_a_column_and_two_events(build):
    with pytest.raises(DefinitionError, match="trend"):
        build()
