"""Where a batch's time goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from bench.figures import Figure
from bench.streams import BATCHES, Dataset
from tidewheel.engine.datasource.reader_function import DecodedBatch, ReadInfo
from tidewheel.engine.execution.map_side_reader import MapSideReader
from tidewheel.engine.operators.operator import BatchTime
from tidewheel.engine.runtime.key_groups import key_group_ids
from tidewheel.engine.runtime.stage_runner import StatefulStage
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries
from tidewheel.engine.streams.result import Result
from tidewheel.transport.events.codec import decode_columns

__all__ = ["inside", "profile"]

_STATE = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")
_WORTH = 1.0


def profile(group: str, progress: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """The phases of batches, on average, from the reports of a query, and what its state operators did (those times are
    sums over tasks; what is below a millisecond is left out)."""
    phases: dict[str, float] = defaultdict(float)
    sizes: dict[str, float] = {}
    for report in progress:
        for name, value in report["durationMs"].items():
            phases[name] += value / len(progress)
        for number, operator in enumerate(report.get("stateOperators", [])):
            where = f"state operator {number}: "
            for name in _STATE:
                phases[where + name] += operator.get(name, 0) / len(progress)
            for name, value in operator.get("customMetrics", {}).items():
                if name.endswith(("Ms", "Latency", "Time")) and not name.startswith("stateStore"):
                    phases[where + name] += value / len(progress)
            sizes[where + "rows"] = float(operator.get("numRowsTotal", 0))
    figures = [Figure(group, name, value, "ms") for name, value in _sorted(phases) if value >= _WORTH]
    return figures + [Figure(group, name, value, "rows") for name, value in sizes.items()]


def _sorted(phases: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(phases.items(), key=lambda item: (":" in item[0], -item[1]))


def inside(group: str, data: Dataset, result: Result, *, key_groups: int = 2, tasks: int = 2) -> list[Figure]:
    """The same batches in this process, without Spark: what the work itself costs, on average per batch. Counted as the
    time of all cores together, which others on the machine do not lengthen."""
    flow = result.flow()
    reader, second = MapSideReader([flow], key_groups), StatefulStage([flow], 0, key_groups)
    ids, states = key_group_ids(key_groups), [MemoryEntries() for _ in range(key_groups)]
    spent: dict[str, float] = defaultdict(float)
    before = highest = None
    share = data.per_batch // tasks
    for batch in range(BATCHES):
        rows: list[Any] = []
        pieces: list[DecodedBatch] = []
        for task in range(tasks):
            first = batch * data.per_batch + task * share
            begin = time.process_time()
            end = first + share if task < tasks - 1 else (batch + 1) * data.per_batch
            fetched = list(data.log.read(data.topic, 0, first, end=end))
            spent["fetching from the log"] += time.process_time() - begin
            begin = time.process_time()
            table = pa.concat_batches([part.records for part in fetched])
            only, carried = reader.columns.get(data.topic), fetched[0].type
            columns = decode_columns(data.kind, table.column("value"), only=only, carried=carried).columns
            for name in ("append_time", "key"):
                columns = columns.append_column(f"_{name}", table.column(name))
            pieces.append(DecodedBatch(data.topic, 0, columns))
            spent["decoding"] += time.process_time() - begin
        seen = max(int(pl.Series(piece.columns.column("event_time")).cast(pl.Int64).max()) for piece in pieces)  # type: ignore[arg-type]
        highest = seen if highest is None else max(seen, highest)
        watermark = highest - 1_000_000
        begin = time.process_time()
        for task, piece in enumerate(pieces):
            info = ReadInfo(before, watermark, watermark, task, tasks)
            rows += [row for out in reader(iter([piece]), info) for row in out.to_pylist()]
        spent["map side: preparing, splitting late rows off, partitioning, packing"] += time.process_time() - begin
        for key_group, entries in enumerate(states):
            mine = [row["batch_bytes"] for row in rows if row["key_group"] == ids[key_group]]
            begin = time.process_time()
            state = KeyGroupState(entries)
            out, _ = second.step(state, key_group, mine, BatchTime(before, watermark, watermark))
            spent["stages: stepping"] += time.process_time() - begin
            begin = time.process_time()
            state.save()
            spent["stages: packing state"] += time.process_time() - begin
            del out
        before = watermark
    return [Figure(group, f"in process: {name}", 1_000 * value / BATCHES, "ms of CPU") for name, value in spent.items()]
