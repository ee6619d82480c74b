"""Results become Spark queries."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pyarrow as pa
from google.protobuf.message import Message
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidewheel.engine.batch_identity import check_results, has_written
from tidewheel.engine.batch_limit import MAX_BYTES
from tidewheel.engine.batch_sinks import BatchSinks, Sink
from tidewheel.engine.checkpoint import Checkpoint
from tidewheel.engine.flow import Flow, prepared
from tidewheel.engine.frame_watermark import INHERITED_HOLD, behind, carrying, hold
from tidewheel.engine.halves import METRICS
from tidewheel.engine.input import FrameInput, LogInput, definition
from tidewheel.engine.job import Job
from tidewheel.engine.lanes import Roster, where
from tidewheel.engine.local_files import sink_forces
from tidewheel.engine.made_for import MadeFor
from tidewheel.engine.offset import Offset
from tidewheel.engine.operator import RESULTS
from tidewheel.engine.options import METADATA, reader_function
from tidewheel.engine.output_columns import OutputColumns
from tidewheel.engine.parcel_sink import ParcelTarget
from tidewheel.engine.query import (
    OUT,
    PARCELS,
    ReaderHalf,
    WholeReader,
    as_columns,
    in_memory,
    needs_no_state,
    row_parcels,
    with_state,
    with_ticks,
)
from tidewheel.engine.result_topics import refuse_others_results
from tidewheel.engine.run import Run, Work, explained, java_pid
from tidewheel.engine.session import SETTINGS, check_reach, session
from tidewheel.engine.window_columns import TIME
from tidewheel.engine.worker_python import check_workers
from tidewheel.engine.workers import Lasting, registry_for
from tidewheel.errors import DefinitionError, FlowError, SetupError, TopicNotFoundError
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME
from tidewheel.model.time import Duration, Instant, duration, now
from tidewheel.model.watermarks import Bounded, Inherited, Strategy
from tidewheel.model.windowing import Windowing
from tidewheel.transport.codec import ENVELOPE_COLUMNS
from tidewheel.transport.damage import DamageCount
from tidewheel.transport.dynamic import MADE, define_message, made_name
from tidewheel.transport.log import Log, Topic
from tidewheel.transport.registry import TypeRegistry, type_name, types
from tidewheel.transport.type_topic import carried_type, definitions, publish_types

if TYPE_CHECKING:
    from tidewheel.engine.result import Result

__all__ = [
    "Target",
    "as_frame",
    "called",
    "check",
    "default_targets",
    "from_log",
    "prepared_targets",
    "run",
    "start_flows",
    "write_stream",
    "written_topics",
]

_PLACES = {RESULTS: "analytics"}
_PARTITIONS = "spark.sql.shuffle.partitions"
_FEW_PARTITIONS = 32
"""So many may stay empty without a word."""

_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True)
class Target:
    """Where an output goes, and the message type of its events; without one a type is made from the columns."""

    topic: Topic
    type: str | type[Message] | None = None
    key: tuple[str, ...] = ()
    """The columns that make the key of a record; those of the last stage if none are named."""


def as_frame(
    result: Result, spark: SparkSession | None, *, buckets: int | None, outputs: str | Sequence[str] | None = None
) -> DataFrame:
    """The outputs of a result as a DataFrame: all of them, one alone, or some, each in a struct."""
    flow = result.flow()
    source = result.input
    shown = OutputColumns.of(result.schemas(), outputs)
    if isinstance(source, LogInput):
        spark = session(spark)
        check_reach(spark, source.log)
        check_workers(spark)
        _check_state_store(spark)
        number = _buckets(spark, buckets)
        _tell_partitions(spark, number, buckets)
        parcels = from_log(spark, [result], [result], number, {})
        return as_columns(with_state(parcels, [flow], number, made_for=_made_for(result, number)), flow.name, shown)
    check_workers(source.spark)
    number = _buckets(source.spark, buckets)
    if not source.frame.isStreaming:
        parcels = row_parcels(source.frame, [flow], number, clock=now(), ended=True, marked=lambda rows: None)
        return as_columns(in_memory(parcels, [flow], number), flow.name, shown.static())
    _check_state_store(source.spark)
    _tell_partitions(source.spark, number, buckets)
    return _streaming(result, source, number, shown)


def _streaming(result: Result, source: FrameInput, buckets: int, shown: OutputColumns) -> DataFrame:
    """The outputs of a result over a streaming DataFrame, by the watermark that it has or gets."""
    flow = result.flow()
    late = behind(flow)
    watermark = source.watermark
    if isinstance(watermark, Inherited):
        parcels = row_parcels(
            source.frame, [flow], buckets, clock=0, ended=False, marked=lambda rows: None, hold=None
        ).drop("mark")
        delay, held = None, INHERITED_HOLD
        # Nothing can hold that watermark back. Results that may be behind it do not carry it: Spark's next operator
        # would drop them and say nothing; without it, Spark refuses such an operator.
        carried = 0 if late == 0 else None
    else:
        assert isinstance(watermark, Bounded)
        delay, held = watermark.delay, 0 if late is None else hold(late)
        marked = _Mark(flow, watermark.future)
        rows = row_parcels(source.frame, [flow], buckets, clock=0, ended=False, marked=marked, hold=held)
        parcels = rows.withWatermark("mark", f"{delay + held} microseconds").drop("mark")
        carried = None if late is None else delay + held
    if flow.waits_for_clock:
        parcels = with_ticks(parcels, buckets)
    made_for = _made_for(result, buckets)
    kept = with_state(parcels, [flow], buckets, delay=delay, hold=held, inherited=delay is None, made_for=made_for)
    columns = as_columns(kept, flow.name, shown)
    # Of the other outputs, late rows above all are behind it.
    return columns if carried is None or shown.plain != RESULTS else carrying(columns, carried)


def write_stream(
    result: Result,
    sinks: Mapping[str, Sink],
    *,
    checkpoint: str | Path,
    available_now: bool,
    trigger: str | timedelta | None,
    name: str | None,
    spark: SparkSession | None,
    buckets: int | None,
) -> StreamingQuery:
    """Start one query that writes every output to a sink of its own."""
    if not isinstance(result.input, LogInput) and not result.input.frame.isStreaming:
        raise DefinitionError('writeStream: the DataFrame is not streaming; write it with df("results").write')
    if available_now and trigger is not None:
        raise DefinitionError("writeStream: give available_now or trigger, not both")
    written = BatchSinks.of(sinks, list(result.schemas()), str(checkpoint))
    owner = session(spark) if isinstance(result.input, LogInput) else result.input.spark
    with _partitions(owner, _buckets(owner, buckets)):
        frame = as_frame(result, owner, buckets=buckets, outputs=list(sinks))
        writer = frame.writeStream.foreachBatch(written).outputMode("append")
        writer = writer.option("checkpointLocation", str(checkpoint))
        if name is not None:
            writer = writer.queryName(name)
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            every = duration(trigger, what="trigger")
            writer = writer.trigger(processingTime=f"{max(every // 1_000, 1)} milliseconds")
        return writer.start()


class _Mark(Lasting):
    """The highest event time of rows that can be believed: Spark's watermark follows it."""

    def __init__(self, flow: Flow, future: Duration | None) -> None:
        self._flow = flow
        self._future = future

    def __call__(self, rows: pl.DataFrame) -> Instant | None:
        times = prepared(self._flow.stages[0], rows)[TIME]
        limit = END_OF_TIME - 1 if self._future is None else now() + self._future
        return cast("Instant | None", times.filter((times >= START_OF_TIME) & (times <= limit)).max())


