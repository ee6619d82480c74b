"""Results become Spark queries."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from google.protobuf.message import Message
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidewheel.engine.checkpoint import Checkpoint
from tidewheel.engine.flow import Flow, prepared
from tidewheel.engine.input import LogInput, definition
from tidewheel.engine.operator import RESULTS
from tidewheel.engine.options import reader_function
from tidewheel.engine.parcel_sink import ParcelTarget
from tidewheel.engine.query import PARCELS, ReaderHalf, as_columns, in_memory, row_parcels, with_state
from tidewheel.engine.run import Run, Work, explained, java_pid
from tidewheel.engine.session import session
from tidewheel.engine.window_columns import TIME
from tidewheel.errors import DefinitionError, TopicNotFoundError
from tidewheel.model.process import Process
from tidewheel.model.time import Duration, now
from tidewheel.model.watermarks import Bounded
from tidewheel.transport.dynamic import define_message
from tidewheel.transport.log import Log, Topic
from tidewheel.transport.registry import type_name, types
from tidewheel.transport.type_topic import publish_types

if TYPE_CHECKING:
    from tidewheel.engine.result import Result

__all__ = ["Target", "as_frame", "start_flows"]


@dataclass(frozen=True)
class Target:
    """Where an output goes, and the message type of its events; without one a type is made from the columns."""

    topic: Topic
    type: str | type[Message] | None = None


def as_frame(result: Result, spark: SparkSession | None, *, buckets: int | None) -> DataFrame:
    """The outputs of a result as a DataFrame."""
    flow = result.flow()
    source = result.input
    schemas = result.schemas()
    if isinstance(source, LogInput):
        spark = session(spark)
        number = _buckets(spark, buckets)
        parcels = _from_log(spark, [result], number, streaming=True)
        return as_columns(with_state(parcels, [flow], number), flow.name, schemas)
    number = _buckets(source.spark, buckets)
    if not source.frame.isStreaming:
        parcels = row_parcels(source.frame, flow, number, clock=now(), ended=True, marked=lambda rows: None)
        return as_columns(in_memory(parcels, [flow], number), flow.name, schemas)
    assert isinstance(source.watermark, Bounded)
    marked = _Mark(flow, source.watermark.future)
    parcels = row_parcels(source.frame, flow, number, clock=0, ended=False, marked=marked)
    watched = parcels.withWatermark("mark", f"{source.watermark.delay} microseconds").drop("mark")
    return as_columns(with_state(watched, [flow], number, spark_time=True), flow.name, schemas)


class _Mark:
    """The highest event time of rows that can be believed: Spark's watermark follows it."""

    def __init__(self, flow: Flow, future: Duration | None) -> None:
        self._flow = flow
        self._future = future

    def __call__(self, rows: pl.DataFrame) -> datetime | None:
        times = prepared(self._flow.stages[0], rows)[TIME]
        limit = 253_402_300_799_999_999 if self._future is None else now() + self._future
        highest = times.filter(times <= limit).max()
        return None if highest is None else pl.Series([highest], dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))[0]


def start_flows(
    results: Mapping[Result, Mapping[str, Target]],
    log: Log,
    *,
    checkpoint: str | Path,
    name: str,
    spark: SparkSession | None = None,
    available_now: bool = False,
    begin: str = "earliest",
    max_events_per_batch: int = 100_000,
    buckets: int | None = None,
) -> Run:
    """Start one query for all these results of one log, each with its outputs' targets."""
    topics = _check(results, log)
    held = Checkpoint(checkpoint)
    spark = session(spark)
    number = _buckets(spark, buckets)
    purpose = {
        "job": name,
        "log": log.identity,
        "buckets": number,
        "flows": {str(result.name): _definition(result) for result in results},
    }
    held.acquire(json.loads(json.dumps(purpose)))
    work = Work(name, topics)
    try:
        targets = _targets(results, log)
        for topic in (*topics, *(target.topic for target in targets.values())):
            try:
                log.topic_info(topic)
            except TopicNotFoundError:
                log.create_topic(topic)
        read = {result.input.message for result in results if isinstance(result.input, LogInput)}
        publish_types(log, types, sorted({*read, *(target.type for target in targets.values())}))
        held.note_helper(java_pid(spark))
        options = {
            "start": begin,
            "maxEventsPerBatch": str(max_events_per_batch),
            "malformed": "dead",
            "group": name,
            "stopFile": str(held.stop_file),
        }
        ordered = list(results)
        parcels = _from_log(spark, ordered, number, streaming=True, **options)
        rows = with_state(parcels, [result.flow() for result in ordered], number)
        writer = (
            rows.writeStream.format("tidewheel")
            .queryName(f"{name} {now()}")
            .outputMode("append")
            .option("log", log.address)
            .option("parcels", base64.b64encode(cloudpickle.dumps(targets)).decode())  # type: ignore[no-untyped-call]
            .option("checkpointLocation", held.spark_folder)
        )
        query = writer.trigger(availableNow=True).start() if available_now else writer.start()
    except BaseException as error:
        held.release()
        if isinstance(error, PySparkException):
            raise explained(work.name, error) from error
        raise
    return Run(work, log, query, held)


