"""Flows as a Spark query: the reader's half, a shuffle by bucket, and a state operator for each depth of chaining."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, Row, StringType, StructField, StructType

from tidewheel.engine.batch_limit import AT_ONCE_BYTES
from tidewheel.engine.bucket_store import BucketState, Entries, MemoryEntries
from tidewheel.engine.buckets import bucket_ids
from tidewheel.engine.columns import in_utc, spark_schema
from tidewheel.engine.expected_watermark import expect, expected
from tidewheel.engine.flow import ARRIVAL, Flow, needed
from tidewheel.engine.halves import CLOCK, PLACE, TICK, Dealer, Flows, Parcel, Rows, SecondHalf, blamed
from tidewheel.engine.made_for import MadeFor
from tidewheel.engine.operator import Tick
from tidewheel.engine.output_columns import OutputColumns
from tidewheel.engine.reading import DecodedBatch, ReadInfo
from tidewheel.engine.ticks import ticks
from tidewheel.engine.workers import Lasting, settle
from tidewheel.errors import DefinitionError
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.time import Duration, Instant, now

__all__ = [
    "OUT",
    "PARCELS",
    "ReaderHalf",
    "WholeReader",
    "as_columns",
    "in_memory",
    "needs_no_state",
    "row_parcels",
    "with_state",
    "with_ticks",
]

PARCELS = "bucket INT, task INT, lane STRING, before BIGINT, watermark BIGINT, clock BIGINT, parcel BINARY"
"""What travels to the buckets: the time of the batch, and frames. `lane` names the flows that they are for, separated
by slashes, or is empty."""

_ARROW = pa.schema(
    [
        ("bucket", pa.int32()),
        ("task", pa.int32()),
        ("lane", pa.string()),
        ("before", pa.int64()),
        ("watermark", pa.int64()),
        ("clock", pa.int64()),
        ("parcel", pa.binary()),
    ]
)
OUT = "parcel BINARY"
"""What comes out in the end."""

_ARROW_OUT = pa.schema([("parcel", pa.binary())])
_ARRIVED = pl.col("_append_time").cast(pl.Int64).alias(ARRIVAL)
_FRAMES_PER_TASK = 10_000  # more than any task has
# As types, not as text: to read that, every task would ask Java four times.
_NAME = StructType([StructField("name", StringType())])
_FRAME = StructType([StructField("frame", BinaryType())])


def _rows(
    parcels: Mapping[int, Parcel], ids: Sequence[int], task: int, tick: Tick, *, everyone: bool, lane: str = ""
) -> pa.RecordBatch:
    """A row for each bucket that gets something; for `everyone` also for those that get only the time."""
    numbers = range(len(ids)) if everyone else sorted(parcels)
    empty = Parcel().to_bytes()
    rows = [
        {
            "bucket": ids[number],
            "task": task,
            "lane": lane,
            "before": tick.before,
            "watermark": tick.watermark,
            "clock": tick.clock,
            "parcel": parcels[number].to_bytes() if number in parcels else empty,
        }
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)


class ReaderHalf(Lasting):
    """The first half inside the log's reader (the option `transform` of the source)."""

    def __init__(self, flows: Sequence[Flow], buckets: int, *, ended: bool = False) -> None:
        self._flows = tuple(flows)
        self._dealer = Dealer(flows, buckets)
        self._ids = bucket_ids(buckets)
        self._ended = ended
        self.columns = _asked(flows)

    def __call__(self, batches: Iterator[DecodedBatch], info: ReadInfo) -> Iterator[pa.RecordBatch]:
        """One record batch for the task; several if its records are too many bytes to be held at once."""
        for number, by_topic in enumerate(_pieces(batches)):
            yield self._dealt(by_topic, info, number)

    def _dealt(self, by_topic: Mapping[str, list[Rows]], info: ReadInfo, number: int) -> pa.RecordBatch:
        parcels: dict[int, Parcel] = {}
        chosen = Flows(info.lane, info.elsewhere)
        for flow in self._flows:
            if flow.name not in chosen:
                continue
            rows = [some for topic in flow.topics for some in by_topic.get(topic, [])]
            self._dealer.deal(parcels, flow.name, rows, info.watermark_before, arrival=ARRIVAL)
            self._dealer.announce(parcels, flow.name, by_topic)
        tick = Tick(info.watermark_before, END_OF_TIME if self._ended else info.watermark, info.clock)
        return self._given(parcels, tick, info, chosen, number)

    def _given(
        self, parcels: Mapping[int, Parcel], tick: Tick, info: ReadInfo, chosen: Flows, number: int
    ) -> pa.RecordBatch:
        place = info.task * _FRAMES_PER_TASK + number
        everyone = info.first and number == 0
        return _rows(parcels, self._ids, place, tick, everyone=everyone, lane="/".join(info.lane))

    def refused(self, topic: str, columns: pa.RecordBatch) -> dict[int, str]:
        """The rows that make no sense to a flow that is told something by this topic, and why not."""
        told = [(flow.name, what) for flow in self._flows for what in flow.told.values() if what.topic == topic]
        found: dict[int, str] = {}
        for number, row in enumerate(columns.to_pylist()) if told else ():
            for flow, what in told:
                with blamed(flow):
                    reason = what.refusal(row)
                if reason is not None:
                    found.setdefault(number, reason)
        return found


