"""What the parts of the windows benchmark share: the session, the data, and runs that more than one part needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tidewheel.bench.figures import Figure
from tidewheel.bench.profiles import inside, profile
from tidewheel.bench.streams import Dataset, dataset
from tidewheel.bench.window_baselines import VARIANTS, spark_windows, with_settings
from tidewheel.bench.window_queries import Measured, best, drained, ours, parcels
from tidewheel.engine.result import Result
from tidewheel.model.windows import fixed

__all__ = ["FEW", "MANY", "Bench", "judged"]

FEW, MANY = 2_000, 200_000
_SMALL = 40_000


class Bench:
    """Everything is made when it is first asked for, and once."""

    def __init__(self, spark: SparkSession, events: int, folder: Path, say: Callable[[str], object]) -> None:
        self.spark = spark
        self.events = events
        self.folder = folder
        self.say = say
        self.data = cache(self._data)
        self.pair = cache(self._pair)

    def _data(self, keys: int, events: int | None = None) -> Dataset:
        self.say(f"writing {events or self.events:,} events of {keys:,} keys")
        return dataset(self.folder, events or self.events, keys)

    @property
    def small(self) -> Dataset:
        """Enough to warm up with."""
        return self.data(FEW, min(_SMALL, self.events // 2))

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """The settings with which Spark's own aggregation is fastest."""
        return VARIANTS[min(self.variants, key=lambda name: self.variants[name].seconds)]

    @cached_property
    def variants(self) -> dict[str, Measured]:
        """Spark's own aggregation with each of the settings."""
        sides = {}
        for name, settings in VARIANTS.items():
            sides[name] = partial(self._spark, self.data(FEW), "10 seconds", settings)
        self.say("Spark's own with several settings")
        self._spark(self.small, "10 seconds", {})
        return best(sides)

    def _spark(self, data: Dataset, size: str, settings: Mapping[str, str], every: str | None = None) -> Measured:
        with with_settings(self.spark, settings):
            return drained(spark_windows(data.parquet(self.spark), size, every), data, self.folder)

    def spark_own(self, data: Dataset, size: str, every: str | None = None) -> Measured:
        """Spark's own aggregation, from Parquet."""
        return self._spark(data, size, self.settings, every)

    def spark_from_log(self, data: Dataset, size: str) -> Measured:
        """Spark's own aggregation, from the log."""
        with with_settings(self.spark, self.settings):
            return drained(spark_windows(data.from_log(self.spark), size), data, self.folder)

    def ours(self, data: Dataset, result: Result) -> Measured:
        """Ours from the log: the state operator's rows go straight to the sink."""
        return drained(parcels(self.spark, data, [result]), data, self.folder)

    def frame(self, data: Dataset, frame: DataFrame) -> Measured:
        """Any query."""
        return drained(frame, data, self.folder)

    def _pair(self, keys: int) -> dict[str, Measured]:
        """Fixed windows of 10 s over so many keys, ours and Spark's own; of few keys also Spark's own from the log."""
        data, small = self.data(keys), self.small
        windows = fixed("10 s")
        assert self.settings is not None  # found before anything else is timed
        self.say(f"fixed windows of {keys:,} keys")
        self.ours(small, ours(small, windows))
        self.spark_own(small, "10 seconds")
        sides = {
            "ours": partial(self.ours, data, ours(data, windows)),
            "spark": partial(self.spark_own, data, "10 seconds"),
        }
        if keys == FEW:
            self.spark_from_log(small, "10 seconds")
            sides["log"] = partial(self.spark_from_log, data, "10 seconds")
        return best(sides)

    def profiles(self, group: str, sides: Mapping[str, Measured], data: Dataset, result: Result) -> list[Figure]:
        """Where the time of these goes."""
        figures = []
        for name, measured in sides.items():
            figures += profile(f"{group}: a batch of {name}", measured.progress)
        return figures + inside(f"{group}: a batch of ours without Spark", data, result)


def judged(
    group: str,
    name: str,
    value: float,
    unit: str,
    *,
    least: float | None = None,
    most: float | None = None,
    aim: str = "",
) -> Figure:
    """A figure with its aim.

    >>> judged("speed", "ratio", 1.2, "x", least=1.5)
    Figure(group='speed', name='ratio', value=1.2, unit='x', aim='at least 1.5', met=False)
    """
    if least is not None:
        return Figure(group, name, value, unit, aim or f"at least {least:g}", value >= least)
    assert most is not None
    return Figure(group, name, value, unit, aim or f"at most {most:g}", value <= most)
