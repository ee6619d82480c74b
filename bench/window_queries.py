"""Running windowed aggregations to the end of their input, ours and others, and what their batches took."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.streams import BATCHES, TOPIC, Dataset, reading_type
from tidewheel.engine.datasource.reader_function import reader_function
from tidewheel.engine.execution.map_side_reader import MapSideReader
from tidewheel.engine.execution.state_operator import with_state
from tidewheel.engine.runtime.exchange_rows import EXCHANGE
from tidewheel.engine.streams.result import Result
from tidewheel.engine.streams.stream import Stream
from tidewheel.engine.streams.stream_factory import stream
from tidewheel.engine.streams.windowed_stream import WindowedStream
from tidewheel.model import aggregates as agg
from tidewheel.model import watermarks
from tidewheel.model.windows import Windows

__all__ = ["REPEAT", "Measured", "batches_of", "best", "drained", "last_batch", "ours", "exchange_batches", "windowed"]

REPEAT = 3
"""How often each side is run."""
_number = count()


@dataclass(frozen=True)
class Measured:
    """The reports of a query's batches but the first, and what its state takes on disk at the end."""

    progress: Sequence[Mapping[str, Any]]
    events: int
    state: int

    @property
    def seconds(self) -> float:
        """How long the batches took."""
        return sum(float(report["durationMs"]["triggerExecution"]) for report in self.progress) / 1_000

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds

    @property
    def batch_ms(self) -> float:
        """How long a batch took."""
        return 1_000 * self.seconds / len(self.progress)


def windowed(source: Stream, windows: Windows) -> WindowedStream:
    """Cut by key into windows."""
    return source.key_by("key").window(windows)


def ours(data: Dataset, windows: Windows, change: Callable[[WindowedStream], WindowedStream] | None = None) -> Result:
    """Count and sum for each key and window, from the log."""
    source = stream(data.log, TOPIC, type=reading_type(), watermark=watermarks.bounded("1 s"))
    cut = windowed(source, windows)
    return (change(cut) if change else cut).aggregate(events=agg.count(), total=agg.sum("value"))


def exchange_batches(spark: SparkSession, data: Dataset, results: Sequence[Result]) -> DataFrame:
    """The query of these results, as far as the rows that a sink gets."""
    key_groups = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    flows = [result.flow() for result in results]
    reader = spark.readStream.format("tidewheel")
    options = {
        **results[0].input.options(),  # type: ignore[union-attr]  # it is a log's
        "topics": data.topic,
        "type": data.kind,
        "maxEventsPerBatch": str(data.per_batch),
        "transform": reader_function(MapSideReader(flows, key_groups)),
        "transformSchema": EXCHANGE,
    }
    return with_state(reader.options(**options).load(), flows, key_groups)


def drained(frame: DataFrame, data: Dataset, folder: Path) -> Measured:
    """Run a query to the end of its input into a sink that does nothing."""
    checkpoint = folder / f"checkpoint-{next(_number)}"
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.outputMode("append").trigger(availableNow=True).start()
    query.awaitTermination()
    found = [report for report in batches_of(query) if report["numInputRows"] > 0]
    if len(found) != BATCHES:
        raise RuntimeError(f"{BATCHES} batches were to be measured, there were {len(found)}")
    state = sum(path.stat().st_size for path in (checkpoint / "state").rglob("*") if path.is_file())
    shutil.rmtree(checkpoint)
    return Measured(found[1:], data.events - data.per_batch, state)


def batches_of(query: Any) -> list[dict[str, Any]]:
    """The reports of the batches that ran (Spark also reports that it waits)."""
    found = {}
    for report in query.recentProgress:
        fields = json.loads(report.json)
        if "addBatch" in fields["durationMs"]:
            found[fields["batchId"]] = fields
    return [found[number] for number in sorted(found)]


def last_batch(query: Any) -> dict[str, Any] | None:
    """The report of the batch that ran last."""
    report = query.lastProgress
    fields: dict[str, Any] | None = None if report is None else json.loads(report.json)
    return fields if fields is not None and "addBatch" in fields["durationMs"] else None


def best(sides: Mapping[str, Callable[[], Measured]], *, repeat: int = REPEAT) -> dict[str, Measured]:
    """Each side's fastest of a few runs, taken in turn, so that what disturbs the machine disturbs all of them, and all
    of them are as warm: Java compiles what is run often, and is done with it after some runs only."""
    found: dict[str, Measured] = {}
    for _ in range(repeat):
        for name, run in sides.items():
            measured = run()
            if name not in found or measured.seconds < found[name].seconds:
                found[name] = measured
    return found
