"""Every aggregate in a running query: from a topic, from a streaming DataFrame, and of a table."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

import tidewheel as tw
from tests.engine.orders import INPUT, put, read

pytestmark = pytest.mark.long

ROWS = [(second + 0.5, "fi" if second % 3 else "se", (second * 37) % 23 - 5) for second in range(120)]
PLUS = pl.col("amount") + 100
UNLIKE = pl.col("amount") * 1_000_000_000 + pl.col("at")  # no two are equal
MIDDLE = tw.agg.custom(partial={"m": pl.col("amount").median()}, finish=pl.col("m"), name="middle")
RANGE = tw.agg.custom(
    partial={"low": pl.col("amount").min(), "high": pl.col("amount").max()},
    merge={"low": pl.col("low").min(), "high": pl.col("high").max()},
    finish=pl.col("high") - pl.col("low"),
)
AGGREGATES = {
    "n": tw.agg.count(),
    "total": tw.agg.sum("amount"),
    "shifted": tw.agg.sum(PLUS),
    "least": tw.agg.min("amount"),
    "most": tw.agg.max("amount"),
    "mean": tw.agg.mean("amount"),
    "variance": tw.agg.variance("amount"),
    "stddev": tw.agg.stddev("amount", ddof=0),
    "earliest": tw.agg.first("amount"),
    "latest": tw.agg.last("amount"),
    "when_most": tw.agg.arg_max("at", by=UNLIKE),
    "when_least": tw.agg.arg_min("at", by=UNLIKE),
    "all": tw.agg.collect("amount"),
    "unsigned": tw.agg.collect(PLUS.cast(pl.UInt32)),
    "different": tw.agg.count_distinct("amount"),
    "about_different": tw.agg.approx_count_distinct("amount"),
    "median": tw.agg.percentile("amount", 50),
    "about_median": tw.agg.approx_percentile("amount", 50),
    "best": tw.agg.top_k("amount", 3),
    "frequent": tw.agg.most_frequent("amount", 2),
    "middle": MIDDLE,
    "range": RANGE,
}


def asked(stream):
    keyed = stream.with_columns(at=pl.col("event_time").cast(pl.Int64)).key_by(
        nation=pl.col("country").str.to_uppercase()
    )
    return keyed.window(tw.windows.tumbling("1 min")).aggregate(**AGGREGATES)


def expected() -> dict[tuple[str, int], dict[str, Any]]:
    """By each aggregate's own definition, over all rows of a key and window."""
    found = {}
    for nation in ("FI", "SE"):
        for minute in (0, 1):
            rows = [
                {"amount": amount, "at": int(at * 1_000_000), "__time": int(at * 1_000_000)}
                for at, country, amount in ROWS
                if country.upper() == nation and at // 60 == minute
            ]
            found[nation, minute] = {name: one.of(rows) for name, one in AGGREGATES.items()}
    return found


def close(value: Any) -> Any:
    """Without what adding up in another order changes; lists of no order sorted."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else str(value)
    return sorted(map(str, value)) if isinstance(value, list) else value


def check(results: pl.DataFrame) -> None:
    found = {(row["nation"], row["window_start"].minute): row for row in results.iter_rows(named=True)}
    wanted = expected()
    assert found.keys() == wanted.keys()
    for place, values in wanted.items():
        got = {name: close(found[place][name]) for name in values}
        assert got == {name: close(value) for name, value in values.items()}, place


@pytest.fixture
def table(spark):
    frame = pl.DataFrame(ROWS, schema=["at", "country", "amount"], orient="row")
    times = (pl.col("at") * 1_000_000).cast(pl.Int64).cast(pl.Datetime("us", "UTC")).alias("event_time")
    return frame.select(times, "country", "amount")


def test_from_a_topic(spark, log, tmp_path):
    for first in range(0, len(ROWS), 30):
        put(log, *ROWS[first : first + 30])
    put(log, (500.0, "fi", 0))
    stream = tw.stream(log, INPUT, watermark=tw.watermarks.bounded("1 s", future=None))
    run = asked(stream).start(
        results=log.topic("analytics.all"), checkpoint=tmp_path / "run", spark=spark, available_now=True,
        max_events_per_batch=30,
    )  # fmt: skip
    run.wait()
    check(read(log, "analytics.all"))


def test_from_a_streaming_frame(spark, table, tmp_path):
    (tmp_path / "rows").mkdir()
    for number, part in enumerate(table.iter_slices(40)):
        part.write_parquet(tmp_path / "rows" / f"{number}.parquet")
    far = table.tail(1).with_columns(pl.col("event_time") + pl.duration(hours=1))
    far.write_parquet(tmp_path / "rows" / "far.parquet")
    schema = "event_time TIMESTAMP, country STRING, amount BIGINT"
    frame = spark.readStream.schema(schema).parquet(str(tmp_path / "rows"))
    result = asked(tw.stream(frame, time="event_time", watermark=tw.watermarks.bounded("1 s", future=None)))
    query = result.df().writeStream.format("memory").queryName("every_aggregate").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    found = pl.DataFrame(pl.from_arrow(spark.table("every_aggregate").toArrow()))
    spark.catalog.dropTempView("every_aggregate")
    check(found.filter(pl.col("output") == "results"))


def test_of_a_table(spark, table):
    frame = spark.createDataFrame(table.to_arrow(compat_level=pl.CompatLevel.oldest()))
    found = pl.DataFrame(pl.from_arrow(asked(tw.stream(frame, time="event_time")).df().toArrow()))
    check(found.filter(pl.col("output") == "results"))
