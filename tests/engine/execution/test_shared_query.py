"""Many jobs in one query: chained, isolated from each other, each resumed where it stopped."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import datetime, timezone

import polars as pl
import pytest

import tidewheel as tw
from tests.engine.orders import INPUT, put, read, rows
from tidewheel.errors import CheckpointError, DefinitionError
from tidewheel_transit.transit_pb2 import FenceCrossing

pytestmark = pytest.mark.long

UNTIL_SECOND = tw.watermarks.bounded("1 s", future=None)


def second(number: int) -> datetime:
    return datetime.fromtimestamp(number, timezone.utc)


@pytest.fixture
def orders(log):
    put(log, (1, "fi", 5), (2, "se", 7), (3, "fi", 1))
    return tw.stream(log, INPUT, watermark=UNTIL_SECOND)


def totals(orders, size="10 s"):
    return (
        orders.key_by("country")
        .window(tw.windows.tumbling(size), lateness="1 min")
        .accumulate("retracting")
        .aggregate(n=tw.agg.count(), total=tw.agg.sum("amount"))
    )


def finish(spark, log, tmp_path, *results, batch=3):
    run = tw.run(
        *results, log=log, checkpoint=tmp_path / "run", spark=spark, available_now=True, max_events_per_batch=batch
    )
    run.wait()
    return run


def test_windows_over_windows_follow_retractions(spark, log, orders, tmp_path):
    put(log, (12, "fi", 5), (31, "fi", 1))
    put(log, (4, "fi", 100), (72, "se", 1))
    put(log, (135, "se", 1))
    chained = (
        totals(orders)
        .window(tw.windows.tumbling("1 min"), lateness="1 min")
        .accumulate("value")
        .aggregate(best=tw.agg.max("total"), windows=tw.agg.count(), all=tw.agg.sum("total"))
    )
    run = finish(spark, log, tmp_path, chained.named("minutes"))
    assert run.progress().events == 8
    assert rows(log, "analytics.minutes", ["window_start", "best", "windows", "all", "pane_timing"]) == [
        (second(0), 106, 4, 119, "ON_TIME"),
        (second(60), 1, 1, 1, "ON_TIME"),
    ]


def test_a_job_that_reads_anothers_results_gets_its_watermark_and_its_retractions(spark, log, orders, tmp_path):
    put(log, (12, "fi", 5), (31, "fi", 1))
    put(log, (4, "fi", 100), (72, "se", 1))
    put(log, (135, "se", 1))
    finish(spark, log, tmp_path, totals(orders).named("tens"))
    assert rows(log, "analytics.tens", ["country", "total", "retraction"]).count(("fi", 6, True)) == 1
    upstream = tw.stream(log, "analytics.tens", watermark=tw.watermarks.punctuated(future=None))
    minutes = upstream.window(tw.windows.tumbling("1 min"), lateness="1 min").aggregate(all=tw.agg.sum("total"))
    run = minutes.start(
        results=log.topic("analytics.minutes"), checkpoint=tmp_path / "second", spark=spark, available_now=True,
        max_events_per_batch=3,
    )  # fmt: skip
    run.wait()
    found = rows(log, "analytics.minutes", ["window_start", "all", "pane_last"])
    assert found[-2:] == [(second(0), 119, True), (second(60), 1, False)]


def test_a_job_that_fails_is_taken_out_and_resumes_where_it_stopped(spark, log, orders, tmp_path):
    broken = tmp_path / "broken"
    broken.touch()

    def checked(events, state, clock):
        if broken.exists() and (events["amount"] == 100).any():
            raise ValueError("a hundred is too much")
        seen = events.select("country", "event_time", "amount")
        counts = events.group_by("country", maintain_order=True).len().join(state, on="country", nulls_equal=True)
        return seen, counts.select("country", count=pl.col("len").cast(pl.Int64) + pl.col("count").fill_null(0))

    watched = orders.key_by("country").process(checked, state={"count": pl.Int64}).named("watched")
    jobs = (totals(orders).named("totals"), watched, totals(orders, "20 s").named("twenties"))
    put(log, (12, "fi", 100), (31, "fi", 1))
    put(log, (42, "fi", 2), (43, "se", 3), (51, "se", 4))
    run = finish(spark, log, tmp_path, *jobs)
    assert run.failed == {"watched": "ValueError: a hundred is too much"}
    assert run.progress().lag == 0
    before = rows(log, "analytics.watched", ["amount"])
    assert (100,) not in before
    expected = rows(log, "analytics.totals", ["country", "window_start", "total"])
    assert ("fi", second(10), 100) in expected

    put(log, (60, "fi", 6), (61, "se", 8))
    still = finish(spark, log, tmp_path, *jobs)
    assert still.failed == run.failed, "nothing was repaired"
    assert rows(log, "analytics.watched", ["amount"]) == before

    broken.unlink()
    put(log, (75, "fi", 9), (90, "fi", 1))
    fixed = finish(spark, log, tmp_path, *jobs)
    assert fixed.failed == {}
    everything = [(5,), (7,), (1,), (100,), (1,), (2,), (3,), (4,), (6,), (8,), (9,)]
    assert sorted(rows(log, "analytics.watched", ["amount"])) == sorted(everything)
    assert read(log, "metrics.watched")["late"].sum() == 0
    put(log, (120, "fi", 1))
    finish(spark, log, tmp_path, *jobs)
    assert sorted(rows(log, "analytics.watched", ["amount"])) == sorted([*everything, (1,)])
    once = rows(log, "analytics.totals", ["country", "window_start", "pane_index", "retraction"])
    assert len(once) == len(set(once))


def test_a_job_whose_results_do_not_fit_their_type_is_taken_out_too(spark, log, orders, tmp_path):
    crossing = orders.select(
        "event_time", pl.col("amount").alias("operator"), pl.col("country").alias("mode"), fence=pl.lit("x"),
        change=pl.lit("enter"), vehicle=pl.lit(1), lat=pl.lit(1.0), lon=pl.lit(2.0), since=pl.col("event_time"),
        inside=pl.lit(0.0),
    )  # fmt: skip
    misfit = replace(crossing.each_row().named("misfit"), writes=FenceCrossing)
    put(log, (12, "fi", 2**40))
    put(log, (31, "fi", 1))
    run = finish(spark, log, tmp_path, totals(orders).named("totals"), misfit)
    assert list(run.failed) == ["misfit"]
    assert "1099511627776" in run.failed["misfit"]
    assert ("fi", 2**40) in rows(log, "analytics.totals", ["country", "total"])


def test_a_stop_while_a_failed_job_is_taken_out_ends_the_run(spark, log, orders, tmp_path):
    def broken(events, state, clock):
        if events.height:
            raise ValueError("not today")
        return events, state

    put(log, (31, "fi", 1))
    jobs = (totals(orders).named("totals"), orders.key_by("country").process(broken).named("broken"))
    run = tw.run(*jobs, log=log, checkpoint=tmp_path / "run", spark=spark)
    restart = run._restart_without_failed
    restarting, go_on, restarted = threading.Event(), threading.Event(), threading.Event()

    def slowly(error):
        restarting.set()
        go_on.wait()
        found = restart(error)
        restarted.set()
        return found

    run._restart_without_failed = slowly
    assert restarting.wait(60)
    assert run.active, "it goes on without the job that failed"
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    while not run._stopping:
        pass
    go_on.set()
    assert restarted.wait(60)
    stopping.join(60)
    assert run.wait(60)
    assert not run.query.isActive
    assert not run.active
    assert list(run.failed) == ["broken"]


def test_when_the_last_job_fails_the_run_fails_with_what_broke_it(spark, log, orders, tmp_path):
    def never(events, state, clock):
        if events.height:
            raise ValueError("not today")
        return events, state

    put(log, (9, "fi", 1))
    result = orders.key_by("country").process(never).named("never")
    with pytest.raises(tw.errors.FlowError, match="never: ValueError: not today") as raised:
        finish(spark, log, tmp_path, result)
    assert (raised.value.flow, raised.value.reason) == ("never", "ValueError: not today")


def test_jobs_share_the_source_and_a_state_operator_for_each_depth(spark, log, orders, tmp_path):
    put(log, (31, "fi", 1))
    flat = [totals(orders).named("tens"), totals(orders, "20 s").named("twenties")]
    chained = totals(orders).window(tw.windows.tumbling("1 min")).aggregate(all=tw.agg.sum("total"))
    run = finish(spark, log, tmp_path, *flat, chained.named("minutes"), batch=100)
    reports = [json.loads(report.json) for report in run.query.recentProgress]
    [report] = [report for report in reports if report["numInputRows"] > 0]
    [source] = report["sources"]
    assert len(report["stateOperators"]) == 2, "one for each depth of chaining"
    assert source["endOffset"] != source["startOffset"]
    progress = run.progress()
    assert progress.events == log.topic_info(INPUT).count, "each record is read once"
    assert progress.rate == pytest.approx(1_000 * progress.events / progress.batch_ms), "events, not what Spark sees"
    assert progress.state > 0


def test_state_that_does_not_fit_is_refused(spark, log, orders, tmp_path):
    finish(spark, log, tmp_path, totals(orders).named("totals"))
    with pytest.raises(CheckpointError, match=r"does not fit this job.*tumbling\('20 s'\)"):
        finish(spark, log, tmp_path, totals(orders, "20 s").named("totals"))
    most = orders.key_by("country").window(tw.windows.tumbling("10 s")).aggregate(total=tw.agg.max("amount"))
    with pytest.raises(CheckpointError, match=r"does not fit this job.*max\('amount'\)"):
        finish(spark, log, tmp_path, most.named("totals"))
    with pytest.raises(CheckpointError, match=r"key groups: 2 → 3 \(say key_groups=2\)"):
        tw.run(
            totals(orders).named("totals"),
            log=log,
            checkpoint=tmp_path / "run",
            spark=spark,
            available_now=True,
            key_groups=3,
        )


def test_a_checkpoint_keeps_its_number_of_key_groups(spark, log, orders, tmp_path):
    def go_on(**options):
        result = totals(orders).named("totals")
        tw.run(result, log=log, checkpoint=tmp_path / "run", spark=spark, available_now=True, **options).wait()

    before = spark.conf.get("spark.sql.shuffle.partitions")
    go_on(key_groups=3)
    put(log, (4, "fi", 100), (31, "fi", 1))
    go_on()
    assert ("fi", second(0), 106) in rows(log, "analytics.totals", ["country", "window_start", "total"])
    partitions = {path.name for path in (tmp_path / "run" / "spark" / "state" / "0").iterdir() if path.name.isdigit()}
    assert partitions == {"0", "1", "2"}, "a partition for each key group"
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    with pytest.raises(CheckpointError, match="key groups: 3 → 2"):
        go_on(key_groups=2)


def test_results_that_cannot_run_together_are_refused(log, orders, tmp_path):
    with pytest.raises(DefinitionError, match="needs a name"):
        tw.run(totals(orders), log=log, checkpoint=tmp_path)
    for name in ("a/b", "a: b"):
        with pytest.raises(DefinitionError, match=f"a result's name has no / and no :, got '{name}'"):
            tw.run(totals(orders).named(name), log=log, checkpoint=tmp_path)
    with pytest.raises(DefinitionError, match="two results are named 'a'"):
        tw.run(totals(orders).named("a"), totals(orders).named("a"), log=log, checkpoint=tmp_path)
    with pytest.raises(DefinitionError, match="at least one"):
        tw.run(log=log, checkpoint=tmp_path)
