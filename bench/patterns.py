"""The figures of event patterns, measured beside a function by hand and Spark's own windows, in the same run.

All sides run in one warm session, with state in RocksDB and its changelog in the checkpoint, over the same events in
eight batches, into a sink that does nothing. A time is the sum of the batches' `triggerExecution` without the first; of
two runs in turn each side's faster counts (the function by hand runs once). Ours hands the state operator's rows to the
sink as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

from bench.figures import Figure, with_aim
from bench.parts import Part, run_parts
from bench.pattern_baselines import by_hand, windows_of
from bench.pattern_room import room
from bench.positions import position_dataset
from bench.spark_bench import FEW, MANY, SparkBench, started_spark
from bench.streams import Dataset
from bench.window_queries import Measured, best, drained
from tidewheel.engine.streams.keyed_stream import KeyedStream
from tidewheel.engine.streams.result import Result
from tidewheel.engine.streams.stream_factory import stream
from tidewheel.model import watermarks
from tidewheel.patterns import Pattern, pattern
from tidewheel.patterns.measures import first, last
from tidewheel.patterns.measures import min as least

__all__ = ["EVENTS", "PARTS", "emergency_stop", "measure", "most_can_start"]

EVENTS = 2_000_000
_RATE = 500_000


def measure(
    events: int, folder: Path, say: Callable[[str], object], *, only: Sequence[str] = ()
) -> Iterator[list[Figure]]:
    """The figures of these parts, or of all, part by part."""
    with started_spark() as spark:
        yield from run_parts(PARTS, Bench(spark, events, folder, say), only)


def emergency_stop(data: Dataset) -> Result:
    """Vehicles that stop within 10 s from 10 m/s or more, strictly braking, once each."""
    stop: Pattern = (
        pattern("fast", pl.col("speed") >= 10)
        .next("braking", pl.col("acc") < 0)
        .one_or_more()
        .consecutive()
        .greedy()
        .next("standing", pl.col("speed") < 1)
        .within("10 s")
        .after_match("skip past last")
    )
    measures = {
        "fall": first("fast.speed") - last("standing.speed"),
        "hardest": least("braking.acc"),
        "lat": last("standing.lat"),
        "lon": last("standing.lon"),
        "mode": last("standing.mode"),
    }
    return _vehicles(data).match(stop, measures=measures)


def most_can_start(data: Dataset) -> Result:
    """Vehicles that stand within 10 s of an event at which they did not: most events begin such a match."""
    soon = pattern("moving", pl.col("speed") >= 1).followed_by("standing", pl.col("speed") < 1).within("10 s")
    return _vehicles(data).match(soon, measures={"from": first("moving.speed")})


def _vehicles(data: Dataset) -> KeyedStream:
    source = stream(data.log, data.topic, type=data.kind, watermark=watermarks.bounded("1 s"))
    return source.key_by("operator", "vehicle")


class Bench(SparkBench):
    """Patterns, the function by hand and Spark's windows over the same positions."""

    warm_up = 80_000

    def __init__(self, spark: SparkSession, events: int, folder: Path, say: Callable[[str], object]) -> None:
        super().__init__(spark, events, folder, say)
        self.windows = cache(self._windows)

    def make(self, events: int, keys: int) -> Dataset:
        """Positions of so many vehicles."""
        self.say(f"writing {events:,} positions of {keys:,} vehicles")
        return position_dataset(self.folder, events, keys)

    def by_hand(self, data: Dataset) -> Measured:
        """The function by hand, from the log."""
        return drained(by_hand(data.from_log(self.spark)), data, self.folder)

    def windows_from_log(self, data: Dataset) -> Measured:
        """Spark's windows, from the log."""
        return drained(windows_of(data.from_log(self.spark)), data, self.folder)

    def windows_from_files(self, data: Dataset) -> Measured:
        """Spark's windows, from Parquet."""
        return drained(windows_of(data.parquet(self.spark)), data, self.folder)

    def _windows(self, vehicles: int) -> dict[str, Measured]:
        self.say(f"Spark's windows of {vehicles:,} vehicles")
        self.windows_from_log(self.small)
        self.windows_from_files(self.small)
        data = self.data(vehicles)
        return best({"log": partial(self.windows_from_log, data), "files": partial(self.windows_from_files, data)})

    def pattern(self, vehicles: int, ask: Callable[[Dataset], Result]) -> Measured:
        """A pattern over so many vehicles."""
        self.say(f"{ask.__name__} of {vehicles:,} vehicles")
        self.ours(self.small, ask(self.small))
        data = self.data(vehicles)
        return best({"ours": partial(self.ours, data, ask(data))})["ours"]

    def explain_misses(
        self, figures: Sequence[Figure], sides: Mapping[str, Measured], vehicles: int, ask: Callable[[Dataset], Result]
    ) -> list[Figure]:
        """Profile these, if an aim was missed."""
        if all(figure.met is not False for figure in figures):
            return []
        data = self.data(vehicles)
        return self.profiles(figures[0].group, sides, data, ask(data))


