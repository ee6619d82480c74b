"""All kinds of stages over streaming DataFrames and tables: process functions with timers, windows over windows with
retractions, triggers of the clock; odd times; and outputs in sinks of their own."""

from __future__ import annotations

import os
import sys
from typing import Any

import polars as pl
import pytest
from pyspark import cloudpickle

import tidewheel as tw
from tidewheel.model.process.process import DATETIME, Timer
from tidewheel.model.reference.process import ProcessReference

pytestmark = pytest.mark.long

# Spark's workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SECOND = 1_000_000
START = 1_760_000_000 * SECOND
SCHEMA = "event_time TIMESTAMP, key STRING, value BIGINT"
FILES: list[list[tuple[int, str, int]]] = [
    [(3, "a", 1), (7, "b", 2), (1, "a", 3)],
    [(12, "a", 4), (6, "b", 5)],
    [(30, "b", 6), (11, "a", 7), (8, "a", 8)],
    [(26, "a", 9), (28, "b", 10), (31, "c", 11), (2, "b", 16)],
    [(27, "a", 12), (60, "a", 13), (41, "b", 14)],
    [(200, "z", 15)],
]
"""Second, key and value of the rows of each file: a file is a batch."""
EAGER = tw.triggers.after_watermark(early=tw.triggers.each_batch(), late=tw.triggers.each_batch())


def frame_of(rows: list[tuple[int, str, int]]) -> pl.DataFrame:
    at = (pl.col("second") * SECOND + START).cast(pl.Datetime("us", "UTC")).alias("event_time")
    return pl.DataFrame(rows, schema=["second", "key", "value"], orient="row").select(at, "key", "value")


