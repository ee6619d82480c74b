"""The stages of a flow in Spark's state operator: one call for each key group and batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, Row, StringType, StructField, StructType

from tidewheel.engine.checkpoint.state_fingerprint import StateFingerprint
from tidewheel.engine.execution.dataframe.watermark_hint import expect
from tidewheel.engine.operators.operator import BatchTime
from tidewheel.engine.runtime.exchange_rows import (
    EXCHANGE,
    EXCHANGE_ARROW,
    OUT,
    OUT_ARROW,
    exchange_rows,
    packed_outputs,
    watermarks_reached,
)
from tidewheel.engine.runtime.flow import Flow
from tidewheel.engine.runtime.key_groups import key_group_ids
from tidewheel.engine.runtime.stage_runner import Flows, StatefulStage
from tidewheel.engine.runtime.state_store import Entries, KeyGroupState, MemoryEntries
from tidewheel.engine.spark.arrow_schema import spark_schema
from tidewheel.engine.spark.worker import CachedClosure, warm_worker
from tidewheel.errors import DefinitionError
from tidewheel.model.time import Duration, Instant

__all__ = ["in_memory", "with_state"]

# As types, not as text: to read that, every task would ask Java four times.
_NAME = StructType([StructField("name", StringType())])

_FRAME = StructType([StructField("frame", BinaryType())])


class _CachedStage(CachedClosure, StatefulStage):
    """A stateful stage, as a state operator takes it along."""


class _KeyGroupProcessor(StatefulProcessor):
    """The stages of one depth in Spark's state operator."""

    def __init__(
        self,
        stateful_stage: StatefulStage,
        key_groups: int,
        *,
        delay: Duration | None = None,
        hold: Duration = 0,
        inherited: bool = False,
        state_fingerprint: StateFingerprint | None = None,
    ) -> None:
        self._stateful_stage = stateful_stage
        self._hold = hold
        self._inherited = inherited
        self._state_fingerprint = state_fingerprint
        self._numbers = {value: number for number, value in enumerate(key_group_ids(key_groups))}
        self._ids = key_group_ids(key_groups)
        self._delay = delay
        self._follows = inherited or delay is not None

    def init(self, handle: StatefulProcessorHandle) -> None:
        warm_worker()
        self._handle = handle
        self._entries = handle.getMapState("frames", _NAME, _FRAME)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        held = sorted(rows, key=lambda row: row.task)
        state = KeyGroupState(cast(Entries, self._entries), self._state_fingerprint)
        if self._follows and "timer" not in state.notes:
            # It is new. State from before this was noted has Spark's watermark as its own.
            state.notes["hold"] = self._hold
        if self._inherited:
            yield from self._at_spark_time(key[0], state, [bytes(row.batch_bytes) for row in held], timerValues)
            return
        if self._delay is not None:
            sparks = _watermark(timerValues)
            _check_bounds(held, None if sparks is None else sparks + state.notes.get("hold", 0))
            behind = self._delay + self._hold
            reached = [row.watermark - behind for row in held if row.watermark is not None]
            if sparks is not None:
                reached.append(sparks)
            if reached:
                expect(max(reached))
            yield from self._at_spark_time(key[0], state, [bytes(row.batch_bytes) for row in held], timerValues)
            return
        by_catch_up: dict[tuple[str, ...], list[Row]] = {}
        for row in held:
            by_catch_up.setdefault(tuple(row.catch_up), []).append(row)
        catching_up = [flow for catch_up in by_catch_up for flow in catch_up]
        for catch_up, mine in sorted(by_catch_up.items()):
            batch_time = _time_of(mine)
            flows = Flows(catch_up, catching_up)
            yield from self._step(
                key[0], state, [bytes(row.batch_bytes) for row in mine], batch_time, flows=flows, catch_up=catch_up
            )
        state.save()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        state = KeyGroupState(cast(Entries, self._entries), self._state_fingerprint)
        yield from self._at_spark_time(key[0], state, None, timerValues)

    def _at_spark_time(
        self, key_group: int, state: KeyGroupState, exchange_batches: list[bytes] | None, timer_values: Any
    ) -> Iterator[Row]:
        """Spark's watermark is of the batches before: time moves first, then the rows come. But what Spark's operators
        give as it moves is late by the watermark that they had before: there both come together."""
        clock = timer_values.getCurrentProcessingTimeInMs() * 1_000
        sparks = _watermark(timer_values)
        watermark = None if sparks is None else sparks + state.notes.get("hold", 0)
        before = state.notes.get("watermark")
        moves = watermark is not None and (before is None or watermark > before)
        if self._inherited and exchange_batches is not None:
            yield from self._step(
                key_group, state, exchange_batches, BatchTime(before, watermark if moves else before, clock)
            )
            exchange_batches = None
        elif moves:
            assert watermark is not None
            yield from self._step(key_group, state, [], BatchTime(before, watermark, clock))
        if moves:
            state.notes["watermark"] = cast(Instant, watermark)
        if exchange_batches is not None:
            yield from self._step(key_group, state, exchange_batches, BatchTime(watermark, watermark, clock))
        due = (sparks or 0) // 1_000 + 1
        if state.notes.get("timer") != due:
            self._handle.registerTimer(due)
            state.notes["timer"] = due
        state.save()

    def _step(
        self,
        key_group: int,
        state: KeyGroupState,
        exchange_batches: list[bytes],
        batch_time: BatchTime,
        *,
        flows: Flows | None = None,
        catch_up: Sequence[str] = (),
    ) -> Iterator[Row]:
        number = self._numbers[key_group]
        out, forward = self._stateful_stage.step(state, number, exchange_batches, batch_time, flows=flows)
        if self._stateful_stage.last:
            watermarks = watermarks_reached(self._stateful_stage, batch_time, flows) if number == 0 else []
            if out or watermarks:
                yield Row(batch_bytes=packed_outputs(out, batch_time, watermarks))
            return
        # Key group 0 is called in every batch: the others get the time from it.
        onward = exchange_rows(forward, self._ids, key_group, batch_time, everyone=number == 0, catch_up=catch_up)
        for row in onward.to_pylist():
            yield Row(**row)


