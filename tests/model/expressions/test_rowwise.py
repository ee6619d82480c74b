"""What is asked of each row by itself may not look at others."""

from __future__ import annotations

import polars as pl
import polars_h3
import pytest

import tidewheel as tw
from tidewheel.errors import DefinitionError
from tidewheel.model.expressions.rowwise import check_rowwise
from tidewheel.patterns.vectorized.matcher import Matcher
from tidewheel_transit.transit_pb2 import VehiclePosition

X = pl.col("x")
SEVERAL = [
    X - X.mean(), X.shift(1), X - X.shift(1), X.sum().over("k"), X.cum_sum(), X.diff(), X.fill_null(X.mean()),
    X.fill_null(strategy="forward"), pl.len(), X - pl.len(), (X > 1).any() | X.is_null(), X.rank(), X - X.first(),
    X.is_duplicated(), X.rolling_mean(3), X - X.quantile(0.5), X + pl.lit(pl.Series([1, 2])), X.sort(), X.reverse(),
    pl.when(X.max() > 3).then(X), pl.col("s").str.to_datetime(), X.is_in(X.implode()), X.clip(X.min(), 3),
    (X - X.mean()).map_elements(lambda value: value, return_dtype=pl.Float64),
]  # fmt: skip
ALONE = [
    X, X * 2 + 1, pl.lit(1), pl.when(X > 1).then(2).otherwise(X), X.is_in([1, 2]), X.cast(pl.Int32), X.fill_null(0),
    pl.col("s").str.to_uppercase(), pl.struct("x", "k"), pl.col("l").list.mean(), pl.col("s").str.to_date("%Y-%m-%d"),
    pl.col("l").list.eval(pl.element().rank()).list.first() > 1, pl.max_horizontal("x", "y"), pl.col("at").dt.hour(),
    X.map_elements(lambda value: value, return_dtype=pl.Int64), X.replace_strict({1: 2}, default=None), pl.all(),
    tw.geo.cell("lat", "lon", resolution=9), pl.coalesce("x", 0), X.clip(0, 1), pl.format("{}", X), X.hash(),
    polars_h3.are_neighbor_cells("x", "y"),
]  # fmt: skip


@pytest.mark.parametrize("expression", SEVERAL, ids=str)
def test_an_expression_over_several_rows_is_refused(expression):
    with pytest.raises(DefinitionError, match=r"filter: .* looks at several rows"):
        check_rowwise(expression, what="filter")


@pytest.mark.parametrize("expression", ALONE, ids=str)
def test_an_expression_over_one_row_is_taken(expression):
    check_rowwise(expression, what="filter")


def test_it_is_refused_wherever_rows_are_promised(tmp_path):
    speed = pl.col("speed")
    with tw.open_log(tmp_path / "test.tw") as log:
        moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
        for define in (
            lambda: moves.filter(speed > speed.mean()),
            lambda: moves.with_columns(before=speed.shift(1)),
            lambda: moves.select("vehicle", rank=speed.rank()),
            lambda: moves.skip(slow=speed < speed.mean()),
            lambda: moves.key_by(place=speed.rank()),
            lambda: tw.agg.sum(speed - speed.mean()),
            lambda: moves.key_by("vehicle").match(tw.pattern("rises", speed > speed.shift(1))),
        ):
            with pytest.raises(DefinitionError, match="looks at several rows"):
                define()


def test_a_condition_does_not_look_at_the_rows_of_other_keys():
    rises = Matcher(tw.pattern("rises", pl.col("x") > pl.col("x").shift(1)), keys=["k"])
    events = pl.DataFrame({"k": ["u", "v"], "__time": [0, 0], "x": [1, 5]})
    with pytest.raises(DefinitionError, match="looks at several rows"):
        rises.step({}, events, 10)