def _against_windows(group: str, found: Measured, windows: Mapping[str, Measured]) -> list[Figure]:
    return [
        Figure(group, "Spark's windowed aggregation of the same log", windows["log"].rate, "events/s"),
        Figure(group, "Spark's windowed aggregation of Parquet files", windows["files"].rate, "events/s"),
        with_aim(group, "time against windows of the log", found.seconds / windows["log"].seconds, "x", most=2.0),
        with_aim(group, "time against windows of files", found.seconds / windows["files"].seconds, "x", most=2.0),
    ]


def _emergency(bench: Bench) -> list[Figure]:
    group = f"Emergency stops in {bench.events:,} positions of 2,000 vehicles"
    found = bench.pattern(FEW, emergency_stop)
    windows = bench.windows(FEW)
    bench.say("emergency stops by hand")
    bench.by_hand(bench.small)
    hand = bench.by_hand(bench.data(FEW))
    figures = [
        with_aim(group, "ours from the log", found.rate, "events/s", least=_RATE),
        Figure(group, "by hand on Spark's state, from the same log", hand.rate, "events/s"),
        with_aim(group, "against the one by hand", found.rate / hand.rate, "x", least=10.0),
        *_against_windows(group, found, windows),
    ]
    sides = {"ours": found, "Spark's windows of the log": windows["log"], "Spark's windows of files": windows["files"]}
    return figures + bench.explain_misses(figures, sides, FEW, emergency_stop)


def _many_keys(bench: Bench) -> list[Figure]:
    group = f"Emergency stops in {bench.events:,} positions of 200,000 vehicles"
    found, windows = bench.pattern(MANY, emergency_stop), bench.windows(MANY)
    figures = [
        Figure(group, "ours from the log", found.rate, "events/s"),
        *_against_windows(group, found, windows),
    ]
    return figures + bench.explain_misses(figures, {"ours": found}, MANY, emergency_stop)


def _most(bench: Bench) -> list[Figure]:
    group = f"A pattern that most of {bench.events:,} events can start (followed by, within 10 s), 2,000 vehicles"
    found, windows = bench.pattern(FEW, most_can_start), bench.windows(FEW)
    figures = [
        Figure(group, "ours from the log", found.rate, "events/s"),
        *_against_windows(group, found, windows),
    ]
    return figures + bench.explain_misses(figures, {"ours": found}, FEW, most_can_start)


def _room(bench: Bench) -> list[Figure]:
    group = "State of open partial matches"
    figures = []
    for name, ask, vehicles in (
        ("emergency stop, 2,000 vehicles", emergency_stop, FEW),
        ("emergency stop, 200,000 vehicles", emergency_stop, MANY),
        ("most events can start, 2,000 vehicles", most_can_start, FEW),
    ):
        bench.say(group)
        data = bench.data(vehicles)
        found = room(data, ask(data))
        figures += [
            Figure(group, f"{name}: open", float(found.open), "partial matches"),
            Figure(group, f"{name}: in the state store", found.stored / found.open, "bytes each"),
            Figure(group, f"{name}: in memory", found.held / found.open, "bytes each"),
        ]
    return figures


PARTS: Mapping[str, Part[Bench]] = {
    "a": Part("emergency stop", _emergency),
    "b": Part("many keys", _many_keys),
    "c": Part("most events can start", _most),
    "d": Part("room of a partial match", _room),
}
