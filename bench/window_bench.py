"""What the parts of the windows benchmark share: the session, the data, and runs that more than one part needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.spark_bench import FEW, SparkBench
from bench.streams import Dataset, dataset
from bench.window_baselines import VARIANTS, spark_windows, with_settings
from bench.window_queries import REPEAT, Measured, best, drained, ours
from tidewheel.model.windows import tumbling

__all__ = ["Bench"]


class Bench(SparkBench):
    """Ours and Spark's own windows over the same events."""

    def __init__(self, spark: SparkSession, events: int, folder: Path, say: Callable[[str], object]) -> None:
        super().__init__(spark, events, folder, say)
        self.pair = cache(self._pair)

    def make(self, events: int, keys: int) -> Dataset:
        """Events of the benchmark's own type."""
        self.say(f"writing {events:,} events of {keys:,} keys")
        return dataset(self.folder, events, keys)

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

    def frame(self, data: Dataset, frame: DataFrame) -> Measured:
        """Any query."""
        return drained(frame, data, self.folder)

    def _pair(self, keys: int) -> dict[str, Measured]:
        """Tumbling windows of 10 s over so many keys, ours and Spark's; of few keys also Spark's own from the log."""
        data, small = self.data(keys), self.small
        windows = tumbling("10 s")
        assert self.settings is not None  # found before anything else is timed
        self.say(f"tumbling windows of {keys:,} keys")
        self.ours(small, ours(small, windows))
        self.spark_own(small, "10 seconds")
        sides = {
            "ours": partial(self.ours, data, ours(data, windows)),
            "spark": partial(self.spark_own, data, "10 seconds"),
        }
        if keys == FEW:
            sides["log"] = partial(self.spark_from_log, data, "10 seconds")
            self._warm_up({name: run for name, run in sides.items() if name != "spark"})
        return best(sides, repeat=6 if keys == FEW else 3)  # what many other figures are held against

    def _warm_up(self, sides: Mapping[str, Callable[[], Measured]]) -> None:
        """Java compiles what is run often. To find its settings Spark's own was run from files so many times: the
        others are run as often before anything counts."""
        for _ in range(REPEAT * len(self.variants)):
            for run in sides.values():
                run()
