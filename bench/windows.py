"""The figures of windowed aggregation, each measured beside Spark's own in the same run.

Both sides run in one warm session, with state in RocksDB and its changelog in the checkpoint, over the same events in
eight batches, into a sink that does nothing. A time is the sum of the batches' `triggerExecution` without the first
(which starts processes); of several runs in turn each side's fastest counts. Spark gets the settings that suit it best.
Ours hands the state operator's rows to the sink as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.figures import Figure, with_aim
from bench.frame_floor import does_nothing
from bench.parts import Part, run_parts
from bench.profiles import profile
from bench.shared_query import ten_jobs
from bench.small_batches import small_batches
from bench.spark_bench import FEW, MANY, started_spark
from bench.streams import BATCHES, Dataset
from bench.window_bench import Bench
from bench.window_queries import Measured, best, ours, windowed
from tidewheel.engine.streams.stream_factory import stream
from tidewheel.engine.streams.windowed_stream import WindowedStream
from tidewheel.model import aggregates as agg
from tidewheel.model import triggers, watermarks
from tidewheel.model.windows import sliding, tumbling

__all__ = ["EVENTS", "PARTS", "measure"]

EVENTS = 4_000_000


def measure(
    events: int, folder: Path, say: Callable[[str], object], *, only: Sequence[str] = ()
) -> Iterator[list[Figure]]:
    """The figures of these parts, or of all, part by part."""
    with started_spark() as spark:
        yield from run_parts(PARTS, Bench(spark, events, folder, say), only)


def _tumbling(bench: Bench) -> list[Figure]:
    group = "Tumbling windows of 10 s, count and sum, 2,000 keys"
    pair = bench.pair(FEW)
    against_log, against_files = pair["ours"].rate / pair["log"].rate, pair["ours"].rate / pair["spark"].rate
    figures = [
        Figure(group, "ours from the log", pair["ours"].rate, "events/s"),
        Figure(group, "Spark's own from the same log", pair["log"].rate, "events/s"),
        *(
            Figure(group, f"Spark's own from Parquet, tried {name}", run.rate, "events/s")
            for name, run in bench.variants.items()
        ),
        Figure(group, "Spark's own from Parquet, with the best of these", pair["spark"].rate, "events/s"),
        with_aim(group, "against Spark's own from the log", against_log, "x", least=1.5),
        with_aim(group, "against Spark's own from Parquet", against_files, "x", least=1.0),
    ]
    return figures + _explain_misses(
        bench, figures, {"ours": pair["ours"], "Spark's": pair["spark"], "Spark's from the log": pair["log"]}, FEW
    )


def _sliding(bench: Bench) -> list[Figure]:
    figures = []
    data = bench.data(FEW)
    for size, spark_size, least, better, aim in (
        ("30 s", "30 seconds", 1.8, 2.5, "at least 1.8, better 2.5"),
        ("5 min", "5 minutes", 10.0, 10.0, ""),
    ):
        group = f"Sliding windows of {size} every 5 s, count and sum, 2,000 keys"
        windows = sliding(size, every="5 s")
        assert bench.settings is not None
        bench.say(group)
        bench.ours(bench.small, ours(bench.small, windows))
        bench.spark_own(bench.small, spark_size, "5 seconds")
        pair = best(
            {
                "ours": partial(bench.ours, data, ours(data, windows)),
                "Spark's": partial(bench.spark_own, data, spark_size, "5 seconds"),
            }
        )
        ratio = pair["ours"].rate / pair["Spark's"].rate
        here = [
            Figure(group, "ours from the log", pair["ours"].rate, "events/s"),
            Figure(group, "Spark's own from Parquet", pair["Spark's"].rate, "events/s"),
            with_aim(group, "ratio", ratio, "x", least=least, aim=aim),
        ]
        if ratio < better:
            here += bench.profiles(group, pair, data, ours(data, windows))
        figures += here
    return figures


def _many_keys(bench: Bench) -> list[Figure]:
    group = "Tumbling windows of 10 s, count and sum, 200,000 keys"
    pair = bench.pair(MANY)
    figures = [
        Figure(group, "ours from the log", pair["ours"].rate, "events/s"),
        Figure(group, "Spark's own from Parquet", pair["spark"].rate, "events/s"),
        with_aim(group, "ratio", pair["ours"].rate / pair["spark"].rate, "x", least=1.0),
    ]
    return figures + _explain_misses(bench, figures, {"ours": pair["ours"], "Spark's": pair["spark"]}, MANY)


def _early(bench: Bench) -> list[Figure]:
    group = "Early results in each batch, and their retractions, 2,000 keys"
    data, small = bench.data(FEW), bench.small

    def early(of: WindowedStream) -> WindowedStream:
        return of.trigger(triggers.after_watermark(early=triggers.each_batch())).accumulate("retracting")

    bench.say(group)
    bench.ours(small, ours(small, tumbling("10 s"), early))
    bench.ours(small, ours(small, tumbling("10 s")))
    result = ours(data, tumbling("10 s"), early)
    pair = best(
        {"early": partial(bench.ours, data, result), "plain": partial(bench.ours, data, ours(data, tumbling("10 s")))}
    )
    found, plain = pair["early"], pair["plain"]
    figures = [
        Figure(group, "with them", found.batch_ms, "ms/batch"),
        Figure(group, "on time only", plain.batch_ms, "ms/batch"),
        with_aim(group, "cost", found.seconds / plain.seconds, "x", most=2.0),
    ]
    if not figures[-1].met:
        figures += bench.profiles(group, {"early results": found, "results on time": plain}, data, result)
    return figures


def _room(bench: Bench) -> list[Figure]:
    group = "State on disk after all events (the checkpoint's state folder)"
    figures = []
    for keys in (FEW, MANY):
        pair = bench.pair(keys)
        figures += [
            Figure(group, f"ours, {keys:,} keys", pair["ours"].state / 1e6, "MB"),
            Figure(group, f"Spark's own, {keys:,} keys", pair["spark"].state / 1e6, "MB"),
            Figure(group, f"ours against Spark's, {keys:,} keys", pair["ours"].state / pair["spark"].state, "x"),
        ]
    return figures


def _more_keys(bench: Bench) -> list[Figure]:
    group = f"A batch of {bench.events // BATCHES:,} events in tumbling windows of 10 s as keys grow"
    sides = {}
    for keys in (2_000, 20_000, 200_000, 2_000_000):
        data = bench.data(keys)
        sides[f"{keys:,} keys"] = partial(bench.ours, data, ours(data, tumbling("10 s")))
    bench.say(group)
    bench.ours(bench.small, ours(bench.small, tumbling("10 s")))
    return [Figure(group, name, found.batch_ms, "ms/batch") for name, found in best(sides).items()]


def _any_frame(bench: Bench) -> list[Figure]:
    group = "Any DataFrame (Parquet files), tumbling windows of 10 s, 2,000 keys"

    def run(data: Dataset) -> Measured:
        source = stream(data.parquet(bench.spark), time="event_time", watermark=watermarks.bounded("1 s"))
        result = windowed(source, tumbling("10 s")).aggregate(events=agg.count(), total=agg.sum("value"))
        return bench.frame(data, result.df())

    def nothing(data: Dataset) -> Measured:
        key_groups = int(str(bench.spark.conf.get("spark.sql.shuffle.partitions")))
        return bench.frame(data, does_nothing(data.parquet(bench.spark), key_groups=key_groups))

    data = bench.data(FEW)
    assert bench.settings is not None  # found before anything else is timed
    bench.say(group)
    run(bench.small)
    nothing(bench.small)
    sides = best(
        {
            "ours": partial(run, data),
            "Spark's": partial(bench.spark_own, data, "10 seconds"),
            "functions in Python that do nothing": partial(nothing, data),
        }
    )
    mine, spark, floor = (side.rate for side in sides.values())
    figures = [
        Figure(group, "ours", mine, "events/s"),
        Figure(group, "Spark's own", spark, "events/s"),
        Figure(group, "through functions in Python that do nothing", floor, "events/s"),
        with_aim(group, "ratio", mine / spark, "x", least=0.8),
        Figure(group, "ratio to functions that do nothing", mine / floor, "x"),
    ]
    if all(figure.met is not False for figure in figures):
        return figures
    return figures + [
        figure for name, side in sides.items() for figure in profile(f"{group}: a batch of {name}", side.progress)
    ]


def _explain_misses(bench: Bench, figures: Sequence[Figure], sides: Mapping[str, Measured], keys: int) -> list[Figure]:
    """Profile these, if an aim was missed."""
    if all(figure.met is not False for figure in figures):
        return []
    data = bench.data(keys)
    return bench.profiles(figures[0].group, sides, data, ours(data, tumbling("10 s")))


PARTS: Mapping[str, Part[Bench]] = {
    "a": Part("tumbling windows", _tumbling),
    "b": Part("sliding windows", _sliding),
    "c": Part("many keys", _many_keys),
    "d": Part("early results and retractions", _early),
    "e": Part("state on disk", _room),
    "f": Part("more and more keys", _more_keys),
    "g": Part("any DataFrame", _any_frame),
    "h": Part("ten jobs in one query", ten_jobs),
    "i": Part("small batches", small_batches),
}