def start_flows(
    results: Mapping[Result, Mapping[str, Target]],
    log: Log,
    *,
    checkpoint: str | Path,
    name: str,
    spark: SparkSession | Callable[[], SparkSession] | None = None,
    available_now: bool = False,
    begin: str = "earliest",
    max_events_per_batch: int = 100_000,
    max_bytes_per_batch: int = MAX_BYTES,
    buckets: int | None = None,
    clock: str = "wall",
    accept_changes: bool = False,
    skip_damaged: bool = False,
    append_to_existing: bool = False,
) -> Run:
    """Start one query for all these results of one log, each with its outputs' targets. `spark`: a session, or what
    starts one when all that can be refused without it was looked at."""
    topics = check(results, log)
    held = Checkpoint(checkpoint)
    if buckets is None:  # those of another machine are as good
        buckets = (held.purpose() or {}).get("buckets")
    flows = {str(result.name): _definition(result) for result in results}
    purpose = json.loads(json.dumps({"job": name, "log": log.identity, "flows": flows}))
    given = {} if buckets is None else {"buckets": buckets}
    held.check({**purpose, **given}, accept_changes=accept_changes)
    # What a query writes into must be empty before it starts, and still when its first results come.
    exclusive = not append_to_existing and not has_written(log, held.spark_folder)
    if exclusive:
        refuse_others_results(log, written_topics(results), held.folder)
    spark = session(spark() if callable(spark) else spark)
    check_reach(spark, log)
    check_workers(spark)
    if not needs_no_state([result.flow() for result in results]):
        _check_state_store(spark)
    number = _buckets(spark, buckets)
    held.acquire({**purpose, "buckets": number}, accept_changes=accept_changes)
    work = Work(name, topics)
    try:
        held.check_files()
        if held.notes_every_batch:
            check_results(log, held.spark_folder)
        targets = prepared_targets(results, log, topics)
        held.note_helper(java_pid(spark))
        resumed = Roster.read(held.roster_file).resume()
        resumed.write(held.roster_file)
        options = {
            "start": begin,
            "maxEventsPerBatch": str(max_events_per_batch),
            "maxBytesPerBatch": str(max_bytes_per_batch),
            "malformed": "dead",
            "skipDamaged": str(skip_damaged).lower(),
            "group": name,
            "stopFile": str(held.stop_file),
            "lanesFile": str(held.roster_file),
            "firstFile": str(held.first_file),
            "clock": clock,
            "ticking": str(clock == "wall" and any(result.flow().waits_for_clock for result in results)).lower(),
        }
        damaged = DamageCount(log, name) if skip_damaged else None
        shared = _Shared(spark, log, held, list(results), targets, number, name, options, available_now, exclusive)
        query = shared.start()
    except BaseException as error:
        held.release()
        if isinstance(error, PySparkException):
            raise explained(work.name, error) from error
        raise
    mend = shared.without_the_failed if len(results) > 1 else None
    live = not available_now and clock == "wall"
    return Run(work, log, query, held, mend=mend, live=live, damaged=damaged)


