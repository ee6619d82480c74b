"""The map side in Spark's reading task: turns rows of the log into exchange batches, or directly into results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import polars as pl
import pyarrow as pa

from tidewheel.engine.datasource.batch_limit import AT_ONCE_BYTES
from tidewheel.engine.datasource.reader_function import DecodedBatch, ReadInfo, SelectiveReaderFunction
from tidewheel.engine.operators.operator import BatchTime
from tidewheel.engine.runtime.exchange import PLACE, ExchangeBatch, Partitioner, Rows, attribute_errors
from tidewheel.engine.runtime.exchange_rows import (
    ARRIVED,
    FRAMES_PER_TASK,
    OUT_ARROW,
    exchange_rows,
    packed_outputs,
    watermarks_reached,
)
from tidewheel.engine.runtime.flow import Flow, needed
from tidewheel.engine.runtime.key_groups import key_group_ids
from tidewheel.engine.runtime.row_op import ARRIVAL
from tidewheel.engine.runtime.stage_runner import Flows, StatefulStage
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries
from tidewheel.engine.spark.worker import CachedClosure
from tidewheel.model.panes import END_OF_TIME

__all__ = ["MapSideReader", "StatelessReader", "needs_no_state"]


class MapSideReader(CachedClosure, SelectiveReaderFunction):
    """The map side of a query inside the log's reader (the option `transform` of the source)."""

    def __init__(self, flows: Sequence[Flow], key_groups: int, *, ended: bool = False) -> None:
        self._flows = tuple(flows)
        self._partitioner = Partitioner(flows, key_groups)
        self._ids = key_group_ids(key_groups)
        self._ended = ended
        self.columns = _needed_columns(flows)

    def __call__(self, batches: Iterator[DecodedBatch], info: ReadInfo, /) -> Iterator[pa.RecordBatch]:
        """Make one record batch for the task; several if its records are too many bytes to be held at once."""
        for number, by_topic in enumerate(_pieces(batches)):
            yield self._partitioned(by_topic, info, number)

    def _partitioned(self, by_topic: Mapping[str, list[Rows]], info: ReadInfo, number: int) -> pa.RecordBatch:
        exchange_batches: dict[int, ExchangeBatch] = {}
        chosen = Flows(info.catch_up, info.elsewhere)
        for flow in self._flows:
            if flow.name not in chosen:
                continue
            rows = [some for topic in flow.topics for some in by_topic.get(topic, [])]
            self._partitioner.partition(exchange_batches, flow.name, rows, info.watermark_before, arrival=ARRIVAL)
            self._partitioner.broadcast(exchange_batches, flow.name, by_topic)
        batch_time = BatchTime(info.watermark_before, END_OF_TIME if self._ended else info.watermark, info.clock)
        return self._rows(exchange_batches, batch_time, info, chosen, number)

    def _rows(
        self,
        exchange_batches: Mapping[int, ExchangeBatch],
        batch_time: BatchTime,
        info: ReadInfo,
        chosen: Flows,
        number: int,
    ) -> pa.RecordBatch:
        place = info.task * FRAMES_PER_TASK + number
        everyone = info.first and number == 0
        return exchange_rows(exchange_batches, self._ids, place, batch_time, everyone=everyone, catch_up=info.catch_up)

    def refused(self, topic: str, columns: pa.RecordBatch) -> dict[int, str]:
        """The rows of a side input that make no sense to a flow that reads it, and why not."""
        readers = [
            (flow.name, each) for flow in self._flows for each in flow.side_inputs.values() if each.topic == topic
        ]
        found: dict[int, str] = {}
        for number, row in enumerate(columns.to_pylist()) if readers else ():
            for flow, side_input in readers:
                with attribute_errors(flow):
                    reason = side_input.refusal(row)
                if reason is not None:
                    found.setdefault(number, reason)
        return found


class StatelessReader(MapSideReader):
    """Runs flows that keep no state inside the log's reader: their rows need no exchange."""

    def __init__(self, flows: Sequence[Flow]) -> None:
        super().__init__(flows, 1)
        self._stateful_stage = StatefulStage(flows, 0, 1)

    def _rows(
        self,
        exchange_batches: Mapping[int, ExchangeBatch],
        batch_time: BatchTime,
        info: ReadInfo,
        chosen: Flows,
        number: int,
    ) -> pa.RecordBatch:
        held = [exchange_batches[0].to_bytes()] if exchange_batches else []
        out, _ = self._stateful_stage.step(KeyGroupState(MemoryEntries()), 0, held, batch_time, flows=chosen)
        first = info.first and number == 0
        watermarks = watermarks_reached(self._stateful_stage, batch_time, chosen) if first else []
        return pa.RecordBatch.from_pylist(
            [{"batch_bytes": packed_outputs(out, batch_time, watermarks)}] if out or watermarks else [],
            schema=OUT_ARROW,
        )


def _pieces(batches: Iterator[DecodedBatch]) -> Iterator[dict[str, list[Rows]]]:
    """The rows of a task by topic, in pieces of a bounded number of bytes; at least one, which may be empty."""
    held: dict[str, list[Rows]] = {}
    size, first = 0, True
    for batch in batches:
        if held and size + batch.size > AT_ONCE_BYTES:
            yield held
            held, size, first = {}, 0, False
        held.setdefault(batch.topic, []).append(_rows_of(batch))
        size += batch.size
    if held or first:
        yield held


def needs_no_state(flows: Sequence[Flow]) -> bool:
    """Whether a `StatelessReader` can run all of these."""
    return all(len(flow.stages) == 1 and not flow.keeps_state for flow in flows)


def _needed_columns(flows: Sequence[Flow]) -> dict[str, frozenset[str]]:
    """The columns that need to be decoded of each topic, where that is not all of them."""
    found: dict[str, frozenset[str] | None] = {}
    for flow in flows:
        columns = needed(flow.stages[0])
        for topic in flow.topics:
            known = found.get(topic, frozenset())
            found[topic] = None if known is None or columns is None else known | columns
    return {topic: columns for topic, columns in found.items() if columns is not None}


def _rows_of(batch: DecodedBatch) -> Rows:
    frame = _with_arrival(batch.columns)
    whole = batch.whole
    if whole is None:
        return Rows(frame)
    return Rows(
        frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(PLACE)),
        lambda places: _with_arrival(whole(places.to_arrow())).with_columns(places.alias(PLACE)),
    )


def _with_arrival(columns: pa.RecordBatch) -> pl.DataFrame:
    frame = cast(pl.DataFrame, pl.from_arrow(columns))
    return frame.with_columns(ARRIVED)
