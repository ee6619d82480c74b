"""Batches as time goes by: for a streaming DataFrame whose query waits for the clock.

Spark runs no batch while no rows come, so a trigger or a timer in processing time would wait for the next ones. Beside
the rows, a source of Spark's own therefore gives one row a second, from which every bucket hears that time has passed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidewheel.engine.workers import settle

__all__ = ["ticks"]


def ticks(spark: SparkSession, told: pa.RecordBatch, schema: str) -> DataFrame:
    """A stream that gives these rows about once a second."""
    data = told.serialize().to_pybytes()
    columns = told.schema

    def tick(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        if sum(batch.num_rows for batch in batches):
            yield pa.ipc.read_record_batch(pa.py_buffer(data), columns)

    clock = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    return clock.mapInArrow(tick, schema)