@pytest.fixture
def streamed(spark, tmp_path):
    """Runs what is asked of a stream of files; gives the rows of each output."""

    def run(pipeline: Any, files: list[pl.DataFrame], *, delay: str = "5 s") -> dict[str, pl.DataFrame]:
        folder = tmp_path / "rows"
        folder.mkdir()
        for number, frame in enumerate(files):
            path = folder / f"{number}.parquet"
            frame.write_parquet(path)
            os.utime(path, (START // SECOND + number, START // SECOND + number))  # Spark reads them in this order
        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
        rows = tw.stream(source, time="event_time", watermark=tw.watermarks.bounded(delay, future=None))
        query = (
            pipeline(rows).df(key_groups=2).writeStream.format("memory").queryName("staged").trigger(availableNow=True)
        )
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        found = pl.DataFrame(pl.from_arrow(spark.table("staged").toArrow()))
        spark.catalog.dropTempView("staged")
        return outputs(found)

    return run


def outputs(found: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of each output, with the columns that it has."""
    parts = {}
    for (name,), rows in found.group_by("output", maintain_order=True):
        others = [column for column in rows.columns if isinstance(rows.schema[column], pl.Struct)]
        parts[str(name)] = (
            rows.drop("output", *others) if name == "results" else rows.select(pl.col(name).struct.unnest())
        )
    return parts


def visits(events: pl.DataFrame, state: pl.DataFrame, clock: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The sum of events less than 10 s apart, reported when it is over."""
    news = events.group_by("key", maintain_order=True).agg(pl.col("value").sum().alias("more"), pl.last("event_time"))
    ended = state.filter("ends_at_due").select("key", event_time="ends_at", total="total")
    joined = news.join(state.drop("ends_at"), on="key", how="left", maintain_order="left")
    ends_at = (pl.col("event_time").cast(pl.Int64) + 10 * SECOND).cast(DATETIME)
    return ended, joined.select("key", total=pl.col("total").fill_null(0) + pl.col("more"), ends_at=ends_at)


def test_a_process_function_with_timers_gives_what_the_reference_gives(streamed):
    made: list[tw.Result] = []

    def pipeline(rows: tw.Stream) -> tw.Result:
        state = {"total": pl.Int64, "ends_at": Timer(after="10 s")}
        made.append(rows.key_by("key").process(visits, state=state, ttl="1 h"))
        return made[0]

    found = streamed(pipeline, [frame_of(rows) for rows in FILES])
    [stage] = made[0].stages
    reference = ProcessReference(stage.operation.process, stage.schema)
    results: list[Any] = []
    late: list[Any] = []
    highest: int | None = None
    for rows in [*FILES, []]:  # in each batch time moves first, by what the batches before held; then the rows come
        watermark = None if highest is None else highest - 5 * SECOND
        frame = frame_of(rows).with_columns(pl.col("event_time").cast(pl.Int64).alias("__time"))
        for some in (None, frame):
            step = reference.step(some, watermark=watermark, clock=0)
            results += [(row["key"], row["event_time"], row["total"]) for row in step["results"]]
            late += [(row["key"], row["value"], row["reason"]) for row in step["late"]]
        highest = max([START + second * SECOND for second, _, _ in rows] + [highest or 0])
    got = found["results"].select("key", "event_time", "total").rows()
    assert sorted(map(repr, got)) == sorted(map(repr, results))
    assert len(results) >= 4
    assert sorted(found["late"].select("key", "value", "late_reason").rows()) == sorted(late)
    assert late


def test_windows_over_windows_follow_retractions(streamed):
    def pipeline(rows: tw.Stream) -> tw.Result:
        tens = rows.key_by("key").window(tw.windows.tumbling("10 s"), lateness="1 h").trigger(EAGER)
        totals = tens.accumulate("retracting").aggregate(total=tw.agg.sum("value"), most=tw.agg.max("value"))
        minutes = totals.window(tw.windows.tumbling("1 min"), lateness="1 h").trigger(EAGER).accumulate("retracting")
        return minutes.aggregate(total=tw.agg.sum("total"), most=tw.agg.max("most"), tens=tw.agg.count())

    found = streamed(pipeline, [frame_of(rows) for rows in FILES])
    assert "late" not in found
    table: dict[Any, Any] = {}
    for row in found["results"].iter_rows(named=True):
        values = (row["total"], row["most"], row["tens"])
        if row["retraction"]:
            assert table.pop(row["window_start"]) == values
        else:
            assert row["window_start"] not in table, "a new result before the old one was retracted"
            table[row["window_start"]] = values
    every = pl.concat([frame_of(rows) for rows in FILES]).with_columns(
        pl.col("event_time").dt.truncate("10s").alias("ten")
    )
    tens = every.group_by("key", "ten").agg(pl.sum("value").alias("total"), pl.max("value").alias("most"))
    wanted = tens.group_by(pl.col("ten").dt.truncate("1m")).agg(pl.sum("total"), pl.max("most"), pl.len().alias("tens"))
    assert table == {start: (total, most, count) for start, total, most, count in wanted.rows()}
    assert found["results"]["retraction"].any()


def test_a_trigger_of_the_clock_fires_in_the_batches_that_come(streamed):
    def pipeline(rows: tw.Stream) -> tw.Result:
        early = tw.triggers.after_watermark(early=tw.triggers.every("1 ms"))
        return rows.key_by("key").window(tw.windows.tumbling("1 min")).trigger(early).aggregate(n=tw.agg.count())

    results = streamed(pipeline, [frame_of(rows) for rows in FILES])["results"]
    assert results.filter(pane_timing="EARLY").height > 0
    last = results.filter(pane_timing="ON_TIME").group_by("window_start").agg(pl.sum("n")).sort("window_start")
    every = pl.concat([frame_of(rows) for rows in FILES]).filter(pl.col("key") != "z")  # whose window stays open
    wanted = every.group_by(pl.col("event_time").dt.truncate("1m").alias("window_start")).len("n").sort("window_start")
    assert last.rows() == wanted.rows()


ODD = pl.DataFrame(
    {"at": [None, 9_000_000_000_000_000_000, -9_000_000_000_000_000_000, START], "value": [1, 2, 3, 4]}
).select(pl.col("at").cast(pl.Datetime("us", "UTC")).alias("event_time"), pl.lit("odd").alias("key"), "value")
REASONS = [(1, "no event time"), (2, "absurd event time"), (3, "absurd event time")]


def sums(rows: tw.Stream) -> tw.Result:
    return rows.key_by("key").window(tw.windows.tumbling("10 s")).aggregate(total=tw.agg.sum("value"))


def test_odd_times_in_a_stream_are_late_with_the_reason(streamed):
    found = streamed(sums, [ODD, frame_of([(100, "odd", 5)]), frame_of([(120, "odd", 6)])])
    assert sorted(found["late"].select("value", "late_reason").rows()) == REASONS
    assert found["results"]["total"].to_list() == [4, 5]


def test_odd_times_in_a_table_are_late_with_the_reason(spark):
    frame = spark.createDataFrame(ODD.to_arrow(compat_level=pl.CompatLevel.oldest()))
    found = outputs(pl.DataFrame(pl.from_arrow(sums(tw.stream(frame, time="event_time")).df().toArrow())))
    assert sorted(found["late"].select("value", "late_reason").rows()) == REASONS
    assert found["results"]["total"].to_list() == [4]


def test_each_output_can_go_to_a_sink_of_its_own(spark, tmp_path):
    (tmp_path / "rows").mkdir()
    for number, rows in enumerate(FILES):
        frame_of(rows).write_parquet(tmp_path / "rows" / f"{number}.parquet")
        os.utime(tmp_path / "rows" / f"{number}.parquet", (START // SECOND + number, START // SECOND + number))
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "rows"))
    result = sums(tw.stream(source, time="event_time", watermark=tw.watermarks.bounded("5 s", future=None)))

    def apart(batch, number):
        for output, columns in (("results", ["key", "total"]), ("late", ["late.key", "late.value"])):
            rows = batch.where(f"output = '{output}'").select(*columns)
            rows.write.mode("overwrite").parquet(str(tmp_path / output / f"batch={number}"))

    query = result.df().writeStream.foreachBatch(apart).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    total = spark.read.parquet(str(tmp_path / "results")).groupBy().sum("total").first()[0]
    late = spark.read.parquet(str(tmp_path / "late")).groupBy().sum("value").first()[0]
    assert total + late == sum(value for rows in FILES for _, key, value in rows if key != "z")
    assert late > 0
