"""Bounded input: the same answers as the stream's last ones, all windows closed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import polars as pl
import pytest

import tidewheel as tw
from tests.engine.orders import INPUT, put, rows

pytestmark = pytest.mark.long

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
ORDERS = [(1, "fi", 5), (2, "se", 7), (3, "fi", 1), (12, "fi", 5), (2, "se", 7), (31, "fi", 1), (38, "se", 2)]


@pytest.fixture
def frame(spark):
    made = [(BEGIN + timedelta(seconds=at), country, amount) for at, country, amount in ORDERS]
    return spark.createDataFrame(made, "at timestamp, country string, amount long")


def collected(result, *columns):
    found = result.df().where("output = 'results'").select(*columns).collect()
    return sorted(tuple(row) for row in found)


def expected(size):
    table = pl.DataFrame(ORDERS, schema=["at", "country", "amount"], orient="row")
    by = [pl.col("country"), (pl.col("at") // size * size).alias("start")]
    return sorted(table.group_by(by).agg(n=pl.len(), total=pl.col("amount").sum()).rows())


def test_a_static_frame_has_every_window_once_and_closed(frame):
    windowed = tw.stream(frame, time="at").key_by("country").window(tw.windows.tumbling("10 s"))
    result = windowed.aggregate(n=tw.agg.count(), total=tw.agg.sum("amount"))
    found = collected(result, "country", "window_start", "n", "total", "pane_timing", "pane_last")
    seconds = [
        (country, int((start.replace(tzinfo=timezone.utc) - BEGIN).total_seconds()), n, total)
        for country, start, n, total, _, _ in found
    ]
    assert seconds == expected(10)
    assert {(timing, last) for *_, timing, last in found} == {("ON_TIME", True)}


def test_chained_windows_and_sessions_work_on_a_static_frame(frame):
    keyed = tw.stream(frame, time="at").key_by("country")
    sessions = keyed.window(tw.windows.session(gap="5 s")).aggregate(n=tw.agg.count())
    assert collected(sessions, "country", "n") == [("fi", 1), ("fi", 1), ("fi", 2), ("se", 1), ("se", 2)]
    longest = sessions.window(tw.windows.global_()).aggregate(sessions=tw.agg.count(), longest=tw.agg.max("n"))
    assert collected(longest, "sessions", "longest") == [(5, 2)]
    pairs = keyed.window(tw.windows.count(2)).aggregate(total=tw.agg.sum("amount"))
    assert collected(pairs, "country", "total") == [("fi", 6), ("fi", 6), ("se", 2), ("se", 14)]


def test_the_time_of_arrival_orders_events_by_when_the_log_had_them(spark, log, tmp_path):
    put(log, (500, "fi", 1), (1, "fi", 2))
    put(log, (900, "fi", 4))
    arrived = tw.stream(log, INPUT, time="arrival")
    result = arrived.key_by("country").previous("amount")
    run = result.start(
        results=log.topic("analytics.steps"), checkpoint=tmp_path / "run", spark=spark, available_now=True,
        max_events_per_batch=1,
    )  # fmt: skip
    run.wait()
    assert rows(log, "analytics.steps", ["amount", "previous_amount"]) == [(1, None), (2, 1)]