def written_topics(results: Mapping[Result, Mapping[str, Target]]) -> set[str]:
    """The topics that would hold everything twice if two runs wrote it; metrics say which run they are of."""
    return {target.topic.name for targets in results.values() for port, target in targets.items() if port != METRICS}


def prepared_targets(
    results: Mapping[Result, Mapping[str, Target]], log: Log, topics: Sequence[str]
) -> dict[tuple[str, str], ParcelTarget]:
    """Where the outputs of results go; with the topics and the types that are read and written in the log."""
    targets = _targets(results, log)
    for topic in (*topics, *(target.topic for target in targets.values())):
        log.ensure_topic(topic)
    read = {message for _, message, _ in _readings(results)}
    known = {*read, *(target.type for target in targets.values())}
    # Those that this program does not know came from the log.
    publish_types(log, types, sorted(name for name in known if name in types and not name.startswith(MADE)))
    return targets


@dataclass(frozen=True)
class _Shared:
    """The query that results share, which can be started again without those that failed."""

    spark: SparkSession
    log: Log
    held: Checkpoint
    results: Sequence[Result]
    targets: Mapping[tuple[str, str], ParcelTarget]
    buckets: int
    name: str
    options: Mapping[str, str]
    available_now: bool
    exclusive: bool
    """No other run has written into its topics, and none may have when its first results come."""

    def start(self) -> StreamingQuery:
        """Start it with all that were not taken out."""
        # In a thread that has not used it, Spark finds no session, and with it not the format "tidewheel".
        self.spark.createDataFrame([], "nothing INT")
        self.held.drop_unfinished()
        suspended = Roster.read(self.held.roster_file).suspended
        running = [result for result in self.results if result.name not in suspended]
        # Those that wait are read for nothing, but their topics keep their place in the offsets, and their state
        # operators in the plan.
        flows = [result.flow() for result in running]
        if needs_no_state([result.flow() for result in self.results]):
            rows = _read(self.spark, self.results, WholeReader(flows), OUT, self.options)
        else:
            parcels = from_log(self.spark, self.results, running, self.buckets, self.options)
            depth = max(len(result.stages) for result in self.results)
            rows = with_state(parcels, flows, self.buckets, depth=depth)
        writer = (
            rows.writeStream.format("tidewheel")
            .queryName(f"{self.name} {now()}")
            .outputMode("append")
            .option("log", self.log.address)
            .option("parcels", base64.b64encode(cloudpickle.dumps(dict(self.targets))).decode())  # type: ignore[no-untyped-call]
            .option("exclusive", ",".join(sorted(self._exclusive())))
            .option("fsync", str(sink_forces(self.spark)).lower())
            .option("checkpointLocation", self.held.spark_folder)
        )
        with _partitions(self.spark, self.buckets):
            return writer.trigger(availableNow=True).start() if self.available_now else writer.start()

    def _exclusive(self) -> set[str]:
        if not self.exclusive:
            return set()
        return {target.topic for (_, port), target in self.targets.items() if port != METRICS}

    def without_the_failed(self, error: PySparkException) -> StreamingQuery | None:
        """Take out the one that broke the query, and start the others again; None if it was none of them, or the last
        one."""
        found = explained(self.name, error)
        if not isinstance(found, FlowError):
            return None
        message = str(found).removeprefix(f"job {self.name}: ")
        flow, _, reason = message.partition(": ")
        roster = Roster.read(self.held.roster_file)
        names = {str(result.name) for result in self.results}
        if flow not in names or names <= {*roster.suspended, flow}:
            return None
        reached = Offset.from_json(self.held.last_offset())
        roster.suspend(flow, reason, where(reached, flow, roster)).write(self.held.roster_file)
        return self.start()


