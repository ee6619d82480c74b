"""Process functions to test with, as a user would write them."""

from __future__ import annotations

import polars as pl

from tidewheel.model.process.process import DATETIME, Process, ProcessingTimer, Timer

SCHEMA = {"key": pl.String, "value": pl.Int64}


def at(expr):
    return expr.cast(pl.Int64)


def by_key(events, *aggregations):
    return events.group_by("key", maintain_order=True).agg(*aggregations)


def beside(left, right):
    return left.join(right, on="key", how="left", nulls_equal=True, maintain_order="left")


def totals(events, state, clock):
    """The running sum of each key."""
    joined = beside(events, state)
    results = joined.select(
        "key", "event_time", "value", total=pl.col("total").fill_null(0) + pl.col("value").cum_sum().over("key")
    )
    return results, by_key(results, pl.col("total").last())


def alarms(events, state, clock):
    """Even values set the alarm, maybe to no later than now; it rings, and again 3 µs later while odd."""
    even = pl.col("value") % 2 == 0
    news = by_key(
        events,
        pl.len().cast(pl.Int64).alias("more"),
        (at(pl.col("event_time")) + pl.col("value") % 7).filter(even).last().cast(DATETIME).alias("set_to"),
    )
    joined = beside(state, news)
    rings = joined.filter("wake_at_due").select("key", event_time="wake_at", count="count", kind=pl.lit("alarm"))
    counted = beside(events, state).select(
        "key",
        "event_time",
        count=pl.col("count").fill_null(0) + pl.int_range(1, pl.len() + 1).over("key"),
        kind=pl.lit("event"),
    )
    again = (at(pl.col("wake_at")) + 3).cast(DATETIME)
    new = joined.select(
        "key",
        count=pl.col("count").fill_null(0) + pl.col("more").fill_null(0) - pl.col("wake_at_due").cast(pl.Int64),
        wake_at=pl.when(pl.col("wake_at_due") & (pl.col("count") % 2 == 1))
        .then(again)
        .otherwise(pl.coalesce("set_to", "wake_at")),
    )
    return pl.concat([rings, counted]), new


def sessions(events, state, clock):
    """The sum of events less than 5 µs apart, reported at the end of it; the state is then given up."""
    news = by_key(events, pl.col("value").sum().alias("more"), pl.col("event_time").last())
    ended = state.filter("ends_at_due").select("key", event_time="ends_at", total="total")
    joined = beside(news, state.drop("ends_at"))
    new = joined.select(
        "key",
        total=pl.col("total").fill_null(0) + pl.col("more"),
        ends_at=(at(pl.col("event_time")) + 5).cast(DATETIME),
    )
    return ended, new


def flushes(events, state, clock):
    """Counts events; tells the count some time after the first by the batch's clock, and 2 µs of event time later."""
    news = by_key(events, pl.len().cast(pl.Int64).alias("more"), pl.col("value").first().alias("wait"))
    joined = beside(state, news)
    flush = joined.filter("flush_at_due").select("key", event_time="flush_at", count="count", kind=pl.lit("clock"))
    wake = joined.filter("wake_at_due").select("key", event_time="wake_at", count="count", kind=pl.lit("event"))
    wait = (clock.clock + pl.col("wait") % 5).cast(DATETIME)
    wake_at = pl.lit(min(clock.watermark or 0, 99), dtype=pl.Int64) + pl.col("count") % 3
    new = joined.select(
        "key",
        count=pl.col("count").fill_null(0) + pl.col("more").fill_null(0),
        flush_at=pl.coalesce("flush_at", wait),
        wake_at=pl.when("flush_at_due").then(wake_at.cast(DATETIME)).otherwise("wake_at"),
    )
    return pl.concat([flush, wake]), new


def process(name, ttl=None):
    return {
        "totals": lambda: Process(totals, keys="key", state={"total": pl.Int64}, ttl=ttl),
        "alarms": lambda: Process(alarms, keys="key", state={"count": pl.Int64, "wake_at": Timer}, ttl=ttl),
        "sessions": lambda: Process(
            sessions, keys="key", state={"total": pl.Int64, "ends_at": Timer(after="5 us")}, ttl=ttl
        ),
        "flushes": lambda: Process(
            flushes, keys="key", state={"count": pl.Int64, "flush_at": ProcessingTimer, "wake_at": Timer}, ttl=ttl
        ),
    }[name]()
