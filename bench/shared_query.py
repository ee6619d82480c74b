"""Ten windowed jobs in one query, beside ten queries of Spark's own."""

from __future__ import annotations

import os
import threading
import time
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from bench.figures import Figure
from bench.processes import residents
from bench.streams import Dataset, dataset, reading_type
from bench.window_baselines import spark_windows, with_settings
from bench.window_queries import exchange_batches, ours
from tidewheel.engine.execution.session import session
from tidewheel.model.windows import tumbling
from tidewheel.transport.open_log import open_log

if TYPE_CHECKING:
    from bench.window_bench import Bench

__all__ = ["PeakMemory", "ten_jobs"]

_SIZES = range(5, 55, 5)


def ten_jobs(bench: Bench) -> list[Figure]:
    """Both sides to the end of the input, each in a Spark of its own: Java gives no memory back."""
    group = "Ten windowed jobs (5 to 50 s) over the same events, 2,000 keys, with start-up"
    data = bench.data(2_000)
    settings = dict(bench.settings)
    found = {}
    for side in ("ours", "spark"):
        bench.say(f"ten jobs, {side}")
        context = get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        place = (data.events, data.keys, data.log.address, str(data.files))
        child = context.Process(target=_side, args=(side, place, str(bench.folder), settings, sender))
        child.start()
        sender.close()
        try:
            found[side] = receiver.recv()
        except EOFError:
            raise RuntimeError(f"the process of {side} ended with {child.exitcode}") from None
        finally:
            child.join()
    (seconds, peak), (spark_seconds, spark_peak) = found["ours"], found["spark"]
    return [
        Figure(group, "ours, one query from the log", seconds, "s"),
        Figure(group, "Spark's own, ten queries from Parquet at once", spark_seconds, "s"),
        Figure(group, "ratio", spark_seconds / seconds, "x"),
        Figure(group, "ours, highest memory of Java and Python workers", peak / 1e6, "MB"),
        Figure(group, "Spark's own, highest memory", spark_peak / 1e6, "MB"),
        Figure(group, "ours against Spark's", peak / spark_peak, "x"),
    ]


def _side(side: str, place: tuple[int, int, str, str], folder: str, settings: dict[str, str], sender: Any) -> None:
    events, keys, address, files = place
    data = Dataset(events, keys, open_log(address), Path(files))
    spark = session()
    spark.conf.set("spark.sql.files.openCostInBytes", "65536")
    home = Path(folder) / f"ten-{side}"
    home.mkdir()
    small = dataset(home, 40_000, keys)
    reading_type()
    with with_settings(spark, settings if side == "spark" else {}):
        for turn, chosen in enumerate((small, data)):
            begin = time.perf_counter()
            with PeakMemory() as memory:
                _all(spark, side, chosen, home / str(turn))
            result = (time.perf_counter() - begin, memory.peak)
    sender.send(result)
    spark.stop()


def _all(spark: SparkSession, side: str, data: Dataset, folder: Path) -> None:
    frames: list[DataFrame]
    if side == "ours":
        frames = [
            exchange_batches(spark, data, [ours(data, tumbling(f"{size} s")).named(f"of-{size}") for size in _SIZES])
        ]
    else:
        frames = [spark_windows(data.parquet(spark), f"{size} seconds") for size in _SIZES]
    queries = [
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(folder / f"checkpoint-{number}"))
        .trigger(availableNow=True)
        .start()
        for number, frame in enumerate(frames)
    ]
    for query in queries:
        query.awaitTermination()


class PeakMemory:
    """The highest resident memory of all processes that descend from this one, seen meanwhile."""

    def __init__(self, *, period: float = 0.1) -> None:
        self.peak = 0
        self._period = period
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        done = False
        while not done:
            done = self._done.wait(self._period)
            self.peak = max(self.peak, sum(residents(os.getpid()).values()))