@contextmanager
def _partitions(spark: SparkSession, buckets: int) -> Iterator[None]:
    """Let a query that is started now have a partition for each bucket: one without a bucket costs each batch as much
    as one with, and does nothing. (A query goes on with the settings of its start, one with a checkpoint with the
    number of partitions in it.)"""
    before = str(spark.conf.get(_PARTITIONS))
    spark.conf.set(_PARTITIONS, str(buckets))
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, before)


def run(
    *jobs: Job | Result,
    log: Log,
    checkpoint: str | Path,
    name: str | None = None,
    spark: SparkSession | None = None,
    available_now: bool = False,
    begin: str = "earliest",
    max_events_per_batch: int = 100_000,
    max_bytes_per_batch: int = MAX_BYTES,
    buckets: int | None = None,
    accept_changes: bool = False,
    skip_damaged: bool = False,
    append_to_existing: bool = False,
) -> Run:
    """Start jobs and results of one log as one query: one scan and one decode per topic, one shuffle and one state
    operator per depth of chaining. Each has a name (a job its own, a result the one of `result.named("delays")`): its
    outputs go to `analytics.<name>`, `late.<name>` and `metrics.<name>`, and further ones to `<output>.<name>`.

    A job alone has its own parameters' defaults; `job.on(log, resolution=8)` is a result with others. `name` is that of
    the run: in the log its progress is noted under it, and what is malformed goes to `dead.<name>`; without one it is
    that of the only result, or "jobs". The checkpoint remembers what it was made for, and another job is refused before
    Spark is started; with `accept_changes` jobs that keep no state may go on with other parameters and steps. A new
    checkpoint does not write into topics that hold results of another run, which would be there twice, unless
    `append_to_existing` says so. With `skip_damaged` it goes on without records whose blocks are damaged in the log's
    file: `dead.<name>` has a letter for each stretch, and `progress().damaged` their number.
    """
    targets = default_targets(jobs, log)
    return start_flows(
        targets,
        log,
        checkpoint=checkpoint,
        name=name or called(targets),
        spark=spark,
        available_now=available_now,
        begin=begin,
        max_events_per_batch=max_events_per_batch,
        max_bytes_per_batch=max_bytes_per_batch,
        buckets=buckets,
        accept_changes=accept_changes,
        skip_damaged=skip_damaged,
        append_to_existing=append_to_existing,
    )


def called(results: Iterable[Result]) -> str:
    """What a run of these results is called unless it was told."""
    names = [str(result.name) for result in results]
    return names[0] if len(names) == 1 else "jobs"


def default_targets(jobs: Sequence[Job | Result], log: Log) -> dict[Result, dict[str, Target]]:
    """Every output of jobs and results, each in the topic that is called after it."""
    if not jobs:
        raise DefinitionError("run: give at least one job or result")
    found: dict[Result, dict[str, Target]] = {}
    for each in jobs:
        result = each.on(log) if isinstance(each, Job) else each
        place = {port: log.topic(f"{_PLACES.get(port, port)}.{result.name}") for port in result.schemas()}
        found[result] = {
            port: Target(topic, result.writes, result.key) if port == RESULTS else Target(topic)
            for port, topic in place.items()
        }
    return found


