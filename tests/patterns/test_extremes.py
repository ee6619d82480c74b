"""Least and greatest values are the same in conditions, in measures and in the reference, wherever a NaN stands."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.patterns import pattern
from tidewheel.patterns.define.references import max as greatest
from tidewheel.patterns.define.references import min as least
from tidewheel.patterns.nfa.reference import PatternReference
from tidewheel.patterns.vectorized.matcher import Matcher

VALUES = st.none() | st.sampled_from([-1.5, 0.0, 2.0, math.inf, -math.inf, math.nan])
SCHEMA = {"__time": pl.Int64(), "x": pl.Float64(), "y": pl.Float64(), "end": pl.Boolean()}


def rows_of(values, wanted):
    taken = [(time, x, None, False) for time, x in enumerate(values)]
    return pl.DataFrame([*taken, (len(values), None, wanted, True)], schema=SCHEMA, orient="row")


@pytest.mark.parametrize(("reference", "name"), [(least, "min"), (greatest, "max")])
@settings(max_examples=100, deadline=None)
@given(values=st.lists(VALUES, min_size=2, max_size=4))
def test_conditions_measures_and_the_reference_agree_with_polars(reference, name, values):
    wanted = getattr(pl.Series(values, dtype=pl.Float64), name)()
    loop = pattern("a", ~pl.col("end")).times(len(values)).consecutive()
    same = pl.col("y").eq_missing(reference("a.x")) if wanted is None else pl.col("y") == reference("a.x")
    matcher = Matcher(loop.next("b", pl.col("end") & same), measures={"found": reference("a.x")})
    rows = rows_of(values, wanted)
    outputs, _ = matcher.step({}, rows, 100)
    assert outputs["matches"]["found"].equals(pl.Series([wanted], dtype=pl.Float64), null_equal=True)
    expected = PatternReference(matcher, SCHEMA).step(rows, watermark=100)["matches"]
    assert pl.Series([one["found"] for one in expected], dtype=pl.Float64).equals(outputs["matches"]["found"])
