"""Events to aggregate in windows: the same in a log and in Parquet files, cut into the same batches."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidewheel.model.time import Instant
from tidewheel.transport.events.codec import encode_columns
from tidewheel.transport.events.registry import types
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.types import publish_types

__all__ = [
    "BATCHES",
    "DELAY",
    "START",
    "TOPIC",
    "Dataset",
    "append",
    "dataset",
    "readings",
    "reading_type",
    "write_file",
]

BATCHES = 8
TOPIC = "input.reading"
DELAY = "1 second"
"""How far event times are out of order at most."""
START: Instant = 1_760_000_000_000_000
_SPAN = 100_000_000  # µs of event time in a batch: about ten windows of 10 s close in each
_DISORDER = 900_000
_BLOCK = 5_000


@dataclass(frozen=True)
class Dataset:
    """So many events of so many keys, in a log and in one Parquet file for each batch.

    topic, kind: where they are in the log, and their message type; columns: those in the files.
    """

    events: int
    keys: int
    log: Log
    files: Path
    topic: str = TOPIC
    kind: str = field(default_factory=lambda: reading_type())
    columns: str = "event_time TIMESTAMP, key STRING, value BIGINT"

    @property
    def per_batch(self) -> int:
        """Events in a batch."""
        return self.events // BATCHES

    def parquet(self, spark: SparkSession) -> DataFrame:
        """The files as a stream, one in each batch."""
        reader = spark.readStream.schema(self.columns)
        return reader.option("maxFilesPerTrigger", 1).parquet(str(self.files))

    def from_log(self, spark: SparkSession) -> DataFrame:
        """The topic as a stream of columns."""
        return (
            spark.readStream.format("tidewheel")
            .option("log", self.log.address)
            .option("topics", self.topic)
            .option("type", self.kind)
            .option("maxEventsPerBatch", self.per_batch)
            .load()
        )


def reading_type() -> str:
    """The message type of the events."""
    return define_message(types, "bench-reading", pa.schema({"key": pa.string(), "value": pa.int64()}))


def readings(count: int, keys: int, *, first: Instant = START, span: int = _SPAN, seed: int = 1) -> pl.DataFrame:
    """So many events over a span of event time, out of order by less than a second, with keys drawn evenly: the
    hardest case for aggregating before the shuffle.

    >>> frame = readings(1_000, 10)
    >>> frame.columns, frame["key"].n_unique(), frame["event_time"].is_sorted()
    (['event_time', 'key', 'value'], 10, False)
    """
    random = np.random.default_rng(seed)
    times = first + np.arange(count) * span // count + random.integers(0, _DISORDER, count)
    frame = pl.DataFrame(
        {
            "event_time": times.astype(np.int64),
            "key": random.integers(0, keys, count),
            "value": random.integers(0, 1_000, count),
        }
    )
    return frame.select(
        pl.col("event_time").cast(pl.Datetime("us", "UTC")), pl.format("key-{}", pl.col("key")).alias("key"), "value"
    )


def append(log: Log, frame: pl.DataFrame, *, block: int = _BLOCK) -> None:
    """Put events into the log's topic, in blocks."""
    for part in frame.iter_slices(block):
        times = part["event_time"].cast(pl.Int64).to_arrow()
        values = encode_columns(reading_type(), part.select("key", "value"), event_time=times, ingestion_time=times)
        log.append(TOPIC, records(values, event_times=times, type=reading_type()))


def dataset(folder: Path, events: int, keys: int) -> Dataset:
    """Write events once, to be read many times."""
    files = folder / f"{events}-{keys}.files"
    log = open_log(folder / f"{events}-{keys}.tw")
    publish_types(log, types, [reading_type()])
    per_batch = events // BATCHES
    for batch in range(BATCHES):
        frame = readings(per_batch, keys, first=START + batch * _SPAN, seed=batch)
        append(log, frame)
        write_file(files, batch, frame)
    return Dataset(events, keys, log, files)


def write_file(folder: Path, batch: int, frame: pl.DataFrame) -> None:
    """The file of a batch."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{batch}.parquet"
    # Several row groups, so that Spark can read a file with all cores.
    frame.write_parquet(path, row_group_size=max(1, frame.height // 4))
    os.utime(path, (START / 1_000_000 + batch, START / 1_000_000 + batch))  # files are read oldest first
