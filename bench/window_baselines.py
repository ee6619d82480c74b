"""Spark's own windowed aggregation: what the figures are measured beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.streams import DELAY

__all__ = ["VARIANTS", "spark_windows", "with_settings"]

VARIANTS: Mapping[str, Mapping[str, str]] = {
    "as the session is": {},
    "one shuffle partition": {"spark.sql.shuffle.partitions": "1"},
    "without counting state rows": {"spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false"},
}
"""Settings with which Spark may be faster; it gets the fastest."""


def spark_windows(frame: DataFrame, size: str, every: str | None = None) -> DataFrame:
    """Count and sum for each key and window, once the watermark has passed the window."""
    place = F.window("event_time", size, every) if every else F.window("event_time", size)
    grouped = frame.withWatermark("event_time", DELAY).groupBy(place, "key")
    return grouped.agg(F.count("*").alias("events"), F.sum("value").alias("total"))


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """These settings for the queries started meanwhile."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
