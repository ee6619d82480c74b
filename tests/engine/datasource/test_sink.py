"""DataFrames to topics, each batch once."""

from __future__ import annotations

import os
import shutil
import zlib
from datetime import datetime, timezone

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from tests.engine.engine_data import START, positions
from tests.engine.topic_frames import CELL, POSITION, cells, decoded, order_type, reader, values, write_stream
from tidewheel.engine.datasource.sink import BatchSink, StreamSink
from tidewheel.engine.spark.arrow_schema import spark_schema
from tidewheel.errors import LogError, TidewheelError
from tidewheel.model.time import now
from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import TypeRegistry, types
from tidewheel.transport.open_log import open_log


def test_rows_become_events(spark, log, tmp_path):
    log.append("a", positions(range(100)))
    began = now()
    write_stream(cells(reader(spark, log, stream=True)), log, tmp_path / "c", key="operator,vehicle")
    events = [codec.decode(value) for value in values(log, "out")]
    assert sorted(codec.unpack(event).vehicle for event in events) == list(range(100))
    seventh = next(event for event in events if codec.unpack(event).vehicle == 7)
    assert seventh.event_time.ToMicroseconds() == START + 7_000_000
    assert seventh.ingestion_time.ToMicroseconds() >= began, "rows that bring none get that of their writing"
    keys = [key for batch in log.read("out", 0, 0) for key in batch.records["key"].to_pylist()]
    assert b"1/7" in keys
    assert {batch.type for batch in log.read("out", 0, 0)} == {CELL}


def test_a_batch_that_is_run_again_is_written_once_and_has_the_same_bytes(spark, log, tmp_path):
    for number in range(4):
        log.append("a", positions(range(number * 50, number * 50 + 50)))
    clocked = reader(spark, log, stream=True, maxEventsPerBatch=100, metadata="_clock").select(
        "event_time", f.col("_clock").alias("ingestion_time"), f.col("vehicle").cast("long").alias("cell"), "vehicle"
    )
    write_stream(clocked, log, tmp_path / "c")
    before = values(log, "out")
    assert len(before) == 200
    # As after a crash between the sink's commit and Spark's: the last batch is run again.
    for name in ("1", ".1.crc"):
        (tmp_path / "c" / "commits" / name).unlink(missing_ok=True)
    again = tmp_path / "again"
    shutil.copytree(tmp_path / "c", again)
    write_stream(clocked, log, tmp_path / "c")
    assert values(log, "out") == before
    # What was run again: a sink that does not know the batch yet gets it.
    with open_log(tmp_path / "other.tw") as other:
        write_stream(clocked, other, again)
        assert values(other, "out") == before[100:]


def test_a_new_query_is_not_taken_for_a_repetition(spark, log, tmp_path):
    log.append("a", positions(range(10)))
    for folder in ("one", "two"):
        write_stream(cells(reader(spark, log, stream=True)), log, tmp_path / folder)
    assert len(values(log, "out")) == 20


def test_rows_go_to_the_topic_that_they_name(spark, log, tmp_path):
    log.append("a", positions(range(10)))
    frame = cells(reader(spark, log, stream=True)).withColumn(
        "_topic", f.when(f.col("vehicle") < 3, "few").when(f.col("vehicle") < 5, None).otherwise("many")
    )
    write_stream(frame, log, tmp_path / "c", topic="rest")
    counts = {topic: len(values(log, topic)) for topic in ("few", "rest", "many")}
    assert counts == {"few": 3, "rest": 2, "many": 5}


def test_a_dataframe_is_appended_as_a_whole(spark, log):
    log.append("a", positions(range(10)))
    writer = cells(reader(spark, log)).write.format("tidewheel").option("log", log.address)
    writer.option("topic", "out").option("type", CELL).mode("append").save()
    assert sorted(message.vehicle for message in decoded(log, "out")) == list(range(10))


def test_raw_values_are_written_as_they_are(spark, log):
    frame = spark.createDataFrame([(b"one", b"k"), (b"two", None)], "value binary, _key binary").coalesce(1)
    frame.write.format("tidewheel").option("log", log.address).option("topic", "raw").mode("append").save()
    (batch,) = log.read("raw", 0, 0)
    assert batch.records["value"].to_pylist() == [b"one", b"two"]
    assert batch.records["key"].to_pylist() == [b"k", None]


TIME = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"event_time": TIME, "vehicle": pa.int32()}, {"topic": ""}, "where to"),
        ({"event_time": TIME, "latitude": pa.float64()}, {}, "no field 'latitude'"),
        ({"vehicle": pa.int32()}, {}, "event_time"),
        ({"event_time": TIME, "vehicle": pa.int32()}, {"key": "operator"}, "'operator'"),
        ({"event_time": TIME, "vehicle": pa.int32()}, {"type": "no.such.Type"}, r"no\.such\.Type"),
        ({"event_time": TIME, "vehicle": pa.int32()}, {"kye": "vehicle"}, "no option 'kye'"),
    ],
)
def test_rows_that_do_not_fit_are_refused(log, columns, options, message):
    given = {"log": log.address, "topic": "out", "type": CELL, **options}
    with pytest.raises(TidewheelError, match=message):
        StreamSink(given, spark_schema(pa.schema(columns)), overwrite=False)


