"""Early, late and retracted results through SIGKILLs: whoever replays them ends with exactly the right table."""

from __future__ import annotations

import random
import time

import numpy as np
import polars as pl
import pytest

from tests.engine.orders import put_frame, read
from tests.support.driver_process import kill, start_driver, until_written, written

pytestmark = pytest.mark.long

EVENTS = 24_000
BLOCK = 500
KILLS = 2
RESULTS = "analytics.orders"

DRIVER = """
import sys
import tidewheel as tw

log = tw.open_log(sys.argv[1])
result = (
    tw.stream(log, "input.order", watermark=tw.watermarks.bounded("2 s", future=None))
    .key_by("country")
    .window(tw.windows.sliding("10 s", every="5 s"), lateness="1 h")
    .trigger(tw.triggers.after_watermark(early=tw.triggers.each_batch(), late=tw.triggers.each_batch()))
    .accumulate("retracting")
    .aggregate(n=tw.agg.count(), total=tw.agg.sum("amount"), most=tw.agg.max("amount"))
)
run = result.start(
    results=log.topic("analytics.orders"), late=log.topic("late.orders"), checkpoint=sys.argv[2],
    available_now=True, max_events_per_batch=2_000,
)
run.wait()
"""


def replayed(results: pl.DataFrame) -> dict[tuple[object, ...], tuple[int, int, int]]:
    """The table that a reader of the results has in the end; what is retracted must be what it has."""
    table: dict[tuple[object, ...], tuple[int, int, int]] = {}
    shown: dict[tuple[object, ...], int] = {}
    for row in results.iter_rows(named=True):
        place = (row["country"], row["window_start"], row["window_end"])
        values = (row["n"], row["total"], row["most"])
        if row["retraction"]:
            assert table.pop(place) == values
            assert shown[place] == row["pane_index"]
        else:
            assert place not in table, "a new result before the old one was retracted"
            assert row["pane_index"] == shown.get(place, -1) + 1
            table[place] = values
            shown[place] = row["pane_index"]
    return table


@pytest.mark.slow
def test_replayed_results_end_in_exactly_the_right_table(log, tmp_path):
    chance = np.random.default_rng(4)
    times = np.sort(chance.uniform(0, 400, EVENTS)) - chance.exponential(1.5, EVENTS)
    orders = pl.DataFrame(
        {
            "at": np.round(np.clip(times, 0, None), 3),
            "country": chance.choice(["fi", "se", "no", "dk", "ee"], EVENTS),
            "amount": chance.integers(1, 1_000, EVENTS),
        }
    )
    for first in range(0, EVENTS, BLOCK):
        put_frame(log, orders.slice(first, BLOCK))
    moments = random.Random(7)
    checkpoint, errors = tmp_path / "checkpoint", tmp_path / "errors"
    for _ in range(KILLS):
        driver = start_driver(DRIVER, log, checkpoint, errors)
        wanted = written(log, RESULTS) + moments.choice([1, 200, 400])
        assert until_written(log, RESULTS, wanted, driver), errors.read_text()
        time.sleep(moments.uniform(0, 0.6))  # at any moment of the next batches
        assert driver.poll() is None, "it was done before it could be killed"
        kill(driver, alone=moments.random() >= 0.5)
    driver = start_driver(DRIVER, log, checkpoint, errors)
    assert driver.wait(300) == 0, errors.read_text()

    results = read(log, RESULTS)
    assert results["retraction"].sum() > 100
    assert set(results["pane_timing"]) == {"EARLY", "ON_TIME", "LATE"}
    assert log.topic_info("late.orders").count == 0
    at = pl.col("at").cast(pl.Float64) * 1_000_000
    start = (at.cast(pl.Int64) // 5_000_000) * 5_000_000
    expected = (
        pl.concat([orders.with_columns(start=start), orders.with_columns(start=start - 5_000_000)])
        .group_by("country", "start")
        .agg(n=pl.len(), total=pl.col("amount").sum(), most=pl.col("amount").max())
    )
    wanted_table = {
        (row["country"], row["start"]): (row["n"], row["total"], row["most"]) for row in expected.iter_rows(named=True)
    }
    found = {
        (country, int(begin.timestamp() * 1_000_000)): values
        for (country, begin, _), values in replayed(results).items()
    }
    assert found == wanted_table
