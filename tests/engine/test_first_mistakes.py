"""What those who know Spark, or polars, try first: accepted where it is plain, and refused in words that help."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from pyspark.sql import functions as F

import tidewheel as tw
from tidewheel.apps.transit.transit_pb2 import VehiclePosition
from tidewheel.errors import DefinitionError

TOPIC = "input.vehicle-position"


@pytest.fixture
def positions(log):
    return tw.stream(log, TOPIC, type=VehiclePosition)


@pytest.mark.parametrize("what", ["filter", "with_columns", "skip", "select"])
def test_a_column_of_spark_s_is_no_polars_expression(spark, positions, what):
    method = getattr(positions, what)
    for call in (
        lambda: method(fast=F.col("speed") > 5) if what != "filter" else method(F.col("speed") > 5),
        lambda: method(F.col("speed")) if what != "skip" else method(x=F.col("speed")),
    ):
        with pytest.raises(DefinitionError, match=rf"^{what}: .*is a column of Spark's, and a polars expression"):
            call()


def test_a_condition_as_text_is_told_how_to_write_it(positions):
    with pytest.raises(DefinitionError, match=r"^filter: 'speed > 5' is text.*pl\.sql_expr\('speed > 5'\)"):
        positions.filter("speed > 5")
    assert positions.filter(pl.sql_expr("speed > 5")).ops, "which is true"
    for wrong in (5, None, True):
        with pytest.raises(DefinitionError, match=rf"^filter: a polars expression is wanted, .* got {wrong}"):
            positions.filter(wrong)
    with pytest.raises(DefinitionError, match=r"^select: a polars expression is wanted, .* got 5"):
        positions.select(5)


def test_names_are_wanted_where_names_are_wanted(log, positions):
    with pytest.raises(DefinitionError, match=r"^key_by: name columns by text, and give expressions a name"):
        positions.key_by(pl.col("vehicle"))
    with pytest.raises(DefinitionError, match=r'^stream: time is the name of a column, such as time="ts", got'):
        tw.stream(log, TOPIC, type=VehiclePosition, time=pl.col("event_time"))


def test_a_watermark_may_be_a_duration(log):
    for given in ("10 minutes", timedelta(minutes=10), tw.watermarks.bounded("10 min")):
        found = tw.stream(log, TOPIC, type=VehiclePosition, watermark=given)
        assert found.input.watermark == tw.watermarks.bounded("10 min")
    for wrong in (10, ["10 min"]):
        with pytest.raises(DefinitionError, match=r"^stream: watermark must be a duration, such as \"10 min\""):
            tw.stream(log, TOPIC, type=VehiclePosition, watermark=wrong)


def test_plain_parameters_need_no_name():
    assert tw.windows.session("30 min") == tw.windows.session(gap="30 min")
    assert tw.windows.sliding("5 min", "5 s") == tw.windows.sliding("5 min", every="5 s")


def test_the_api_completes():
    assert {*tw.__all__} <= {*dir(tw)}


def test_the_words_of_beam_for_the_modes_are_understood(positions):
    def mode(said):
        windows = positions.window(tw.windows.tumbling("10 s")).accumulate(said)
        return windows.aggregate(n=tw.agg.count()).stages[-1].what.mode

    words = ["discarding", "accumulating", "delta", "value", "retracting"]
    assert [mode(said) for said in words] == ["delta", "value", "delta", "value", "retracting"]
    with pytest.raises(DefinitionError, match="mode must be one of delta, value, retracting, got 'sideways'"):
        mode("sideways")
