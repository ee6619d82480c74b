"""Positions of vehicles for statements, as rows, as a table, as files that a stream reads one by one, and in a log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from tidewheel.transport.events import event_pb2
from tidewheel.transport.events.codec import encode_columns
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.types import publish_types

SECOND = 1_000_000
START = 1_760_000_000 * SECOND
TIME = pl.Datetime("us", "UTC")
COLUMNS = "operator BIGINT, vehicle STRING, event_time TIMESTAMP, speed DOUBLE, acc DOUBLE"
TOPIC = "input.position"

EMERGENCY_STOP = """
    SELECT * FROM positions MATCH_RECOGNIZE (
        PARTITION BY operator, vehicle ORDER BY event_time
        MEASURES FIRST(F.speed) - LAST(S.speed) AS drop
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (F B+ S) WITHIN INTERVAL '10' SECOND
        DEFINE F AS speed >= 10, B AS acc < 0, S AS speed < 1)
"""

Row = tuple[int | None, str | None, float | None, float, float]
"""Operator, vehicle, second, speed, acceleration."""

BATCHES: list[list[Row]] = [
    [(1, "a", 2, 6.0, -6.0), (1, "a", 1, 12.0, 0.0), (1, "b", 1, 20.0, 0.0), (None, "a", 3, 11.0, 0.0)],
    [(1, "a", 4, 0.5, -1.5), (1, "a", 3, 2.0, -4.0), (1, "b", 4, 9.0, -4.0), (None, "a", 4, 5.0, -6.0)],
    [(None, "a", 5, 0.0, -5.0), (1, "b", 14, 0.0, -1.0), (2, "a", 12, 10.0, 0.0), (2, "a", 14, 0.0, -5.0)],
    [(2, "a", 13, 5.0, -5.0), (1, "c", 30, 10.0, 0.0), (1, "c", 33, 0.5, -2.0), (1, "c", 32, 4.0, -6.0)],
    [(1, "z", 60, 1.0, 0.0)],
]
"""Each is a batch; rows are up to three seconds late."""
STOPS = [(None, "a", 11.0), (1, "a", 11.5), (1, "c", 9.5), (2, "a", 10.0)]
"""What the emergency stop finds: b took longer than ten seconds."""


def frame_of(rows: Sequence[Row]) -> pl.DataFrame:
    names = ["operator", "vehicle", "event_time", "speed", "acc"]
    schema = dict(zip(names, [pl.Int64, pl.String, pl.Float64, pl.Float64, pl.Float64], strict=True))
    frame = pl.DataFrame(list(rows), schema=schema, orient="row")
    return frame.with_columns((pl.col("event_time") * SECOND + START).cast(pl.Int64).cast(TIME))


def table(spark: SparkSession, batches: Sequence[Sequence[Row]] = BATCHES) -> DataFrame:
    """All rows at once."""
    rows = frame_of([row for batch in batches for row in batch])
    return spark.createDataFrame(rows.to_arrow(), COLUMNS)


def files(spark: SparkSession, folder: Path, batches: Sequence[Sequence[Row]] = BATCHES) -> DataFrame:
    """A stream that reads a file a batch."""
    folder.mkdir()
    for number, rows in enumerate(batches):
        path = folder / f"{number}.parquet"
        frame_of(rows).write_parquet(path)
        os.utime(path, (START // SECOND + number, START // SECOND + number))  # Spark reads them in this order
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder))


def put(log: Log, batches: Sequence[Sequence[Row]] = BATCHES) -> None:
    """A block of the log for each batch."""
    types = TypeRegistry()
    types.register(event_pb2)
    for rows in batches:
        frame = frame_of(rows)
        message = frame.drop("event_time")
        columns = message.to_arrow(compat_level=pl.CompatLevel.oldest()).schema
        name = define_message(types, "position", columns)
        publish_types(log, types, [name])
        times = frame["event_time"].to_arrow()
        values = encode_columns(name, message, event_time=times, registry=types)
        log.append(TOPIC, records(values, event_times=times))


def drained(frame: DataFrame, name: str, folder: Path) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """The rows of a streaming DataFrame, run until all is read, and what was observed, added up."""
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    counts: dict[str, int] = {}
    for progress in query.recentProgress:
        for observed in progress["observedMetrics"].values():
            for what, count in observed.asDict().items():
                counts[what] = counts.get(what, 0) + count
    rows = [tuple(row) for row in frame.sparkSession.table(name).collect()]
    frame.sparkSession.catalog.dropTempView(name)
    return sorted(rows, key=repr), counts


def sorted_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)