class WholeReader(ReaderHalf):
    """Both halves inside the log's reader, for flows that keep no state: their rows need not go anywhere else."""

    def __init__(self, flows: Sequence[Flow]) -> None:
        super().__init__(flows, 1)
        self._half = SecondHalf(flows, 0, 1)

    def _given(
        self, parcels: Mapping[int, Parcel], tick: Tick, info: ReadInfo, chosen: Flows, number: int
    ) -> pa.RecordBatch:
        held = [parcels[0].to_bytes()] if parcels else []
        out, _ = self._half.step(BucketState(MemoryEntries()), 0, held, tick, flows=chosen)
        if info.first and number == 0:
            out += _told(self._half, tick, chosen)
        return pa.RecordBatch.from_pylist([{"parcel": _packed(out, tick)}] if out else [], schema=_ARROW_OUT)


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
    """May a `WholeReader` do all of these?"""
    return all(len(flow.stages) == 1 and not flow.keeps_state for flow in flows)


def _asked(flows: Sequence[Flow]) -> dict[str, frozenset[str]]:
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
    return frame.with_columns(_ARRIVED)


def row_parcels(
    frame: DataFrame,
    flows: Sequence[Flow],
    buckets: int,
    *,
    clock: Instant,
    ended: bool,
    marked: Callable[[pl.DataFrame], Instant | None],
    as_read: Mapping[str, pl.DataType] | None = None,
    hold: Duration | None = 0,
) -> DataFrame:
    """Rows of any DataFrame as parcels. For a stream with a column `mark`, the time from which Spark's watermark
    follows (`marked` finds it in a frame); with `ended`, the whole input, with the time of its end. By the clock of
    whoever reads a stream its rows are from the future or not. Rows that were once read from a log have the columns
    `as_read` again, and are judged by when they reached it. The parcels of a stream tell the mark as their watermark,
    and as what was before what Spark's watermark was expected to reach at most (see `expected`); it is `hold` behind
    ours, or (None) follows other rows, of which nothing is known."""
    dealer = _RowDealer(flows, buckets, judged=ended)
    names = [flow.name for flow in flows]
    ids = bucket_ids(buckets)
    schema = _ARROW.append(pa.field("mark", pa.timestamp("us", "UTC")))
    arrival = ARRIVAL if as_read is not None or not ended else None

    def half(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        reached = None if ended or hold is None else expected()
        bound = None if reached is None or hold is None else reached + hold
        first = True
        for number, batch in enumerate(batches):
            rows = cast(pl.DataFrame, pl.from_arrow(in_utc(batch)))
            if as_read is not None:
                rows = rows.cast(dict(as_read)).with_columns(_ARRIVED)  # type: ignore[arg-type]
            elif not ended:
                rows = rows.with_columns(pl.lit(now(), pl.Int64).alias(ARRIVAL))
            parcels: dict[int, Parcel] = {}
            for name in names:
                spare = (task + number) % buckets
                dealer.deal(parcels, name, [Rows(rows)], None, arrival=arrival, spare=spare, bound=bound)
            mark = marked(rows)
            tick = Tick(None, END_OF_TIME, clock) if ended else Tick(bound, mark, clock)
            # Every bucket hears of the time, whatever it gets; and it gets what a task gives in its order.
            out = _rows(parcels, ids, task * _FRAMES_PER_TASK + number, tick, everyone=first or not ended)
            yield out.append_column("mark", pa.repeat(pa.scalar(mark, pa.timestamp("us", "UTC")), out.num_rows))
            first = False
        if first and ended:
            out = _rows({}, ids, task, Tick(None, END_OF_TIME, clock), everyone=True)
            yield out.append_column("mark", pa.nulls(out.num_rows, pa.timestamp("us", "UTC")))

    return frame.mapInArrow(half, spark_schema(schema))


def with_ticks(parcels: DataFrame, buckets: int) -> DataFrame:
    """Parcels of a stream, and every second one for each bucket in which is nothing."""
    told = _rows({}, bucket_ids(buckets), 0, Tick(None, None, 0), everyone=True)
    return parcels.union(ticks(parcels.sparkSession, told, PARCELS))


class _RowDealer(Lasting, Dealer):
    """A dealer as tasks that read rows take it along."""


class _StateHalf(Lasting, SecondHalf):
    """The second half as a state operator takes it along."""


class _BucketProcessor(StatefulProcessor):
    """The stages of one depth in Spark's state operator."""

    def __init__(
        self,
        half: SecondHalf,
        buckets: int,
        *,
        delay: Duration | None = None,
        hold: Duration = 0,
        inherited: bool = False,
        made_for: MadeFor | None = None,
    ) -> None:
        self._half = half
        self._hold = hold
        self._inherited = inherited
        self._made_for = made_for
        self._numbers = {value: number for number, value in enumerate(bucket_ids(buckets))}
        self._ids = bucket_ids(buckets)
        self._delay = delay
        self._follows = inherited or delay is not None

    def init(self, handle: StatefulProcessorHandle) -> None:
        settle()
        self._handle = handle
        self._entries = handle.getMapState("frames", _NAME, _FRAME)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        held = sorted(rows, key=lambda row: row.task)
        state = BucketState(cast(Entries, self._entries), self._made_for)
        if self._follows and "timer" not in state.notes:
            # It is new. State from before this was noted has Spark's watermark as its own.
            state.notes["hold"] = self._hold
        if self._inherited:
            yield from self._at_spark_time(key[0], state, [bytes(row.parcel) for row in held], timerValues)
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
            yield from self._at_spark_time(key[0], state, [bytes(row.parcel) for row in held], timerValues)
            return
        lanes = sorted({row.lane for row in held})
        for lane in lanes:
            mine = [row for row in held if row.lane == lane]
            tick = _time_of(mine)
            flows = Flows(lane.split("/") if lane else (), [flow for other in lanes for flow in other.split("/")])
            yield from self._step(key[0], state, [bytes(row.parcel) for row in mine], tick, flows=flows, lane=lane)
        state.save()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        state = BucketState(cast(Entries, self._entries), self._made_for)
        yield from self._at_spark_time(key[0], state, None, timerValues)

    def _at_spark_time(
        self, bucket: int, state: BucketState, parcels: list[bytes] | None, timer_values: Any
    ) -> Iterator[Row]:
        """Spark's watermark is of the batches before: time moves first, then the rows come. But what Spark's operators
        give as it moves is late by the watermark that they had before: there both come together."""
        clock = timer_values.getCurrentProcessingTimeInMs() * 1_000
        sparks = _watermark(timer_values)
        watermark = None if sparks is None else sparks + state.notes.get("hold", 0)
        before = state.notes.get("watermark")
        moves = watermark is not None and (before is None or watermark > before)
        if self._inherited and parcels is not None:
            yield from self._step(bucket, state, parcels, Tick(before, watermark if moves else before, clock))
            parcels = None
        elif moves:
            assert watermark is not None
            yield from self._step(bucket, state, [], Tick(before, watermark, clock))
        if moves:
            state.notes["watermark"] = cast(Instant, watermark)
        if parcels is not None:
            yield from self._step(bucket, state, parcels, Tick(watermark, watermark, clock))
        due = (sparks or 0) // 1_000 + 1
        if state.notes.get("timer") != due:
            self._handle.registerTimer(due)
            state.notes["timer"] = due
        state.save()

    def _step(
        self,
        bucket: int,
        state: BucketState,
        parcels: list[bytes],
        tick: Tick,
        *,
        flows: Flows | None = None,
        lane: str = "",
    ) -> Iterator[Row]:
        number = self._numbers[bucket]
        out, forward = self._half.step(state, number, parcels, tick, flows=flows)
        if self._half.last:
            if number == 0:
                out += _told(self._half, tick, flows)
            if out:
                yield Row(parcel=_packed(out, tick))
            return
        # Bucket 0 is called in every batch: it tells the others the time.
        onward = _rows(forward, self._ids, bucket, tick, everyone=number == 0, lane=lane)
        for row in onward.to_pylist():
            yield Row(**row)


def _watermark(timer_values: Any) -> Instant | None:
    """Spark's watermark."""
    reached: Instant = timer_values.getCurrentWatermarkInMs() * 1_000
    return None if reached <= 0 else reached


def _check_bounds(rows: Sequence[Row], watermark: Instant | None) -> None:
    """Parcels hold all rows that are late by the watermark that was expected at most; it must not be ahead of that."""
    passed = [row.before for row in rows if row.before is not None and watermark is not None and row.before < watermark]
    if passed:
        raise DefinitionError(
            f"Spark's watermark, {watermark} µs, is ahead of {passed[0]} µs, which is what follows from these rows: "
            "the query has another watermark that is ahead, and follows the highest. Late rows could not be told; "
            'set spark.sql.streaming.multipleWatermarkPolicy to "min" (Spark\'s default)'
        )


def _time_of(rows: Sequence[Row]) -> Tick:
    """The time that parcels of one batch tell: the stage before moves it in two steps where it follows Spark's."""
    before = [row.before for row in rows]
    reached = [row.watermark for row in rows if row.watermark is not None]
    return Tick(None if None in before else min(before), max(reached, default=None), max(row.clock for row in rows))


def _told(half: SecondHalf, tick: Tick, flows: Flows | None) -> list[tuple[str, str, pl.DataFrame]]:
    """How far event time is, for whoever reads the results, if it has moved."""
    if tick.watermark in (None, tick.before, END_OF_TIME):
        return []
    told = pl.DataFrame({"watermark": [tick.watermark]}, schema={"watermark": pl.Int64})
    return [(flow, TICK, told) for flow in half.flows if flows is None or flow in flows]


def _packed(out: Sequence[tuple[str, str, pl.DataFrame]], tick: Tick) -> bytes:
    parcel = Parcel()
    parcel.add("", CLOCK, pl.DataFrame({"clock": [tick.clock]}, schema={"clock": pl.Int64}))
    for flow, port, frame in out:
        parcel.add(flow, port, frame)
    return parcel.to_bytes()


def with_state(
    parcels: DataFrame,
    flows: Sequence[Flow],
    buckets: int,
    *,
    depth: int = 1,
    delay: Duration | None = None,
    hold: Duration = 0,
    inherited: bool = False,
    made_for: MadeFor | None = None,
) -> DataFrame:
    """The state operators of a stream: one for each depth, at least `depth`. Gives rows with one column `parcel`.
    `delay`: time is Spark's watermark, which is so far behind the marks of the rows, and a `hold` more; or it is the
    one that the rows have, `inherited`.
    `made_for`: what the state is refused for if it was made for something else. Every bucket is called when there are
    rows, and one has the same id whatever their number (see `bucket_ids`), so the first batch tells."""
    depth = max([depth, *(len(flow.stages) for flow in flows)])
    frame = parcels
    for level in range(depth):
        follows = level == 0 and (delay is not None or inherited)
        judged = not follows
        half = _StateHalf(flows, level, buckets, judged=judged, last=level + 1 == depth)
        frame = frame.groupBy("bucket").transformWithState(
            _BucketProcessor(
                half,
                buckets,
                delay=delay if follows else None,
                hold=hold,
                inherited=inherited and follows,
                made_for=made_for,
            ),
            outputStructType=OUT if half.last else PARCELS,
            outputMode="append",
            timeMode="EventTime" if follows else "None",
        )
    return frame


def in_memory(parcels: DataFrame, flows: Sequence[Flow], buckets: int) -> DataFrame:
    """The same for bounded input, which comes at once and needs no state store."""
    frame = parcels.drop("mark")
    depth = max(len(flow.stages) for flow in flows)
    for level in range(depth):
        half = _StateHalf(flows, level, buckets, last=level + 1 == depth)
        schema = _ARROW_OUT if half.last else _ARROW
        frame = frame.groupBy("bucket").applyInArrow(_at_once(half, buckets), spark_schema(schema))
    return frame


def _at_once(half: SecondHalf, buckets: int) -> Callable[[pa.Table], pa.Table]:
    """The stages of one depth on all that a bucket gets."""
    ids = bucket_ids(buckets)

    def run(table: pa.Table) -> pa.Table:
        settle()
        rows = sorted(table.to_pylist(), key=lambda row: row["task"])
        number = ids.index(rows[0]["bucket"])
        tick = Tick(rows[0]["before"], rows[0]["watermark"], rows[0]["clock"])
        out, forward = half.step(BucketState(MemoryEntries()), number, [row["parcel"] for row in rows], tick)
        if half.last:
            packed = [{"parcel": _packed(out, tick)}] if out else []
            return pa.Table.from_pylist(packed, schema=_ARROW_OUT)
        return pa.Table.from_batches([_rows(forward, ids, number, tick, everyone=number == 0)])

    return run


def as_columns(parcels: DataFrame, flow: str, outputs: OutputColumns) -> DataFrame:
    """The outputs of a flow in parcels, as plain columns."""

    def columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column("parcel").to_pylist():
                for name, port, frame in Parcel.read(data):
                    if name == flow and port in outputs.schemas:
                        yield outputs.rows(port, frame)

    return parcels.mapInArrow(columns, spark_schema(outputs.schema))
