"""A job with patterns, whose partial matches are open all the time: the same matches, each once."""

from __future__ import annotations

import numpy as np
import polars as pl

import tidewheel as tw
from tests.engine.orders import put_frame, read
from tidewheel.patterns import Matcher
from tidewheel.transport.log.log import Log

EVENTS = 24_000
BLOCK = 500
KEYS = 40
INPUT, RESULTS, TIMED_OUT, LATE = "input.rise-order", "analytics.rises", "timed_out.rises", "late.rises"

JOB = """
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

def patterns(log, checkpoint, **options):
    orders = tw.stream(log, "input.rise-order", watermark=tw.watermarks.bounded("2 s", future=None))
    return orders.key_by("country").match(rise, measures=measures).named("rises").start(
        results=log.topic("analytics.rises"), late=log.topic("late.rises"),
        outputs={"timed_out": log.topic("timed_out.rises"), "dropped": log.topic("dropped.rises")},
        checkpoint=checkpoint, available_now=True, max_events_per_batch=2_000, **options,
    )
"""


def orders() -> pl.DataFrame:
    """With disorder that the watermark waits for."""
    chance = np.random.default_rng(6)
    times = np.sort(chance.uniform(0, 400, EVENTS)) - chance.uniform(0, 1.9, EVENTS)
    return pl.DataFrame(
        {
            "at": np.round(np.clip(times, 0, None), 3),
            "country": [f"c{number}" for number in chance.integers(0, KEYS, EVENTS)],
            "amount": chance.integers(1, 1_000, EVENTS),
        }
    )


def fill(log: Log) -> None:
    """The orders, in blocks."""
    for block in orders().iter_slices(BLOCK):
        put_frame(log, block, INPUT)


def undisturbed(given: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """All of it at once, in memory."""
    made: dict[str, object] = {"tw": tw, "pl": pl}
    exec(JOB, made)
    matcher = Matcher(made["rise"], keys=["country"], measures=made["measures"])  # type: ignore[arg-type]
    times = (given["at"] * 1_000_000).cast(pl.Int64)
    events = given.select("country", "amount", times.alias("__time")).sort("country", "__time", maintain_order=True)
    last = int(times.max())  # type: ignore[arg-type]
    outputs, state = matcher.step({}, events.filter(pl.col("__time") < last - 2_000_000), last - 2_000_000)
    assert state["runs"].height > KEYS / 2, "the events end in the middle of partial matches"
    return outputs


def found(frame: pl.DataFrame, columns: list[str]) -> list[tuple[object, ...]]:
    times = pl.col("match_start", "match_end").cast(pl.Datetime("us", "UTC")).cast(pl.Int64)
    return sorted(frame.with_columns(times).select(columns).rows(), key=repr)


def check(log: Log) -> None:
    """The matches and what timed out are those of one go in memory."""
    expected = undisturbed(orders())
    assert expected["matches"].height > 500
    assert expected["timed_out"].height > 500
    columns = ["country", "match_start", "match_end", "low", "high", "all"]
    assert found(read(log, RESULTS), columns) == found(expected["matches"], columns)
    columns.insert(3, "stage")
    assert found(read(log, TIMED_OUT), columns) == found(expected["timed_out"], columns)
    assert log.topic_info(LATE).count == 0
