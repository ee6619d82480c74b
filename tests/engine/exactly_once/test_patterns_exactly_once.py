"""Patterns through SIGKILLs, with partial matches open all the time: the same matches, each once."""

from __future__ import annotations

import random
import time

import numpy as np
import polars as pl
import pytest

from tests.engine.orders import put_frame, read
from tests.support.driver_process import kill, start_driver, until_written, written
from tidewheel.patterns import Matcher

pytestmark = pytest.mark.long

EVENTS = 24_000
BLOCK = 500
KILLS = 2
KEYS = 40
MATCHES, TIMED_OUT, LATE = "analytics.rises", "timed_out.rises", "late.rises"

DRIVER = """
import sys
import polars as pl
import tidewheel as tw

rise = (
    tw.pattern("low", pl.col("amount") < 300)
    .followed_by("more", (pl.col("amount") < 600) & (pl.col("amount") > tw.measures.last("low.amount") + 200))
    .one_or_more().greedy()
    .followed_by("high", (pl.col("amount") >= 600) & (pl.col("amount") > tw.measures.max("more.amount") + 350))
    .within("8 s")
    .after_match("skip past last")
)
of = tw.measures
measures = {"low": of.first("low.amount"), "high": of.last("high.amount"), "all": of.collect("amount")}

if __name__ == "__main__":
    log = tw.open_log(sys.argv[1])
    orders = tw.stream(log, "input.order", watermark=tw.watermarks.bounded("2 s", future=None))
    run = orders.key_by("country").match(rise, measures=measures).named("rises").start(
        results=log.topic("analytics.rises"), late=log.topic("late.rises"),
        outputs={"timed_out": log.topic("timed_out.rises"), "dropped": log.topic("dropped.rises")},
        checkpoint=sys.argv[2], available_now=True, max_events_per_batch=1_500,
    )
    run.wait()
"""


def undisturbed(orders: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """All of it at once, in memory."""
    made: dict[str, object] = {"__name__": "driver"}
    exec(DRIVER, made)
    matcher = Matcher(made["rise"], keys=["country"], measures=made["measures"])  # type: ignore[arg-type]
    times = (orders["at"] * 1_000_000).cast(pl.Int64)
    events = orders.select("country", "amount", times.alias("__time")).sort("country", "__time", maintain_order=True)
    last = int(times.max())  # type: ignore[arg-type]
    outputs, state = matcher.step({}, events.filter(pl.col("__time") < last - 2_000_000), last - 2_000_000)
    assert state["runs"].height > KEYS / 2, "the events end in the middle of partial matches"
    return outputs


def found(frame: pl.DataFrame, columns: list[str]) -> list[tuple[object, ...]]:
    times = pl.col("match_start", "match_end").cast(pl.Datetime("us", "UTC")).cast(pl.Int64)
    return sorted(frame.with_columns(times).select(columns).rows(), key=repr)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_the_same_matches_once_whenever_the_driver_is_killed(log, tmp_path):
    chance = np.random.default_rng(6)
    times = np.sort(chance.uniform(0, 400, EVENTS)) - chance.uniform(0, 1.9, EVENTS)
    orders = pl.DataFrame(
        {
            "at": np.round(np.clip(times, 0, None), 3),
            "country": [f"c{number}" for number in chance.integers(0, KEYS, EVENTS)],
            "amount": chance.integers(1, 1_000, EVENTS),
        }
    )
    for first in range(0, EVENTS, BLOCK):
        put_frame(log, orders.slice(first, BLOCK))
    moments = random.Random(11)
    checkpoint, errors = tmp_path / "checkpoint", tmp_path / "errors"
    killed = 0
    for _ in range(KILLS):
        driver = start_driver(DRIVER, log, checkpoint, errors)
        wanted = written(log, TIMED_OUT) + moments.choice([1, 100, 300])
        until_written(log, TIMED_OUT, wanted, driver)
        time.sleep(moments.uniform(0, 0.6))  # at any moment of the next batches
        killed += driver.poll() is None
        kill(driver, alone=moments.random() >= 0.5)
    assert killed == KILLS
    driver = start_driver(DRIVER, log, checkpoint, errors)
    assert driver.wait(600) == 0, errors.read_text()

    expected = undisturbed(orders)
    assert expected["matches"].height > 500
    assert expected["timed_out"].height > 500
    columns = ["country", "match_start", "match_end", "low", "high", "all"]
    assert found(read(log, MATCHES), columns) == found(expected["matches"], columns)
    columns.insert(3, "stage")
    assert found(read(log, TIMED_OUT), columns) == found(expected["timed_out"], columns)
    assert log.topic_info(LATE).count == 0