def test_a_refusal_comes_before_the_first_row_is_written(spark, log, tmp_path):
    log.append("a", positions(range(3)))
    with pytest.raises(PySparkException, match="no field 'lat2'"):
        write_stream(reader(spark, log, stream=True).selectExpr("event_time", "lat as lat2"), log, tmp_path / "c")
    assert "out" not in [info.name for info in log.topics()]


def test_overwriting_a_topic_is_refused(spark, log):
    log.append("a", positions(range(3)))
    writer = cells(reader(spark, log)).write.format("tidewheel").option("log", log.address)
    with pytest.raises(PySparkException, match="append"):
        writer.option("topic", "out").option("type", CELL).mode("overwrite").save()


def test_the_type_of_what_was_written_is_in_the_log(spark, log, tmp_path):
    log.append("a", positions(range(3)))
    write_stream(cells(reader(spark, log, stream=True)), log, tmp_path / "c")
    assert POSITION not in [message.name for message in decoded(log, "__types")]
    assert CELL in [message.name for message in decoded(log, "__types")]


ORDERS = {"event_time": TIME, "article": pa.string(), "shelf": pa.string()}


def sink_of(kind, log, message, **options):
    given = {"log": log.address, "topic": "orders", "type": message, **options}
    return kind(given, spark_schema(pa.schema(ORDERS)), overwrite=False)


def rows(*given):
    return iter([pa.RecordBatch.from_pylist([dict(zip(ORDERS, row, strict=True)) for row in given], pa.schema(ORDERS))])


def test_a_type_that_only_the_log_knows_can_be_written(log):
    order, registry = order_type("shop1"), TypeRegistry()
    registry.register(order, log=log)
    sink = sink_of(BatchSink, log, "shop1.Order")
    sink.commit([sink.write(rows((datetime.now(timezone.utc), "tea", "3")))])
    (message,) = [codec.unpack(codec.decode(value), registry=registry) for value in values(log, "orders")]
    assert message.article == "tea"


def test_a_part_of_the_key_that_is_null_is_empty(log):
    TypeRegistry().register(order_type("shop2"), log=log)
    sink = sink_of(BatchSink, log, "shop2.Order", key="article,shelf")
    at = datetime.now(timezone.utc)
    sink.commit([sink.write(rows((at, "tea", "3"), (at, "tea", None), (at, None, "3")))])
    (batch,) = log.read("orders", 0, 0)
    assert batch.records["key"].to_pylist() == [b"tea/3", b"tea/", b"/3"]


def test_a_batch_of_a_stream_without_the_id_of_its_query_is_refused(log):
    TypeRegistry().register(order_type("shop3"), log=log)
    sink = sink_of(StreamSink, log, "shop3.Order")
    with pytest.raises(LogError, match="batch 4 of a stream to orders came without the id of its query"):
        sink.commit([sink.write(rows((datetime.now(timezone.utc), "tea", "3")))], 4)
    assert "orders" not in [info.name for info in log.topics()]


@pytest.mark.parametrize("fsync", ["true", "false"])
def test_a_checkpoint_is_on_the_disk_before_the_log_counts_on_it_whoever_made_the_session(
    log, tmp_path, monkeypatch, fsync
):
    TypeRegistry().register(order_type(f"shop5{fsync}"), log=log)
    for name in ("offsets/6", "offsets/7", "offsets/.7.crc", "commits/6", "commits/7"):
        (tmp_path / "c" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "c" / name).write_text("v1\n{}\n{}")
    (tmp_path / "c" / "offsets" / ".7.crc").write_bytes(
        b"crc\0" + (512).to_bytes(4, "big") + zlib.crc32(b"v1\n{}\n{}").to_bytes(4, "big")
    )
    sink = sink_of(StreamSink, log, f"shop5{fsync}.Order", checkpointLocation=str(tmp_path / "c"), fsync=fsync)
    message = sink.write(rows((datetime.now(timezone.utc), "tea", "3")))
    message.query = "query"
    forced, fsync_of_the_system = [], os.fsync

    def note(handle):
        assert not [info for info in log.topics() if info.name == "orders"], "before, not after"
        forced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), tmp_path / "c"))
        fsync_of_the_system(handle)

    monkeypatch.setattr(os, "fsync", note)
    sink.commit([message], 7)
    wanted = ["offsets/7", "offsets", "commits/6", "commits"]
    assert forced == (wanted if fsync == "true" else [])
    assert len(values(log, "orders")) == 1


def test_a_type_of_the_users_own_goes_to_a_topic_and_back(spark, log):
    order = order_type("shop4")
    types.register(order, log=log)
    frame = spark.sql("SELECT timestamp'2026-01-01' AS event_time, 'tea' AS article")
    writer = frame.write.format("tidewheel").option("log", log.address).option("topic", "orders").mode("append")
    writer.option("type", "shop4.Order").save()
    assert [message.article for message in decoded(log, "orders")] == ["tea"]
    assert [row.article for row in reader(spark, log, topics="orders", of="shop4.Order").collect()] == ["tea"]


def test_a_type_that_only_the_users_program_knows_is_refused_with_what_to_do(spark, log):
    types.register(order_type("shop5"))
    log.create_topic("orders")
    with pytest.raises(PySparkException, match=r"types\.register\(\.\.\., log=log\)"):
        reader(spark, log, topics="orders", of="shop5.Order")
