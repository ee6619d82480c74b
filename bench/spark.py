"""Spark's way in and out of the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.events import TOPIC, columns_of, encoded
from bench.figures import Figure, best_rate, percentiles
from bench.window_queries import batches_of, last_batch
from tidewheel.engine.datasource.reader_function import reader_function
from tidewheel.model import watermarks
from tidewheel.transport.events.event_pb2 import Event
from tidewheel.transport.events.registry import type_name
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import VehiclePosition

__all__ = ["batch_times", "reading"]

_TYPE = type_name(VehiclePosition)


def reading(frame: pl.DataFrame, folder: Path, spark: SparkSession, *, repeat: int) -> list[Figure]:
    """All columns decoded into a sink that does nothing: from the log, from Parquet, and one message at a time."""
    with open_log(folder / "read.tw") as log:
        for part in frame.iter_slices(1_000):
            log.append(TOPIC, encoded(columns_of(part)))
        frame.rename({"arrival_time": "ingestion_time"}).write_parquet(
            folder / "positions.parquet", row_group_size=250_000
        )
        log_frame = _reader(spark.read, log).load()
        count = frame.height
        from_log = best_rate(count, lambda: _drain(log_frame), repeat=repeat)
        parquet = best_rate(count, lambda: _drain(spark.read.parquet(str(folder / "positions.parquet"))), repeat=repeat)
        schema = ", ".join(f"{name} {kind}" for name, kind in log_frame.dtypes)
        singly = (
            spark.read.format("tidewheel")
            .option("log", log.address)
            .option("topics", TOPIC)
            .option("transform", reader_function(_one_at_a_time))
            .option("transformSchema", schema)
            .load()
        )
        single = best_rate(count, lambda: _drain(singly), repeat=repeat)
    group = "Reading all columns into a sink that does nothing"
    share = 100 * from_log / parquet
    return [
        Figure(group, "from the log", from_log, "events/s"),
        Figure(group, "Spark from Parquet", parquet, "events/s"),
        Figure(group, "log against Parquet", share, "%", "at least 20", share >= 20),
        Figure(group, "from the log, decoded one message at a time", single, "events/s"),
        Figure(group, "columns against one at a time", from_log / single, "x", "at least 4", from_log / single >= 4),
    ]


def batch_times(frame: pl.DataFrame, folder: Path, spark: SparkSession, *, measured: int) -> list[Figure]:
    """How long a small batch takes from the log to the log, beside Spark from files to files: so many of each, after as
    many that are told apart."""
    parts = list(frame.iter_slices(1_000))
    batches = [encoded(columns_of(part)) for part in parts]
    group = "A batch from the log to the log (source and sink alone)"
    with open_log(folder / "times.tw") as log:
        log.append(TOPIC, batches[0])
        copy = _reader(spark.readStream, log).load()
        query = _writer(copy, log, folder / "full", "copy.full")
        full = _measure(query, 1_000, lambda turn: log.append(TOPIC, batches[turn % len(parts)]), measured)
        idle = watermarks.bounded("1 s", idle="1 us", future=None).to_json()
        ticking = _reader(spark.readStream, log).option("watermark", json.dumps(idle)).option("tick", "1 us").load()
        empty = _measure(_writer(ticking, log, folder / "empty", "copy.empty"), 0, None, measured)
    files = folder / "files"
    files.mkdir()
    stage = folder / "stage"
    stage.mkdir()
    parts[0].write_parquet(files / "first.parquet")

    def put(turn: int) -> None:
        path = stage / f"{turn}.parquet"
        parts[turn % len(parts)].write_parquet(path)
        path.rename(files / path.name)

    schema = spark.read.parquet(str(files)).schema
    query = (
        spark.readStream.schema(schema)
        .parquet(str(files))
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "file-checkpoint"))
        .start()
    )
    spark_files = _measure(query, 1_000, put, measured)
    figures = []
    for name, times, aimed in (
        ("1,000 events", full, True),
        ("no events (the clock alone)", empty, True),
        ("1,000 events, Spark from Parquet files to Parquet files", spark_files, False),
    ):
        first, p50, p99 = _whole(times[:measured])[0], *_whole(times[measured:])
        figures += [
            Figure(group, f"{name}, p50", p50, "ms", "at most 100" if aimed else "", p50 <= 100 if aimed else None),
            Figure(group, f"{name}, p99", p99, "ms"),
            Figure(group, f"{name}, p50 of as many before, while Java compiles", first, "ms"),
        ]
    for name, phases in (
        ("tasks and the sink's commit", ("addBatch",)),
        ("Spark's two commits to the checkpoint", ("walCommit", "commitOffsets")),
        ("Spark's planning", ("queryPlanning",)),
        ("the source's planning", ("latestOffset", "getBatch")),
    ):
        p50, _ = percentiles([sum(parts.get(phase, 0.0) for phase in phases) for parts in full[measured:]])
        figures.append(Figure(group, f"of a batch of 1,000: {name}, p50", p50, "ms"))
    return figures


def _reader(read: Any, log: Log) -> Any:
    return read.format("tidewheel").option("log", log.address).option("topics", TOPIC).option("type", _TYPE)


def _writer(frame: DataFrame, log: Log, checkpoint: Path, topic: str) -> StreamingQuery:
    writer = frame.writeStream.format("tidewheel").option("log", log.address).option("topic", topic)
    return writer.option("type", _TYPE).option("checkpointLocation", str(checkpoint)).start()


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _measure(
    query: StreamingQuery, rows: int, feed: Callable[[int], object] | None, measured: int
) -> list[dict[str, float]]:
    """How long each phase of twice so many batches with so many rows took, in milliseconds. `feed` adds the rows of one
    batch, when all that was there before (as much as one batch) has been read."""
    sizes: dict[int, int] = {}
    times: dict[int, dict[str, float]] = {}
    fed = 1
    try:
        while len(times) < 2 * measured:
            # All batches again and again, where one waits for the next, would slow down what is measured.
            last = last_batch(query) if feed is not None else None
            for progress in batches_of(query) if feed is None else [last] if last is not None else []:
                sizes[progress["batchId"]] = progress["numInputRows"]
                if progress["numInputRows"] == rows:
                    times[progress["batchId"]] = progress["durationMs"]
            if feed is not None and sum(sizes.values()) == fed * rows:
                feed(fed)
                fed += 1
            if not query.isActive:
                raise RuntimeError(f"the query ended: {query.exception()}")
            time.sleep(0.01 if feed is not None else 1.0)
    finally:
        query.stop()
    return [times[batch] for batch in sorted(times)]


def _whole(times: list[dict[str, float]]) -> tuple[float, float]:
    """The 50th and the 99th percentile of what batches took."""
    return percentiles([phases["triggerExecution"] for phases in times])


def _one_at_a_time(batches: Iterator[Any], info: Any) -> Iterator[pa.RecordBatch]:
    """The plain way: one object for each message, one list for each column."""
    names = list(VehiclePosition.DESCRIPTOR.fields_by_name)
    for batch in batches:
        columns: dict[str, list[Any]] = {name: [] for name in ("event_time", "ingestion_time", *names)}
        for value in batch.columns.column("value").to_pylist():
            event = Event.FromString(value)
            message = VehiclePosition.FromString(event.details.value)
            columns["event_time"].append(event.event_time.ToMicroseconds())
            columns["ingestion_time"].append(event.ingestion_time.ToMicroseconds())
            for name in names:
                field = message.DESCRIPTOR.fields_by_name[name]
                present = not field.has_presence or message.HasField(name)
                columns[name].append(getattr(message, name) if present else None)
        yield pa.RecordBatch.from_pydict({name: _typed(name, values) for name, values in columns.items()})


def _typed(name: str, values: list[Any]) -> pa.Array:
    return pa.array(values, pa.timestamp("us", "UTC")) if name.endswith("_time") else pa.array(values)