def _watermark(timer_values: Any) -> Instant | None:
    """Spark's watermark."""
    reached: Instant = timer_values.getCurrentWatermarkInMs() * 1_000
    return None if reached <= 0 else reached


def _check_bounds(rows: Sequence[Row], watermark: Instant | None) -> None:
    """Refuse a watermark ahead of the one that was expected at most: exchange batches hold the rows that are late by
    that one."""
    bounds = [row.watermark_before for row in rows if row.watermark_before is not None]
    passed = [bound for bound in bounds if watermark is not None and bound < watermark]
    if passed:
        raise DefinitionError(
            f"Spark's watermark, {watermark} µs, is ahead of {passed[0]} µs, which is what follows from these rows: "
            "the query has another watermark that is ahead, and follows the highest. Late rows could not be "
            "recognized; "
            'set spark.sql.streaming.multipleWatermarkPolicy to "min" (Spark\'s default)'
        )


def _time_of(rows: Sequence[Row]) -> BatchTime:
    """The time of exchange batches of one batch: the stage before moves it in two steps where it follows Spark's."""
    before = [row.watermark_before for row in rows]
    reached = [row.watermark for row in rows if row.watermark is not None]
    return BatchTime(
        None if None in before else min(before), max(reached, default=None), max(row.clock for row in rows)
    )


def with_state(
    exchange_batches: DataFrame,
    flows: Sequence[Flow],
    key_groups: int,
    *,
    depth: int = 1,
    delay: Duration | None = None,
    hold: Duration = 0,
    inherited: bool = False,
    state_fingerprint: StateFingerprint | None = None,
) -> DataFrame:
    """Add the state operators of a stream: one for each depth, at least `depth`. Gives rows with one column
    `batch_bytes`. `delay`: time is Spark's watermark, which is so far behind the marks of the rows, and a `hold` more;
    or it is the one that the rows have, `inherited`. `state_fingerprint`: what the state is refused for if it was made
    for something else. Every key group is called when there are rows, and one has the same id whatever their number
    (see `key_group_ids`), so the first batch tells."""
    depth = max([depth, *(len(flow.stages) for flow in flows)])
    frame = exchange_batches
    for level in range(depth):
        follows = level == 0 and (delay is not None or inherited)
        watermark_known = not follows
        stateful_stage = _CachedStage(
            flows, level, key_groups, watermark_known=watermark_known, last=level + 1 == depth
        )
        frame = frame.groupBy("key_group").transformWithState(
            _KeyGroupProcessor(
                stateful_stage,
                key_groups,
                delay=delay if follows else None,
                hold=hold,
                inherited=inherited and follows,
                state_fingerprint=state_fingerprint,
            ),
            outputStructType=OUT if stateful_stage.last else EXCHANGE,
            outputMode="append",
            timeMode="EventTime" if follows else "None",
        )
    return frame


def in_memory(exchange_batches: DataFrame, flows: Sequence[Flow], key_groups: int) -> DataFrame:
    """Run the stages on bounded input, which comes at once and needs no state store."""
    frame = exchange_batches.drop("mark")
    depth = max(len(flow.stages) for flow in flows)
    for level in range(depth):
        stateful_stage = _CachedStage(flows, level, key_groups, last=level + 1 == depth)
        schema = OUT_ARROW if stateful_stage.last else EXCHANGE_ARROW
        frame = frame.groupBy("key_group").applyInArrow(_at_once(stateful_stage, key_groups), spark_schema(schema))
    return frame


def _at_once(stateful_stage: StatefulStage, key_groups: int) -> Callable[[pa.Table], pa.Table]:
    """Run the stages of one depth on all rows of a key group at once."""
    ids = key_group_ids(key_groups)

    def run(table: pa.Table) -> pa.Table:
        warm_worker()
        rows = sorted(table.to_pylist(), key=lambda row: row["task"])
        number = ids.index(rows[0]["key_group"])
        batch_time = BatchTime(rows[0]["watermark_before"], rows[0]["watermark"], rows[0]["clock"])
        out, forward = stateful_stage.step(
            KeyGroupState(MemoryEntries()), number, [row["batch_bytes"] for row in rows], batch_time
        )
        if stateful_stage.last:
            packed = [{"batch_bytes": packed_outputs(out, batch_time)}] if out else []
            return pa.Table.from_pylist(packed, schema=OUT_ARROW)
        return pa.Table.from_batches([exchange_rows(forward, ids, number, batch_time, everyone=number == 0)])

    return run