def from_log(
    spark: SparkSession,
    results: Sequence[Result],
    running: Sequence[Result],
    buckets: int,
    options: Mapping[str, str],
    *,
    ended: bool = False,
) -> DataFrame:
    """The rows of a log's topics as parcels: a stream, or if it has `ended` all that is there."""
    half = ReaderHalf([result.flow() for result in running], buckets, ended=ended)
    return _read(spark, results, half, PARCELS, options, ended=ended)


def _read(
    spark: SparkSession,
    results: Sequence[Result],
    transform: ReaderHalf,
    schema: str,
    options: Mapping[str, str],
    *,
    ended: bool = False,
) -> DataFrame:
    """What the log's reader makes of the topics of these results."""
    inputs = [result.input for result in results if isinstance(result.input, LogInput)]
    kinds: dict[str, str] = {}
    marks: dict[str, Any] = {}
    for topic, message, strategy in _readings(results):
        if kinds.setdefault(topic, message) != message:
            raise DefinitionError(f"topic {topic!r} is read as {kinds[topic]} and as {message}; choose one")
        mark = strategy.to_json()
        if marks.setdefault(topic, mark) != mark:
            raise DefinitionError(
                f"topic {topic!r} is read with two watermarks, {marks[topic]} and {mark}; results that share a "
                "query share the watermark of a topic: use one, or start them apart"
            )
    reader = (spark.read if ended else spark.readStream).format("tidewheel")
    for key, value in {**inputs[0].options(), **options}.items():
        reader = reader.option(key, value)
    return (
        reader.option("topics", ",".join(sorted(kinds)))
        .option("type", json.dumps(kinds))
        .option("watermark", json.dumps(marks))
        .option("transform", reader_function(transform))
        .option("transformSchema", schema)
        .load()
    )


def _readings(results: Iterable[Result]) -> Iterator[tuple[str, str, Strategy]]:
    """The topics that results read, with the type of their messages and the watermark."""
    for result in results:
        if isinstance(result.input, LogInput):
            for topic in result.input.topics:
                yield topic, result.input.message, result.input.watermark
            for told in result.flow().told.values():
                yield told.topic, told.message, told.strategy


def _buckets(spark: SparkSession, given: int | None) -> int:
    number = given if given is not None else int(str(spark.conf.get(_PARTITIONS)))
    if number < 1:
        raise DefinitionError(f"buckets must be at least 1, got {number}")
    return min(number, 64) if given is None else number


def _tell_partitions(spark: SparkSession, buckets: int, given: int | None) -> None:
    """Warn of partitions that will stay empty: who starts the query of a DataFrame decides how many there are."""
    partitions = int(str(spark.conf.get(_PARTITIONS)))
    if partitions > max(2 * buckets, _FEW_PARTITIONS):
        context: Any = getattr(spark, "_sc", None)  # a client of Spark Connect has none
        enough = given or (8 if context is None else int(context.defaultParallelism))
        warnings.warn(
            f"this session has {_PARTITIONS} = {partitions}, and the result {buckets} buckets: in every micro-batch "
            f"Spark opens and commits the state of {partitions} partitions, {partitions - buckets} of them empty, "
            "which takes many times as long as the work. Before the query is first started (its checkpoint keeps the "
            f'number), say spark.conf.set("{_PARTITIONS}", "{enough}")',
            stacklevel=4,
        )


def _check_state_store(spark: SparkSession) -> None:
    """Refuse a session that cannot keep state, before a checkpoint is made: it would remember the wrong store."""
    chosen = str(spark.conf.get(_STATE_STORE))
    if "RocksDB" not in chosen:
        raise SetupError(
            f"this needs a Spark session that keeps state in RocksDB, and yours has {chosen.rpartition('.')[2]}; use "
            f'tidewheel.session(), or say before: spark.conf.set("{_STATE_STORE}", "{SETTINGS[_STATE_STORE]}")'
        )


def _definition(result: Result) -> Mapping[str, Any]:
    told = {"parameters": dict(result.parameters)} if result.parameters else {}
    return {**told, **definition(result.input), **result.flow().definition()}


def _made_for(result: Result, buckets: int) -> MadeFor:
    """What the state of a query is made for whose checkpoint is the user's own."""
    flow = result.flow()
    # State is kept under the flow's name.
    return MadeFor.of(buckets, {flow.name: _definition(result)}) if flow.keeps_state else MadeFor(buckets)


