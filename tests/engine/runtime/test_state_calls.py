"""How often a batch calls the state store, by RocksDB's own counters: not more often because there are more keys."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import tidewheel as tw
from tests.engine.orders import INPUT, put_frame
from tidewheel.transport.open_log import open_log

pytestmark = pytest.mark.long

EVENTS, BATCHES = 20_000, 3
STOP = tw.pattern("much", pl.col("amount") > 15_000).followed_by("little", pl.col("amount") < 9_000).within("30 s")


def jobs(log: tw.Log) -> list[tw.Result]:
    """One of each kind of state."""
    keyed = tw.stream(log, INPUT).key_by("country")
    early = tw.triggers.after_watermark(early=tw.triggers.each_batch())
    what = {"n": tw.agg.count(), "total": tw.agg.sum("amount")}
    found = {
        "tumbling": keyed.window(tw.windows.tumbling("10 s")).aggregate(**what),
        "sliding": keyed.window(tw.windows.sliding("20 s", every="5 s"), lateness="10 s").aggregate(**what),
        "early": keyed.window(tw.windows.tumbling("20 s")).trigger(early).accumulate("retracting").aggregate(**what),
        "sessions": keyed.window(tw.windows.session(gap="3 s")).aggregate(**what),
        "counted": keyed.window(tw.windows.count(3)).aggregate(**what),
        "previous": keyed.previous("amount"),
        "match": keyed.match(STOP),
    }
    return [result.named(name) for name, result in found.items()]


def counted(spark: SparkSession, folder: Path, keys: int) -> pl.DataFrame:
    """For each batch what the state operator says of its store. All batches have equally many events."""
    numbers = pl.int_range(EVENTS, eager=True)
    with open_log(folder / "orders.tw", sync="normal") as log:
        for batch in range(BATCHES):
            at = (batch + numbers / EVENTS) * 10
            country = (numbers % keys).cast(pl.String)
            put_frame(log, pl.DataFrame({"at": at, "country": country, "amount": numbers}))
        run = tw.run(
            *jobs(log),
            log=log,
            checkpoint=folder / "state",
            spark=spark,
            available_now=True,
            max_events_per_batch=EVENTS,
            key_groups=2,
        )
        run.wait()
        reported = [operator for progress in run.query.recentProgress for operator in progress["stateOperators"]]
    return pl.DataFrame(
        {
            "puts": [operator["customMetrics"]["rocksdbPutCount"] for operator in reported],
            "gets": [operator["customMetrics"]["rocksdbGetCount"] for operator in reported],
            "entries": [operator["numRowsTotal"] for operator in reported],
        }
    )


@pytest.fixture(scope="module")
def few_and_many(spark, tmp_path_factory) -> tuple[pl.DataFrame, pl.DataFrame]:
    few, many = (counted(spark, tmp_path_factory.mktemp(f"keys{keys}"), keys) for keys in (200, 20_000))
    return few, many


def test_a_batch_writes_no_more_entries_for_a_hundred_times_the_keys(few_and_many):
    few, many = few_and_many
    assert few.height == many.height == BATCHES
    assert few["puts"].min() > 0
    assert many["puts"].sum() <= few["puts"].sum() * 1.1
    assert many["entries"].max() <= few["entries"].max() * 1.1


def test_a_batch_reads_at_most_what_is_there(few_and_many):
    # How much it reads depends on whether the worker that has a key group had it in the batch before.
    for found in few_and_many:
        there = found["entries"].max()
        assert found["gets"].max() <= 3 * there
        assert there < 200
