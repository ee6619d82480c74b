"""Streams: what is refused when it is defined, what is explained, and what comes out in the end."""

from __future__ import annotations

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import polars as pl
import pytest

import tidewheel as tw
from tests.engine.orders import INPUT, put, put_frame, read, rows
from tidewheel.errors import DefinitionError

pytestmark = pytest.mark.long


@pytest.fixture
def orders(log):
    put(log, (1, "fi", 5), (2, "se", 7), (3, "fi", 1))
    return tw.stream(log, INPUT, watermark=tw.watermarks.bounded("1 s", future=None))


class TestWhatIsRefused:
    def test_an_unknown_source_or_topic(self, log):
        with pytest.raises(DefinitionError, match=r"expected a log .* or a DataFrame, got 'city.tw'"):
            tw.stream("city.tw")
        with pytest.raises(DefinitionError, match="name a topic"):
            tw.stream(log)
        with pytest.raises(DefinitionError, match=r"holds no event yet.*type="):
            tw.stream(log, "input.nothing")
        with pytest.raises(
            DefinitionError, match="time must be event_time, ingestion_time or arrival, got 'scheduled'"
        ):
            tw.stream(log, INPUT, time="scheduled")

    def test_a_frame_without_a_time(self, spark):
        frame = spark.createDataFrame([(1, "a")], "n long, at string")
        with pytest.raises(DefinitionError, match=r"which column has the event time.*there are n, at"):
            tw.stream(frame)
        with pytest.raises(DefinitionError, match="there is no column 'when'; there are n, at"):
            tw.stream(frame, time="when")
        with pytest.raises(DefinitionError, match="the time column 'at' is string; it must be a timestamp"):
            tw.stream(frame, time="at")

    def test_a_watermark_that_spark_cannot_follow(self, spark):
        frame = spark.readStream.format("rate").load()
        with pytest.raises(
            DefinitionError, match=r"bounded\(\.\.\.\) or monotonic\(\): this cannot be had, got percentile\(99\)"
        ):
            tw.stream(frame, time="timestamp", watermark=tw.watermarks.percentile(99))

    def test_columns_that_are_not_there(self, orders):
        with pytest.raises(DefinitionError, match="key_by: there is no column 'town'; there are event_time"):
            orders.key_by("town")
        with pytest.raises(DefinitionError, match="key_by: name at least one column"):
            orders.key_by()
        with pytest.raises(DefinitionError, match=r"with_columns.*unable to find column \"town\""):
            orders.with_columns(place=pl.col("town"))
        windowed = orders.key_by("country").window(tw.windows.tumbling("10 s"))
        with pytest.raises(DefinitionError, match=r"aggregate total: there is no column 'price' for sum\('price'\)"):
            windowed.aggregate(total=tw.agg.sum("price"))
        with pytest.raises(DefinitionError, match="aggregate country: a key has that name"):
            windowed.aggregate(country=tw.agg.count())
        with pytest.raises(DefinitionError, match="results have a column of that name"):
            windowed.aggregate(pane_index=tw.agg.count())
        goal = tw.triggers.after_watermark(early=tw.triggers.completeness(90, expected="goal"))
        with pytest.raises(DefinitionError, match="trigger: there is no column 'goal'"):
            windowed.trigger(goal).aggregate(n=tw.agg.count())

    def test_sizes_and_triggers_that_make_no_sense(self, orders):
        with pytest.raises(DefinitionError, match="window size"):
            orders.window(tw.windows.tumbling("-1 s"))
        with pytest.raises(DefinitionError, match="so events between windows would be lost"):
            orders.window(tw.windows.sliding("5 s", every="10 s"))
        with pytest.raises(DefinitionError, match="lateness must not be negative"):
            orders.window(tw.windows.tumbling("1 s"), lateness="-1 s").aggregate(n=tw.agg.count())
        late = orders.window(tw.windows.tumbling("1 s"), lateness="1 s")
        with pytest.raises(DefinitionError, match=r"late=each_batch\(\)"):
            late.trigger(tw.triggers.after_watermark()).aggregate(n=tw.agg.count())
        with pytest.raises(DefinitionError, match="allow_loss=True"):
            late.trigger(tw.triggers.after_count(3)).aggregate(n=tw.agg.count())
        assert late.trigger(tw.triggers.after_count(3), allow_loss=True).aggregate(n=tw.agg.count())

    def test_an_aggregate_that_cannot_be_merged_in_a_session(self, orders):
        median = tw.agg.custom(partial={"m": pl.col("amount").median()}, finish=pl.col("m"), name="median")
        with pytest.raises(DefinitionError, match="cannot be merged"):
            orders.key_by("country").window(tw.windows.session(gap="5 s")).aggregate(m=median)

    def test_results_without_a_place_to_go(self, orders, tmp_path, log):
        result = orders.window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
        with pytest.raises(DefinitionError, match="say where the results go"):
            result.start(checkpoint=tmp_path / "c")
        with pytest.raises(DefinitionError, match="there is no output 'duplicates'"):
            result.start(checkpoint=tmp_path / "c", results=log.topic("a"), outputs={"duplicates": log.topic("b")})


def test_it_explains_itself_in_plain_words(orders):
    text = (
        orders.key_by("country")
        .window(tw.windows.sliding("5 min", every="5 s"), lateness="5 s")
        .trigger(
            tw.triggers.after_watermark(early=tw.triggers.every("1 s"), late=tw.triggers.each_batch()),
            early_windows="next",
        )
        .accumulate("retracting")
        .aggregate(n=tw.agg.count())
        .explain()
    )
    for part in (
        "watermark bounded('1 s', future=None)",
        "for each country",
        "What: n = count().",
        "Where: sliding('5 min', every='5 s').",
        "only the open window that ends next",
        "the last one is retracted",
        "rows are accepted until the watermark is 5 s past their window's end",
        "one partial result for each key and window, and what it showed last, until the watermark is 5 s past the end",
        "one Spark query",
    ):
        assert part in text


