"""What the parts of a benchmark beside Spark's own operators share: the session and the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from bench.figures import Figure
from bench.profiles import inside, profile
from bench.streams import Dataset
from bench.window_queries import Measured, drained, exchange_batches
from tidewheel.engine.execution.session import session
from tidewheel.engine.streams.result import Result

__all__ = ["FEW", "MANY", "SparkBench", "started_spark"]

FEW, MANY = 2_000, 200_000
"""Keys."""


@contextmanager
def started_spark() -> Iterator[SparkSession]:
    """A session for all of a set's parts."""
    spark = session()
    # A small file may be read by several tasks: that is faster for Spark.
    spark.conf.set("spark.sql.files.openCostInBytes", "65536")
    try:
        yield spark
    finally:
        spark.stop()


class SparkBench(ABC):
    """Everything is made when it is first asked for, and once."""

    warm_up = 40_000
    """Events that are enough to warm up with."""

    def __init__(self, spark: SparkSession, events: int, folder: Path, say: Callable[[str], object]) -> None:
        self.spark = spark
        self.events = events
        self.folder = folder
        self.say = say
        self.data = cache(self._data)

    def _data(self, keys: int, events: int | None = None) -> Dataset:
        return self.make(events or self.events, keys)

    @abstractmethod
    def make(self, events: int, keys: int) -> Dataset:
        """Write so many events of so many keys."""

    @property
    def small(self) -> Dataset:
        """Enough to warm up with."""
        return self.data(FEW, min(self.warm_up, self.events // 2))

    def ours(self, data: Dataset, result: Result) -> Measured:
        """Ours from the log: the state operator's rows go straight to the sink."""
        return drained(exchange_batches(self.spark, data, [result]), data, self.folder)

    def profiles(self, group: str, sides: Mapping[str, Measured], data: Dataset, result: Result) -> list[Figure]:
        """Where the time of these goes."""
        figures = []
        for name, measured in sides.items():
            figures += profile(f"{group}: a batch of {name}", measured.progress)
        return figures + inside(f"{group}: a batch of ours without Spark", data, result)