def check(results: Mapping[Result, Mapping[str, Target]], log: Log, *, read: Log | None = None) -> list[str]:
    """The topics that results read which are to run together; refuses those that cannot. They write to the log, and
    read it too, unless another one is named."""
    names: set[str] = set()
    topics: set[str] = set()
    for result, targets in results.items():
        if not isinstance(result.input, LogInput) or result.input.log.identity != (read or log).identity:
            raise DefinitionError(f"{result!r} does not read this log; results that run together read one log")
        if not result.name:
            raise DefinitionError(f'{result!r} needs a name to run beside others: result.named("delays")')
        if result.name in names:
            raise DefinitionError(f"two results are named {result.name!r}; give each its own name")
        if "/" in result.name or ":" in result.name:
            raise DefinitionError(f"a result's name has no / and no :, got {result.name!r}")
        names.add(result.name)
        topics |= {topic for topic, _, _ in _readings([result])}
        for target in targets.values():
            if target.topic.log.identity != log.identity:
                raise DefinitionError(f"{result.name}: results go to the log that is read; give a topic of that log")
    return sorted(topics)


def _targets(results: Mapping[Result, Mapping[str, Target]], log: Log) -> dict[tuple[str, str], ParcelTarget]:
    found: dict[tuple[str, str], ParcelTarget] = {}
    made = TypeRegistry()
    defined = definitions(log)
    for result, targets in results.items():
        schemas = result.schemas()
        keys = result.stages[-1].keys
        for port, target in targets.items():
            fields = [field for field in schemas[port] if field.name not in (*ENVELOPE_COLUMNS, *METADATA.names)]
            if target.type is None:
                known = made_name(target.topic.name)
                if known not in defined:
                    # Results that are there keep their type, by the name that earlier versions gave it.
                    there = carried_type(log, target.topic.name)
                    known = there if there and there.startswith(MADE) else known
                earlier = {known: defined[known]} if known in defined and _holds(log, target.topic.name) else {}
                kind = define_message(made, target.topic.name, pa.schema(fields), full=known, earlier=earlier)
                columns = tuple(field.name for field in fields)
            else:
                if not isinstance(target.type, str):
                    types.register(target.type)
                kind = type_name(target.type)
                message = (types if kind in types else registry_for(log.address, kind)).schema(kind)
                columns = _fitting(kind, message.names, [field.name for field in fields], result)
            key = target.key or tuple(name for name in keys if name in schemas[port].names)
            lost = [name for name in key if name not in schemas[port].names]
            if lost:
                raise DefinitionError(
                    f"{result.name}: the key names a column {lost[0]!r} that the results lack; they have "
                    f"{', '.join(schemas[port].names)}"
                )
            found[str(result.name), port] = ParcelTarget(target.topic.name, kind, columns, key, port == RESULTS)
    publish_types(log, made, made.names())
    return found


def _holds(log: Log, topic: str) -> bool:
    try:
        return log.topic_info(topic).count > 0
    except TopicNotFoundError:
        return False


def _fitting(kind: str, fields: Sequence[str], there: Sequence[str], result: Result) -> tuple[str, ...]:
    """The columns that fill the message: all of its fields must be there, and it must have room for what was asked."""
    missing = [name for name in fields if name not in there]
    if missing:
        raise DefinitionError(f"{kind} has a field {missing[0]!r} that the results lack; they have {', '.join(there)}")
    stage = result.stages[-1]
    asked = [*stage.keys, *stage.what.aggregates] if isinstance(stage.what, Windowing) else list(stage.keys)
    homeless = [name for name in asked if name in there and name not in fields]
    if homeless:
        raise DefinitionError(f"{kind} has no field for the column {homeless[0]!r}; its fields: {', '.join(fields)}")
    if result.retracting and "retraction" not in fields:
        weighted = isinstance(stage.what, Windowing) and stage.what.weighted
        instead = 'accumulate("delta")' if weighted else 'accumulate("value") or accumulate("delta")'
        raise DefinitionError(
            f"{kind} has no field 'retraction', and {result.name} may retract results: nobody could tell those from "
            f"results. Add `bool retraction` to it, or use {instead}; if it reads a topic that has no retractions, say "
            "stream(..., retracting=False)"
        )
    return tuple(fields)
