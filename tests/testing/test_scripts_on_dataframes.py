"""Scripts over a streaming DataFrame: Spark's watermark and time zone, and the same rows as on the reference."""

from __future__ import annotations

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.errors import DefinitionError
from tidewheel.testing import Script, row

EARLY_AND_LATE = tw.triggers.after_watermark(early=tw.triggers.each_batch(), late=tw.triggers.each_batch())
DAY = "2026-10-25T"
"""When Helsinki's clocks go back from four to three, at 01:00 in UTC."""


def script() -> Script:
    """Orders around the change of clocks: out of order, too late, twice, and without a time."""
    batches = [
        [("00:10", "a", 1), ("00:50", "a", 2), ("00:20", "b", 3)],
        [("01:05", "a", 4), ("00:55", "b", 5), ("00:20", "b", 3)],
        [("01:30", "a", 6), ("00:40", "a", 7), ("01:31", "b", 900)],
        [("03:00", "b", 8), (None, "b", 9), ("02:59", "a", 10)],
        [("00:30", "a", 11), ("03:10", "a", 12), ("03:00", "b", 8)],
        [("06:00", "c", 13)],
    ]
    made = Script()
    for rows in batches:
        for time, key, value in rows:
            made = made.add(at=None if time is None else f"{DAY}{time}:00Z", key=key, value=value)
        made = made.batch()
    return made.bounded("20 min")


def windows(events: tw.Stream) -> tw.Result:
    day = tw.windows.calendar("day", zone="Europe/Helsinki")
    hours = events.with_columns(hour=pl.col("event_time").dt.hour()).key_by("key", "hour")
    return (
        hours.window(day).trigger(EARLY_AND_LATE).aggregate(total=tw.agg.sum("value"), newest=tw.agg.max("event_time"))
    )


def sessions(events: tw.Stream) -> tw.Result:
    windows = events.key_by("key").window(tw.windows.session(gap="30 min"), lateness="30 min").trigger(EARLY_AND_LATE)
    return windows.accumulate("retracting").aggregate(n=tw.agg.count(), total=tw.agg.sum("value"))


def pattern(events: tw.Stream) -> tw.Result:
    rise = (
        tw.pattern("low", pl.col("value") < 100)
        .next("high", pl.col("value") > tw.measures.last("low.value"))
        .within("1 h")
    )
    return events.key_by("key").match(
        rise, measures={"begin": tw.measures.first("low.event_time"), "by": tw.measures.last("high.value")}
    )


def deduplicated(events: tw.Stream) -> tw.Result:
    return events.deduplicate("key", "value", horizon="3 h")


def busiest(events: tw.Stream) -> tw.Result:
    """A window behind another stage."""
    once = events.deduplicate("key", "value", horizon="3 h")
    return once.key_by("key").window(tw.windows.tumbling("1 h")).aggregate(total=tw.agg.sum("value"))


PIPELINES = [windows, sessions, pattern, deduplicated, busiest]


@pytest.fixture
def in_zone(spark):
    """Sets the time zone of the session for one test."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.long
@pytest.mark.parametrize("zone", ["UTC", "Europe/Helsinki"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_streaming_frame_gives_what_the_reference_gives(spark, in_zone, pipeline, zone):
    in_zone(zone)
    found = script().run(pipeline, on="dataframe", spark=spark)
    wanted = script().run(pipeline)
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert len(found) > 3
    assert found.late == wanted.late
    assert any(late == row(at=None, value=9) for late in found.late)
    assert {name: sorted(map(repr, rows)) for name, rows in found.outputs.items() if rows} == {
        name: sorted(map(repr, rows)) for name, rows in wanted.outputs.items() if rows
    }


def counted(events: tw.Stream) -> tw.Result:
    return events.key_by("key").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())


START = Script().add(at="12:00:20", key="a")
REFUSED = [
    (Script(), "there are no rows that could make a micro-batch"),
    (START.end(), "a streaming DataFrame does not end"),
    (
        Script().watermark("12:00:00").add(at="12:00:20", key="a"),
        "the watermark moves to 12:00:00 before there are rows",
    ),
    (START.watermark("12:00:30"), "the watermark is 12:00:30 after bundle 0, and the latest row of 12:00:20 is before"),
    (
        START.watermark("12:00:15").add(at="12:00:40", key="a").watermark("12:00:20"),
        "5 s behind the latest row, so after bundle 1 it is 12:00:35, and the script has 12:00:20",
    ),
    (
        START.watermark("12:00:15").add(at="12:00:40", key="a"),
        "after bundle 1 it is 12:00:35, and the script has 12:00:15",
    ),
    (
        START.batch().add(at="12:00:40", key="a").watermark("12:00:35"),
        "after bundle 0 it is 12:00:15, and the script has none",
    ),
    (START.watermark("12:00:10").watermark("12:00:15"), "the script has 12:00:10 and 12:00:15"),
    (START.watermark("12:00:10.0001"), "Spark counts whole milliseconds"),
    (Script().add(at=None, key="a").watermark("12:00:10"), "before there is a row that has a time"),
]


@pytest.mark.parametrize(("given", "reason"), REFUSED)
def test_watermarks_that_spark_cannot_have_are_refused_with_the_reason(given, reason):
    with pytest.raises(DefinitionError, match=reason) as refusal:
        given.run(counted, on="dataframe")
    assert 'on="spark" takes any' in str(refusal.value)


def test_a_script_with_watermarks_of_its_own_is_not_given_others():
    with pytest.raises(DefinitionError, match="watermarks of its own"):
        START.watermark("12:00:10").bounded("5 s")


def test_who_waits_for_the_clock_cannot_be_scripted_over_a_frame(spark):
    def early(events: tw.Stream) -> tw.Result:
        every = tw.triggers.after_watermark(early=tw.triggers.every("1 s"))
        return events.window(tw.windows.tumbling("10 s")).trigger(every).aggregate(n=tw.agg.count())

    with pytest.raises(DefinitionError, match="waits for the clock"):
        START.run(early, on="dataframe", spark=spark)


@pytest.mark.long
def test_without_a_watermark_nothing_closes(spark):
    rows = START.batch().add(at="12:01:20", key="a")
    assert rows.run(counted, on="dataframe", spark=spark) == []
    assert rows.run(counted) == []
