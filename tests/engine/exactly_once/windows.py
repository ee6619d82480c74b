"""A job with early, late and retracted results: whoever replays them ends with exactly the right table."""

from __future__ import annotations

import numpy as np
import polars as pl

from tests.engine.orders import put_frame, read
from tidewheel.transport.log.log import Log

EVENTS = 24_000
BLOCK = 500
INPUT, RESULTS = "input.window-order", "analytics.orders"

JOB = """
def windows(log, checkpoint, **options):
    result = (
        tw.stream(log, "input.window-order", watermark=tw.watermarks.bounded("2 s", future=None))
        .key_by("country")
        .window(tw.windows.sliding("10 s", every="5 s"), lateness="1 h")
        .trigger(tw.triggers.after_watermark(early=tw.triggers.each_batch(), late=tw.triggers.each_batch()))
        .accumulate("retracting")
        .aggregate(n=tw.agg.count(), total=tw.agg.sum("amount"), most=tw.agg.max("amount"))
    )
    options = {"available_now": True, "max_events_per_batch": 2_000, **options}
    return result.start(
        results=log.topic("analytics.orders"), late=log.topic("late.orders"), checkpoint=checkpoint, **options
    )
"""


def orders() -> pl.DataFrame:
    """With disorder, all within the lateness."""
    chance = np.random.default_rng(4)
    times = np.sort(chance.uniform(0, 400, EVENTS)) - chance.exponential(1.5, EVENTS)
    return pl.DataFrame(
        {
            "at": np.round(np.clip(times, 0, None), 3),
            "country": chance.choice(["fi", "se", "no", "dk", "ee"], EVENTS),
            "amount": chance.integers(1, 1_000, EVENTS),
        }
    )


def fill(log: Log) -> None:
    """The orders, in blocks."""
    for block in orders().iter_slices(BLOCK):
        put_frame(log, block, INPUT)


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


def check(log: Log) -> None:
    """Whoever replays the results has the right table in the end."""
    results = read(log, RESULTS)
    assert results["retraction"].sum() > 100
    assert set(results["pane_timing"]) == {"EARLY", "ON_TIME", "LATE"}
    assert log.topic_info("late.orders").count == 0
    found = {
        (country, int(begin.timestamp() * 1_000_000)): values
        for (country, begin, _), values in replayed(results).items()
    }
    assert found == expected(orders())


def expected(given: pl.DataFrame) -> dict[tuple[object, ...], tuple[int, int, int]]:
    """What the windows hold of these orders, by country and start."""
    start = ((pl.col("at") * 1_000_000).cast(pl.Int64) // 5_000_000) * 5_000_000
    table = (
        pl.concat([given.with_columns(start=start), given.with_columns(start=start - 5_000_000)])
        .group_by("country", "start")
        .agg(n=pl.len(), total=pl.col("amount").sum(), most=pl.col("amount").max())
    )
    return {
        (row["country"], row["start"]): (row["n"], row["total"], row["most"]) for row in table.iter_rows(named=True)
    }
