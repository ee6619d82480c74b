"""Watermarks of running queries: by the clock when nothing comes, by how late events have been so far, by the order of
events, and by the markers of producers."""

from __future__ import annotations

import time

import polars as pl
import pytest

import tidewheel as tw
from tests.engine.orders import INPUT, put, read, rows
from tidewheel.transport.events.codec import punctuation
from tidewheel.transport.sqlite.log import SqliteLog

pytestmark = pytest.mark.long


def sums(stream):
    return stream.key_by("country").window(tw.windows.tumbling("5 s")).aggregate(total=tw.agg.sum("amount"))


def test_the_last_window_of_a_quiet_stream_closes_by_the_clock(spark, log, tmp_path):
    now = time.time()
    put(log, (now, "fi", 1), (now + 0.1, "fi", 2))
    stream = tw.stream(log, INPUT, watermark=tw.watermarks.bounded("1 s", idle="2 s"))
    run = sums(stream).start(results=log.topic("analytics.sums"), checkpoint=tmp_path / "run", spark=spark)
    try:
        while sum(total for (total,) in rows(log, "analytics.sums", ["total"])) < 3:
            assert not run.wait(0.1), "it ended"
    finally:
        run.stop()
    assert {timing for (timing,) in rows(log, "analytics.sums", ["pane_timing"])} == {"ON_TIME"}
    assert run.progress().watermark >= (now // 5 + 1) * 5 * 1_000_000  # the end of the window of the first


def test_without_an_idle_time_it_stays_open(spark, log, tmp_path):
    now = time.time()
    put(log, (now, "fi", 1))
    stream = tw.stream(log, INPUT, watermark=tw.watermarks.bounded("1 s"))
    run = sums(stream).start(
        results=log.topic("analytics.sums"), checkpoint=tmp_path / "run", spark=spark, available_now=True
    )
    run.wait()
    assert rows(log, "analytics.sums", ["total"]) == []
    assert run.progress().watermark <= now * 1_000_000


def test_a_percentile_follows_how_late_events_were(spark, tmp_path):
    start, beat = 1_700_000_000, 2
    shown = [0]
    with SqliteLog(tmp_path / "percentile.tw", clock=lambda: shown[0]) as log:
        for number in range(10):
            now = start + number * beat
            shown[0] = now * 1_000_000
            timely = [(now - 0.01 * place, "timely", 1) for place in range(97)]
            slow = [(now - 60.0, "slow", 1) for _ in range(3)]
            put(log, *timely, *slow)
        stream = tw.stream(log, INPUT, watermark=tw.watermarks.percentile(95))
        run = sums(stream).start(
            results=log.topic("analytics.sums"), late=log.topic("late.sums"), metrics=log.topic("metrics.sums"),
            checkpoint=tmp_path / "run", spark=spark, available_now=True, max_events_per_batch=100, clock="log",
        )  # fmt: skip
        run.wait()
        behind = now - run.progress().watermark / 1_000_000
        late = read(log, "late.sums")["country"].to_list()
        counted = read(log, "metrics.sums").select(pl.col("events", "accepted", "late").sum()).row(0)
        totals = dict(read(log, "analytics.sums").group_by("country").agg(pl.col("total").sum()).rows())
    assert 0.9 < behind < 1.2  # 95 of 100 were at most 0.94 s behind; a bin of the histogram is an eighth wide
    assert late == ["slow"] * 3 * 9  # of all batches but the first, which had no watermark before it
    assert counted == (1_000, 1_000 - len(late), len(late))
    assert totals["slow"] == 3
    assert totals["timely"] % 97 == 0


def test_events_that_come_in_order_close_a_window_with_the_first_at_its_end(spark, log, tmp_path):
    for at in (1, 4, 5, 3, 9.999, 10):
        put(log, (at, "fi", 1))
    stream = tw.stream(log, INPUT, watermark=tw.watermarks.monotonic(future=None))
    run = sums(stream).start(
        results=log.topic("analytics.sums"), late=log.topic("late.sums"), checkpoint=tmp_path / "run", spark=spark,
        available_now=True, max_events_per_batch=1,
    )  # fmt: skip
    run.wait()
    assert rows(log, "analytics.sums", ["total", "pane_timing", "pane_last"]) == [(2, "ON_TIME", True)] * 2
    late = read(log, "late.sums").select("late_reason", pl.col("late_by").dt.total_seconds())
    assert late.rows() == [("too late", 2)], "the watermark was at its window's end"


def test_an_epoch_is_complete_when_its_producer_says_so(spark, log, tmp_path):
    second = 1_000_000
    put(log, (60, "sweep 1", 1), (60, "sweep 1", 2))
    put(log, (900, "sweep 2", 8))  # ahead of the others, which no marker has ended yet
    put(log, (60, "sweep 1", 4))
    log.append(INPUT, punctuation(900 * second, epoch="sweep 1"))
    put(log, (60, "sweep 1", 16), (900, "sweep 2", 32))
    log.append(INPUT, punctuation(1_000 * second, epoch="sweep 2"))
    stream = tw.stream(log, INPUT, watermark=tw.watermarks.punctuated(future=None))
    run = sums(stream).start(
        results=log.topic("analytics.sums"), late=log.topic("late.sums"), checkpoint=tmp_path / "run", spark=spark,
        available_now=True, max_events_per_batch=1,
    )  # fmt: skip
    run.wait()
    assert rows(log, "analytics.sums", ["country", "total"]) == [("sweep 1", 7), ("sweep 2", 40)]
    assert rows(log, "late.sums", ["amount", "late_reason"]) == [(16, "too late")]
    assert run.progress().watermark == 1_000 * second
