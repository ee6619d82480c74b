"""What those who know Spark, or polars, try first: accepted where it is plain, and refused in words that help."""

from __future__ import annotations

import warnings
from datetime import timedelta

import polars as pl
import pytest
from pyspark.sql import functions as F

import tidewheel as tw
from tidewheel.errors import DefinitionError, DefinitionWarning
from tidewheel_transit.transit_pb2 import VehiclePosition

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


def test_an_error_about_a_condition_as_text_says_how_to_write_it(positions):
    with pytest.raises(DefinitionError, match=r"^filter: 'speed > 5' is text.*pl\.sql_expr\('speed > 5'\)"):
        positions.filter("speed > 5")
    assert positions.filter(pl.sql_expr("speed > 5")).ops, "which is true"
    for wrong in (5, None, True):
        with pytest.raises(DefinitionError, match=rf"^filter: a polars expression is wanted, .* got {wrong}"):
            positions.filter(wrong)
    with pytest.raises(DefinitionError, match=r"^select: a polars expression is wanted, .* got 5"):
        positions.select(5)


def test_an_error_about_a_missing_column_names_the_step_and_the_columns_there_are(positions):
    few = positions.select("lat", "speed")
    for call, step, column in (
        (lambda: few.filter(pl.col("sped") > 5), "filter(pl.col('sped') > 5)", "sped"),
        (lambda: few.with_columns(kmh=pl.col("sped") * 3.6), "with_columns(kmh=pl.col('sped') * 3.6)", "sped"),
        (
            lambda: few.with_columns(cell=tw.geo.cell("lat", "lng", resolution=9)),
            "with_columns(cell=computed from lat, lng)",
            "lng",
        ),
    ):
        with pytest.raises(DefinitionError) as refused:
            call()
        assert str(refused.value) == (
            f'{step}: unable to find column "{column}"; there are the columns event_time, lat, speed'
        )


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


def test_a_number_has_a_unit(positions):
    for call in (
        lambda: tw.watermarks.bounded(10),
        lambda: tw.watermarks.bounded("1 s", idle=10),
        lambda: tw.watermarks.bounded("1 s", future=10),
        lambda: tw.watermarks.arrival(10),
        lambda: positions.window(tw.windows.tumbling("10 s"), lateness=10),
        lambda: positions.deduplicate("vehicle", horizon=10),
        lambda: positions.key_by("vehicle").previous("speed", ttl=10),
        lambda: positions.key_by("vehicle").previous("speed", lateness=10),
        lambda: positions.key_by("vehicle").process(print, ttl=10),
    ):
        with pytest.raises(DefinitionError, match=r'10 of which unit\? Say it, like "10 s" or "10 min"'):
            call()
    with pytest.raises(DefinitionError, match=r"0\.5 of which unit\?"):
        tw.watermarks.bounded(0.5)
    for mistake in (
        lambda: tw.windows.tumbling(10),
        lambda: tw.windows.tumbling("10 s", offset=5),
        lambda: tw.windows.sliding(10, 5),
        lambda: tw.windows.sliding("10 s", every=5),
        lambda: tw.windows.session(30),
        lambda: tw.triggers.every(1),
        lambda: tw.triggers.after_processing_time(5),
        lambda: tw.triggers.after_processing_time(period=5),
        lambda: tw.pattern("a").next("b").within(10),
        lambda: tw.pattern("a").next("b", within=10),
        lambda: tw.Timer(after=10),
    ):
        with pytest.raises(DefinitionError, match=r"of which unit\? Say it, like"):
            mistake()
    assert positions.window(tw.windows.tumbling("10 s"), lateness=0).lateness == 0, "nothing has no unit"
    assert tw.watermarks.bounded(timedelta(seconds=10)) == tw.watermarks.bounded("10 s")


def test_what_is_no_result_and_no_topic_is_not_started(log, positions, tmp_path):
    with pytest.raises(DefinitionError, match=r"^run: expected a job or a result, got <Stream .*with \.each_row\(\)"):
        tw.run(positions, log=log, checkpoint=tmp_path)
    with pytest.raises(DefinitionError, match=r"^run: expected a job or a result, got 'delays'$"):
        tw.run("delays", log=log, checkpoint=tmp_path)
    counts = positions.window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
    for named in ({"results": "analytics.n"}, {"outputs": {"results": "analytics.n"}}):
        with pytest.raises(
            DefinitionError, match=r"^start: results go to a topic .*log\.topic\(.*, got 'analytics\.n'"
        ):
            counts.start(**named, checkpoint=tmp_path)


def test_percent_are_of_a_hundred():
    for call in (tw.agg.percentile, tw.agg.approx_percentile):
        for wrong, said in ((0.95, "95"), (1, "100")):
            with pytest.raises(
                DefinitionError, match=rf"percent is out of 100, got {wrong}; say {said}, or .* low=True"
            ):
                call("delay", wrong)
        assert call("delay", 0.95, low=True).percent == 0.95
        assert call("delay", 95).percent == call("delay", 95, low=True).percent == 95
    with pytest.raises(DefinitionError, match=r"out of 100, got 0\.99; say percentile\(99\)"):
        tw.watermarks.percentile(0.99)
    with pytest.raises(DefinitionError, match=r"completeness: percent is out of 100, got 0\.9; say 90"):
        tw.triggers.completeness(0.9, expected=10)


def test_a_column_that_would_be_lost_is_reported(spark):
    frame = spark.sql("SELECT timestamp_seconds(1) AS ts, timestamp_seconds(2) AS event_time, 7 AS order_id")
    with pytest.raises(DefinitionError, match=r"another column of that name.*withColumnRenamed\(\"event_time\""):
        tw.stream(frame, time="ts")
    assert tw.stream(frame, time="event_time").schema["ts"] is not None
    assert "sent" in tw.stream(frame.withColumnRenamed("event_time", "sent"), time="ts").schema


def test_equal_rows_of_one_time_are_asked_for_by_event_time(spark):
    frame = spark.sql("SELECT timestamp_seconds(1) AS ts, 7 AS order_id, 'a' AS user")
    rows = tw.stream(frame, time="ts")
    for call in (
        lambda: rows.deduplicate("order_id", "ts", horizon="1 h"),
        lambda: rows.key_by("user").deduplicate("order_id", "ts", horizon="1 h"),
    ):
        with pytest.warns(DefinitionWarning, match=r"deduplicate\('order_id', 'event_time', horizon") as reported:
            call()
        assert [each.filename for each in reported] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows.deduplicate("order_id", "event_time", horizon="1 h")
        rows.deduplicate("order_id", "event_time", "ts", horizon="1 h")
        rows.deduplicate("order_id", horizon="1 h")


def test_plain_parameters_need_no_name():
    assert tw.windows.session("30 min") == tw.windows.session(gap="30 min")
    assert tw.windows.sliding("5 min", "5 s") == tw.windows.sliding("5 min", every="5 s")


def test_the_api_completes():
    assert {*tw.__all__} <= {*dir(tw)}


def test_the_words_of_beam_for_the_modes_are_understood(positions):
    def mode(said):
        windows = positions.window(tw.windows.tumbling("10 s")).accumulate(said)
        return windows.aggregate(n=tw.agg.count()).stages[-1].operation.windowing.mode

    words = ["discarding", "accumulating", "delta", "value", "retracting"]
    assert [mode(said) for said in words] == ["delta", "value", "delta", "value", "retracting"]
    with pytest.raises(DefinitionError, match="mode must be one of delta, value, retracting, got 'sideways'"):
        mode("sideways")
