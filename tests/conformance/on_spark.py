"""Many small cases in one streaming query of Spark: each case is a bucket with a time of its own.

The state operator takes the time of a batch from its rows, so batch k can be step k of every case, and all of them
together need no more batches than the longest has steps. What runs is what runs for users: the first half inside the
log's reader, the shuffle, Spark's state store, the second half in the state operator.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.types import Row

from tidewheel.engine.flow import Flow, Stage
from tidewheel.engine.halves import Dealer, Parcel, Rows, SecondHalf
from tidewheel.engine.operator import LATE, RESULTS, Tick
from tidewheel.engine.options import reader_function
from tidewheel.engine.query import _BucketProcessor
from tidewheel.errors import FlowError
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME, Pane, Timing, Window
from tidewheel.model.time import Instant
from tidewheel.transport.log import open_log, records

# Workers cannot import what only the tests' process has on its path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

FLOW = "case"
TOPIC = "steps"
_PARCELS = pa.schema(
    [
        ("bucket", pa.int32()),
        ("step", pa.int32()),
        ("task", pa.int32()),
        ("lane", pa.string()),
        ("before", pa.int64()),
        ("watermark", pa.int64()),
        ("clock", pa.int64()),
        ("parcel", pa.binary()),
    ]
)
_DDL = "bucket INT, step INT, task INT, lane STRING, before BIGINT, watermark BIGINT, clock BIGINT, parcel BINARY"

FrameStep = tuple[pl.DataFrame, Instant | None, Instant]
"""Rows, watermark (None: it stays), clock."""


ERROR = "error"


@dataclass(frozen=True)
class Found:
    """What a step gave, by the name of the output; `error` is what broke it."""

    outputs: Mapping[str, pl.DataFrame]

    @property
    def results(self) -> pl.DataFrame | None:
        return self.outputs.get(RESULTS)

    @property
    def late(self) -> pl.DataFrame | None:
        return self.outputs.get(LATE)

    @property
    def error(self) -> str | None:
        told = self.outputs.get(ERROR)
        return None if told is None else str(told.item(0, 0))


def run_cases(
    spark: SparkSession, cases: Sequence[tuple[Stage, Sequence[FrameStep]]], *, may_fail: bool = False
) -> list[list[Found]]:
    """What each step of each case gives. may_fail: a case that breaks tells so, and the others go on."""
    flows = [Flow(FLOW, (TOPIC,), (stage,)) for stage, _ in cases]
    timed = [_timed(steps) for _, steps in cases]
    name = f"cases_{abs(hash(tuple(map(id, flows))))}"
    with tempfile.TemporaryDirectory() as folder:
        with open_log(Path(folder, "cases.tw")) as log:
            for number in range(max(len(steps) for steps in timed)):
                log.append(TOPIC, records([str(number).encode()]))
        rows = (
            spark.readStream.format("tidewheel")
            .option("log", log.address)
            .option("topics", TOPIC)
            .option("maxEventsPerBatch", 1)
            .option("transform", reader_function(_Reader(flows, timed)))
            .option("transformSchema", _DDL)
            .load()
        )
        query = (
            rows.groupBy("bucket")
            .transformWithState(
                _CaseProcessor([SecondHalf([flow], 0, 1) for flow in flows], may_fail=may_fail),
                outputStructType="bucket INT, step INT, parcel BINARY",
                outputMode="append",
                timeMode="None",
            )
            .writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(Path(folder, "checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        collected = spark.table(name).collect()
        spark.catalog.dropTempView(name)
    parts: dict[tuple[int, int], dict[str, list[pl.DataFrame]]] = {}
    for row in collected:
        for _, port, frame in Parcel.read(bytes(row.parcel)):
            parts.setdefault((row.bucket, row.step), {}).setdefault(port, []).append(frame)

    def found(case: int, step: int) -> Found:
        return Found({port: pl.concat(frames) for port, frames in parts.get((case, step), {}).items()})

    return [[found(case, step) for step in range(len(steps))] for case, steps in enumerate(timed)]


def _timed(steps: Sequence[FrameStep]) -> list[tuple[pl.DataFrame, Tick]]:
    """Steps with the time before and after them; no time ever falls."""
    found = []
    before: Instant | None = None
    now = 0
    for rows, watermark, clock in steps:
        after = watermark if before is None else before if watermark is None else max(before, watermark)
        now = max(now, clock)
        found.append((rows, Tick(before, after, now)))
        before = after
    return found


class _Reader:
    """The first half: the record that says `k` becomes the parcels of every case's step k, of two tasks each."""

    def __init__(self, flows: Sequence[Flow], steps: Sequence[Sequence[tuple[pl.DataFrame, Tick]]]) -> None:
        self._dealers = [Dealer([flow], 1) for flow in flows]
        self._steps = steps

    def __call__(self, batches: Iterator[Any], info: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch.columns.column("value").to_pylist():
                yield pa.RecordBatch.from_pylist(list(self._parcels(int(value))), schema=_PARCELS)

    def _parcels(self, step: int) -> Iterator[dict[str, Any]]:
        for case, (dealer, steps) in enumerate(zip(self._dealers, self._steps, strict=True)):
            if step >= len(steps):
                continue
            rows, tick = steps[step]
            half = (rows.height + 1) // 2
            for task, part in enumerate([rows[:half], rows[half:]]):
                parcels: dict[int, Parcel] = {}
                dealer.deal(parcels, FLOW, [Rows(part)], tick.before)
                if parcels or task == 0:
                    yield {
                        "bucket": case,
                        "step": step,
                        "task": task,
                        "lane": "",
                        "before": tick.before,
                        "watermark": tick.watermark,
                        "clock": tick.clock,
                        "parcel": parcels.get(0, Parcel()).to_bytes(),
                    }


class _CaseProcessor(_BucketProcessor):
    """The second half of the bucket's own case."""

    def __init__(self, halves: Sequence[SecondHalf], *, may_fail: bool) -> None:
        super().__init__(halves[0], 1)
        self._halves = halves
        self._may_fail = may_fail

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        held = list(rows)
        self._half = self._halves[key[0]]
        self._numbers = {key[0]: 0}
        try:
            for row in super().handleInputRows(key, held, timerValues):
                yield Row(bucket=key[0], step=held[0].step, parcel=row.parcel)
        except FlowError as error:
            if not self._may_fail:
                raise
            told = Parcel()
            told.add(FLOW, ERROR, pl.DataFrame({"error": [str(error)]}))
            yield Row(bucket=key[0], step=held[0].step, parcel=told.to_bytes())


def panes_of(frame: pl.DataFrame | None, keys: Sequence[str], names: Sequence[str]) -> list[Pane]:
    """Results as the reference gives them."""
    if frame is None:
        return []
    bounds = frame.with_columns(pl.col("window_start", "window_end", "event_time").cast(pl.Int64))
    return [
        Pane(
            key=tuple(row[name] for name in keys),
            window=Window(
                START_OF_TIME if row["window_start"] is None else row["window_start"],
                END_OF_TIME if row["window_end"] is None else row["window_end"],
            ),
            values={name: row[name] for name in names},
            index=row["pane_index"],
            timing=Timing(row["pane_timing"]),
            first=row["pane_first"],
            last=row["pane_last"],
            event_time=row["event_time"],
            retraction=row["retraction"],
        )
        for row in bounds.iter_rows(named=True)
    ]
