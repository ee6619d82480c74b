"""Many small cases in one streaming query of Spark: each case is a key group with a time of its own.

The state operator takes the time of a batch from its rows, so batch k can be step k of every case, and all of them
together need no more batches than the longest has steps. What runs is what runs for users: the map side inside the
log's reader, the shuffle, Spark's state store, the stages in the state operator.
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

from tidewheel.engine.datasource.reader_function import reader_function
from tidewheel.engine.execution.state_operator import _KeyGroupProcessor
from tidewheel.engine.operators.operator import LATE, RESULTS, BatchTime
from tidewheel.engine.runtime.exchange import ExchangeBatch, Partitioner, Rows
from tidewheel.engine.runtime.exchange_parts import Output
from tidewheel.engine.runtime.flow import Flow, Stage
from tidewheel.engine.runtime.stage_runner import StatefulStage
from tidewheel.errors import FlowError
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME, Pane, Timing, Window
from tidewheel.model.time import Instant
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log

# Workers cannot import what only the tests' process has on its path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

FLOW = "case"
TOPIC = "steps"
_EXCHANGE = pa.schema(
    [
        ("key_group", pa.int32()),
        ("step", pa.int32()),
        ("task", pa.int32()),
        ("catch_up", pa.list_(pa.string())),
        ("watermark_before", pa.int64()),
        ("watermark", pa.int64()),
        ("clock", pa.int64()),
        ("batch_bytes", pa.binary()),
    ]
)
_DDL = (
    "key_group INT, step INT, task INT, catch_up ARRAY<STRING>, watermark_before BIGINT, watermark BIGINT, "
    "clock BIGINT, batch_bytes BINARY"
)

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
        reported = self.outputs.get(ERROR)
        return None if reported is None else str(reported.item(0, 0))


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
            rows.groupBy("key_group")
            .transformWithState(
                _CaseProcessor([StatefulStage([flow], 0, 1) for flow in flows], may_fail=may_fail),
                outputStructType="key_group INT, step INT, batch_bytes BINARY",
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
        for _, output, frame in ExchangeBatch.outputs(bytes(row.batch_bytes)):
            parts.setdefault((row.key_group, row.step), {}).setdefault(output, []).append(frame)

    def found(case: int, step: int) -> Found:
        return Found({output: pl.concat(frames) for output, frames in parts.get((case, step), {}).items()})

    return [[found(case, step) for step in range(len(steps))] for case, steps in enumerate(timed)]


def _timed(steps: Sequence[FrameStep]) -> list[tuple[pl.DataFrame, BatchTime]]:
    """Steps with the time before and after them; no time ever falls."""
    found = []
    before: Instant | None = None
    now = 0
    for rows, watermark, clock in steps:
        after = watermark if before is None else before if watermark is None else max(before, watermark)
        now = max(now, clock)
        found.append((rows, BatchTime(before, after, now)))
        before = after
    return found


class _Reader:
    """The map side: the record that says `k` becomes the exchange batches of every case's step k, of two tasks each."""

    def __init__(self, flows: Sequence[Flow], steps: Sequence[Sequence[tuple[pl.DataFrame, BatchTime]]]) -> None:
        self._partitioners = [Partitioner([flow], 1) for flow in flows]
        self._steps = steps

    def __call__(self, batches: Iterator[Any], info: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in batch.columns.column("value").to_pylist():
                yield pa.RecordBatch.from_pylist(list(self._exchange_batches(int(value))), schema=_EXCHANGE)

    def _exchange_batches(self, step: int) -> Iterator[dict[str, Any]]:
        for case, (partitioner, steps) in enumerate(zip(self._partitioners, self._steps, strict=True)):
            if step >= len(steps):
                continue
            rows, batch_time = steps[step]
            half = (rows.height + 1) // 2
            for task, part in enumerate([rows[:half], rows[half:]]):
                exchange_batches: dict[int, ExchangeBatch] = {}
                partitioner.partition(exchange_batches, FLOW, [Rows(part)], batch_time.watermark_before)
                if exchange_batches or task == 0:
                    yield {
                        "key_group": case,
                        "step": step,
                        "task": task,
                        "catch_up": [],
                        "watermark_before": batch_time.watermark_before,
                        "watermark": batch_time.watermark,
                        "clock": batch_time.clock,
                        "batch_bytes": exchange_batches.get(0, ExchangeBatch()).to_bytes(),
                    }


class _CaseProcessor(_KeyGroupProcessor):
    """The stage of the key group's own case."""

    def __init__(self, stateful_stages: Sequence[StatefulStage], *, may_fail: bool) -> None:
        super().__init__(stateful_stages[0], 1)
        self._stateful_stages = stateful_stages
        self._may_fail = may_fail

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        held = list(rows)
        self._stateful_stage = self._stateful_stages[key[0]]
        self._numbers = {key[0]: 0}
        try:
            for row in super().handleInputRows(key, held, timerValues):
                yield Row(key_group=key[0], step=held[0].step, batch_bytes=row.batch_bytes)
        except FlowError as error:
            if not self._may_fail:
                raise
            reported = ExchangeBatch()
            reported.add(Output(FLOW, ERROR), pl.DataFrame({"error": [str(error)]}))
            yield Row(key_group=key[0], step=held[0].step, batch_bytes=reported.to_bytes())


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