def test_a_trigger_of_the_clock_fires_although_nothing_comes(spark, log, orders, tmp_path):
    result = (
        orders.key_by("country")
        .window(tw.windows.tumbling("10 s"))
        .trigger(tw.triggers.after_watermark(early=tw.triggers.every("100 ms")))
        .aggregate(total=tw.agg.sum("amount"))
    )
    run = result.start(results=log.topic("analytics.soon"), checkpoint=tmp_path / "run", spark=spark)
    try:
        while len(rows(log, "analytics.soon", ["country"]) if _there(log, "analytics.soon") else []) < 2:
            assert not run.wait(0.1), "it ended"
    finally:
        run.stop()
    assert sorted(rows(log, "analytics.soon", ["country", "total", "pane_timing"])) == [
        ("fi", 6, "EARLY"),
        ("se", 7, "EARLY"),
    ]


def _there(log, topic):
    return topic in [info.name for info in log.topics()]


def test_months_of_a_calendar_from_a_topic(spark, log, tmp_path):
    zone = ZoneInfo("Europe/Helsinki")
    days = [datetime(2025, 10, 1, tzinfo=zone), datetime(2025, 10, 31, 23, 59, tzinfo=zone)]
    days += [datetime(2025, 11, 1, tzinfo=zone), datetime(2025, 12, 1, tzinfo=zone)]
    put(log, *((day.timestamp(), "fi", 10**place) for place, day in enumerate(days)))
    stream = tw.stream(log, INPUT, watermark=tw.watermarks.bounded("1 s", future=None))
    months = stream.window(tw.windows.calendar("month", zone="Europe/Helsinki")).aggregate(total=tw.agg.sum("amount"))
    run = months.start(
        results=log.topic("analytics.months"), checkpoint=tmp_path / "run", spark=spark, available_now=True
    )
    run.wait()
    found = rows(log, "analytics.months", ["window_start", "window_end", "total"])
    assert sorted(found) == [(days[0], days[2], 11)]
    put(log, (days[3].timestamp() + 2, "fi", 1))
    months.start(
        results=log.topic("analytics.months"), checkpoint=tmp_path / "run", spark=spark, available_now=True
    ).wait()
    assert sorted(rows(log, "analytics.months", ["window_start", "window_end", "total"]))[1:] == [
        (days[2], days[3], 100)
    ]


def test_times_that_make_no_sense_are_late_with_the_reason(spark, log, orders, tmp_path):
    put_frame(log, pl.DataFrame({"at": [None, 9e12, 4.0], "country": ["null", "absurd", "fi"], "amount": [1, 2, 3]}))
    put(log, (60, "fi", 1))
    put(log, (5, "fi", 4))
    result = orders.key_by("country").window(tw.windows.tumbling("10 s")).aggregate(total=tw.agg.sum("amount"))
    run = result.start(
        results=log.topic("analytics.sums"), late=log.topic("late.sums"), metrics=log.topic("metrics.sums"),
        checkpoint=tmp_path / "run", spark=spark, available_now=True, max_events_per_batch=1,
    )  # fmt: skip
    run.wait()
    assert rows(log, "analytics.sums", ["country", "total"]) == [("fi", 9), ("se", 7)]
    assert sorted(rows(log, "late.sums", ["country", "late_reason"])) == [
        ("absurd", "absurd event time"),
        ("fi", "too late"),
        ("null", "no event time"),
    ]
    counts = read(log, "metrics.sums").select(pl.col("events", "accepted", "late").sum()).row(0)
    assert counts == (8, 5, 3)


def test_the_guard_against_the_future_sends_bad_clocks_to_the_late_output(spark, log, tmp_path):
    now = datetime.now(timezone.utc).timestamp()
    put(log, (now - 30, "fi", 1), (now + 3_600, "bad clock", 2))
    put(log, (now - 29, "fi", 4), (now, "fi", 8))
    guarded = tw.stream(log, INPUT, watermark=tw.watermarks.bounded("1 s"))
    result = guarded.key_by("country").window(tw.windows.tumbling("5 s")).aggregate(total=tw.agg.sum("amount"))
    run = result.start(
        results=log.topic("analytics.sums"), late=log.topic("late.sums"), checkpoint=tmp_path / "run", spark=spark,
        available_now=True, max_events_per_batch=2,
    )  # fmt: skip
    run.wait()
    assert rows(log, "late.sums", ["country", "late_reason"]) == [("bad clock", "from the future")]
    assert sum(total for (total,) in rows(log, "analytics.sums", ["total"])) == 5


def test_duplicates_are_distinguished_and_not_lost(spark, log, orders, tmp_path):
    put(log, (1, "fi", 5), (20, "fi", 2), (30, "fi", 2))
    result = orders.deduplicate("country", "amount", horizon="5 s")
    run = result.start(
        results=log.topic("analytics.once"), outputs={"duplicates": log.topic("duplicates.once")},
        checkpoint=tmp_path / "run", spark=spark, available_now=True,
    )  # fmt: skip
    run.wait()
    assert sorted(rows(log, "analytics.once", ["country", "amount"])) == [("fi", 1), ("fi", 2), ("fi", 5), ("se", 7)]
    assert rows(log, "duplicates.once", ["country", "amount"]) == [("fi", 5)]