def _from_log(
    spark: SparkSession, results: Sequence[Result], buckets: int, *, streaming: bool, **options: str
) -> DataFrame:
    inputs = [result.input for result in results if isinstance(result.input, LogInput)]
    topics = sorted({topic for given in inputs for topic in given.topics})
    kinds: dict[str, str] = {}
    marks: dict[str, Any] = {}
    for given in inputs:
        for topic in given.topics:
            if kinds.setdefault(topic, given.message) != given.message:
                raise DefinitionError(f"topic {topic!r} is read as {kinds[topic]} and as {given.message}; choose one")
            mark = given.watermark.to_json()
            if marks.setdefault(topic, mark) != mark:
                raise DefinitionError(
                    f"topic {topic!r} is read with two watermarks, {marks[topic]} and {mark}; results that share a "
                    "query share the watermark of a topic: use one, or start them apart"
                )
    half = ReaderHalf([result.flow() for result in results], buckets)
    reader = spark.readStream.format("tidewheel")
    for key, value in {**inputs[0].options(), **options}.items():
        reader = reader.option(key, value)
    return (
        reader.option("topics", ",".join(topics))
        .option("type", json.dumps(kinds))
        .option("watermark", json.dumps(marks))
        .option("transform", reader_function(half))
        .option("transformSchema", PARCELS)
        .load()
    )


def _buckets(spark: SparkSession, given: int | None) -> int:
    number = given if given is not None else int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    if number < 1:
        raise DefinitionError(f"buckets must be at least 1, got {number}")
    return min(number, 64) if given is None else number


def _definition(result: Result) -> Mapping[str, Any]:
    return {**definition(result.input), **result.flow().definition()}


def _check(results: Mapping[Result, Mapping[str, Target]], log: Log) -> list[str]:
    names: set[str] = set()
    topics: set[str] = set()
    for result, targets in results.items():
        if not isinstance(result.input, LogInput) or result.input.log.identity != log.identity:
            raise DefinitionError(f"{result!r} does not read this log; results that run together read one log")
        if not result.name:
            raise DefinitionError(f'{result!r} needs a name to run beside others: result.named("delays")')
        if result.name in names:
            raise DefinitionError(f"two results are named {result.name!r}; give each its own name")
        if "/" in result.name or ":" in result.name:
            raise DefinitionError(f"a result's name has no / and no :, got {result.name!r}")
        names.add(result.name)
        topics |= set(result.input.topics)
        for target in targets.values():
            if target.topic.log.identity != log.identity:
                raise DefinitionError(f"{result.name}: results go to the log that is read; give a topic of that log")
    return sorted(topics)


def _targets(results: Mapping[Result, Mapping[str, Target]], log: Log) -> dict[tuple[str, str], ParcelTarget]:
    found: dict[tuple[str, str], ParcelTarget] = {}
    for result, targets in results.items():
        schemas = result.schemas()
        keys = result.stages[-1].keys
        for port, target in targets.items():
            fields = [field for field in schemas[port] if field.name not in ("event_time", "ingestion_time")]
            if target.type is None:
                kind = define_message(types, target.topic.name, _schema(fields))
                columns = tuple(field.name for field in fields)
            else:
                if not isinstance(target.type, str):
                    types.register(target.type)
                kind = type_name(target.type)
                columns = _fitting(kind, [field.name for field in fields], result)
            key = tuple(name for name in keys if name in schemas[port].names)
            found[str(result.name), port] = ParcelTarget(target.topic.name, kind, columns, key, port == RESULTS)
    return found


def _schema(fields: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.schema(fields)


def _fitting(kind: str, there: Sequence[str], result: Result) -> tuple[str, ...]:
    """The columns that fill the message: all of its fields must be there, and it must have room for what was asked."""
    fields = types.schema(kind).names
    missing = [name for name in fields if name not in there]
    if missing:
        raise DefinitionError(f"{kind} has a field {missing[0]!r} that the results lack; they have {', '.join(there)}")
    stage = result.stages[-1]
    asked = list(stage.keys) if isinstance(stage.what, Process) else [*stage.keys, *stage.what.aggregates]
    homeless = [name for name in asked if name not in fields]
    if homeless:
        raise DefinitionError(f"{kind} has no field for the column {homeless[0]!r}; its fields: {', '.join(fields)}")
    return tuple(fields)
