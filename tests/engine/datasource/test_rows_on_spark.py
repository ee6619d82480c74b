"""Rows without a message type of anybody's: into the log, through windows, and out of Spark into the log."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone

import polars as pl
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import tidewheel as tw
from tests.engine.topic_frames import values
from tidewheel.engine.datasource.sink import StreamSink
from tidewheel.engine.spark.arrow_schema import spark_schema
from tidewheel.engine.spark.worker import registry_for
from tidewheel.errors import DefinitionError
from tidewheel.transport.events.codec import decode_columns
from tidewheel.transport.topics.materialize import materialize

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
TIME = pa.timestamp("us", "UTC")


def order(second, user, amount, **more):
    return {"ts": NOON + timedelta(seconds=second), "user": user, "amount": amount, **more}


def read(log, topic, kind):
    columns = decode_columns(kind, pa.array(values(log, topic)), registry=registry_for(log.address, kind)).columns
    return pl.DataFrame(pl.from_arrow(columns))


def test_rows_go_through_windows_and_a_new_column_is_read_too(spark, log, tmp_path):
    log.append_rows("input.order", [order(second, "anna", 1.0) for second in range(12)], time="ts", key="user")
    log.append_rows("input.order", pl.DataFrame([order(30, "ben", 5.0, city="Turku")]), time="ts", key="user")
    sums = (
        tw.stream(log, "input.order", watermark=tw.watermarks.bounded("1 s"))
        .with_columns(city=pl.col("city").fill_null("unknown"))
        .key_by("user")
        .window(tw.windows.tumbling("10 s"))
        .aggregate(total=tw.agg.sum("amount"), cities=tw.agg.count_distinct("city"))
    )
    sums.start(results=log.topic("analytics.sums"), checkpoint=tmp_path / "c", available_now=True).wait()
    found = materialize(log, "analytics.sums").rows
    assert sorted(found.select("user", "total", "cities").rows()) == [("anna", 2.0, 1), ("anna", 10.0, 1)]
    static = spark.createDataFrame([("cid", NOON)], "user string, ts timestamp")
    log.append_rows("input.order", static, time="ts")
    assert read(log, "input.order", "tidewheel.results.Input_Order")["user"].to_list()[-1] == "cid"


def test_a_dataframe_is_written_with_a_type_made_of_its_columns(spark, log):
    frame = spark.createDataFrame(
        [("anna", NOON, {"lat": 60.2}, ["a"]), ("ben", NOON, None, None)],
        "user string, ts timestamp, at struct<lat: double>, tags array<string>",
    ).coalesce(1)
    writer = frame.write.format("tidewheel").option("log", log.address).option("topic", "input.order")
    writer.option("time", "ts").option("key", "user").mode("append").save()
    more = frame.select("user", f.lit(7).alias("n"), f.col("ts").alias("event_time")).limit(1)
    more.write.format("tidewheel").option("log", log.address).option("topic", "input.order").mode("append").save()
    found = read(log, "input.order", "tidewheel.results.Input_Order")
    assert found.select("user", "at", "tags", "n").rows() == [
        ("anna", {"lat": 60.2}, ["a"], None),
        ("ben", None, [], None),
        ("anna", None, [], 7),
    ]
    assert found["event_time"].to_list() == [NOON] * 3
    assert found["ingestion_time"].null_count() == 0
    (first, *_) = log.read("input.order", 0, 0)
    assert first.records["key"].to_pylist() == [b"anna", b"ben"]
    again = spark.read.format("tidewheel").option("log", log.address).option("topics", "input.order")
    assert again.option("type", "tidewheel.results.Input_Order").load().where("n = 7").count() == 1
    with pytest.raises(PySparkException, match=r"column 'n' is of another type \(int32, not string\)"):
        frame.select("ts", f.lit("seven").alias("n")).write.format("tidewheel").option("log", log.address).option(
            "topic", "input.order"
        ).option("time", "ts").mode("append").save()


def test_a_stream_writes_each_batch_once_and_keeps_its_type(spark, log, tmp_path):
    for number in range(4):
        rows = [order(number * 10 + second, "anna", float(second)) for second in range(10)]
        log.append_rows("input.order", rows, time="ts")
    source = (
        spark.readStream.format("tidewheel")
        .option("log", log.address)
        .option("topics", "input.order")
        .option("type", "tidewheel.results.Input_Order")
        .option("maxEventsPerBatch", 20)
        .load()
    )

    def write(frame):
        writer = frame.writeStream.format("tidewheel").option("log", log.address).option("topic", "out")
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        writer.start().awaitTermination()

    write(source.select("event_time", "amount"))
    before = values(log, "out")
    assert len(before) == 40
    # As after a crash between the sink's commit and Spark's: the last batch is run again.
    for name in ("1", ".1.crc"):
        (tmp_path / "c" / "commits" / name).unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "other", ignore_errors=True)
    log.append_rows("input.order", [order(50, "ben", 0.5)], time="ts")
    write(source.select("event_time", "amount", "user"))
    assert values(log, "out")[:40] == before
    assert read(log, "out", "tidewheel.results.Out").select("amount", "user").rows()[39:] == [(9.0, None), (0.5, "ben")]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"ts": TIME, "x": pa.int32()}, {}, r"which column has the event time\? Say .option\(\"time\""),
        ({"ts": TIME, "x": pa.int32()}, {"time": "at"}, "which column has the event time"),
        ({"ts": TIME, "x": pa.int32()}, {"time": "ts", "topic": ""}, 'Give the option "topic"'),
        ({"event_time": TIME, "_topic": pa.string()}, {"topic": ""}, 'Give the option "topic"'),
        ({"event_time": TIME, "x": pa.date32()}, {}, r"out\.x: date32\[day\] has no counterpart"),
        ({"event_time": TIME, "x": pa.int32()}, {"key": "user"}, "key names a column 'user'"),
        ({"event_time": TIME, "vehicle": pa.int32()}, {"time": "event_time", "type": "a.B"}, 'rows without "type"'),
        ({"ts": TIME, "value": pa.float64()}, {}, "which column has the event time"),
    ],
)
def test_rows_that_cannot_be_events_are_refused_when_the_query_is_defined(log, columns, options, message):
    with pytest.raises(DefinitionError, match=message):
        StreamSink({"log": log.address, "topic": "out", **options}, spark_schema(pa.schema(columns)), overwrite=False)
    assert "out" not in [info.name for info in log.topics()] or not values(log, "out")


def test_a_streaming_dataframe_is_no_rows(spark, log):
    with pytest.raises(DefinitionError, match=r"writeStream\.format"):
        log.append_rows("input.order", spark.readStream.format("rate").load(), time="timestamp")
