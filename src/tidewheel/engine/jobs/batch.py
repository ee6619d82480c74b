"""Run jobs as one batch, over the history of a log or an archive of it.

The functions of the jobs and all that runs them are those of the stream. Nothing is late, since everything is there at
once, and the input ends, so that every window closes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidewheel.engine.datasource.output_encoding import encodings_option
from tidewheel.engine.datasource.result_topics import refuse_others_results
from tidewheel.engine.execution.dataframe.batches import dataframe_batches
from tidewheel.engine.execution.input import LogInput, side_input_rows
from tidewheel.engine.execution.log_reader import from_log
from tidewheel.engine.execution.running_query import translate_error
from tidewheel.engine.execution.session import check_reach, session
from tidewheel.engine.execution.state_operator import in_memory
from tidewheel.engine.execution.targets import check, prepared_targets, written_topics
from tidewheel.engine.execution.worker_python import check_workers
from tidewheel.engine.jobs.archive import Archive
from tidewheel.engine.jobs.job import Job
from tidewheel.engine.jobs.run import called, default_targets
from tidewheel.engine.spark.arrow_schema import spark_schema
from tidewheel.engine.streams.result import Result, arrow_of
from tidewheel.errors import DamagedBlockError, DefinitionError
from tidewheel.model.time import now
from tidewheel.transport.log.damage import note_damage
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import OnDamage

__all__ = ["run_batch"]

_EVENTS_PER_TASK = 500_000
_EVENTS_PER_KEY_GROUP = 500_000
_MOST_KEY_GROUPS = 512
_PLACE = {"_partition": pa.int32(), "_offset": pa.int64()}


def run_batch(
    *jobs: Job | Result,
    log: Log,
    archive: str | Path | None = None,
    history: Log | None = None,
    name: str | None = None,
    spark: SparkSession | None = None,
    key_groups: int | None = None,
    skip_damaged: bool = False,
    append_to_existing: bool = False,
) -> None:
    """Run jobs and results over all that their topics hold, or over an archive of these topics, to the end.

    Outputs go to the topics that `tidewheel.run` would write: name results anew (`result.named("delays.batch")`) where
    those have results already. All of it is written in one transaction, or nothing.

    Args:
        jobs: What is run, as `tidewheel.run` takes it.
        log: The log that is written to, and read unless something else is named. Lookups find the answers that it has
            now, whatever the rows are from.
        archive: The folder of an archive of the topics.
        history: Another log whose topics are read; results that are given are of that log.
        name: That of the run: what is malformed goes to `dead.<name>`.
        spark: The session; by default `tidewheel.session()`.
        key_groups: Into how many groups keys are hashed; by default by the number of events.
        skip_damaged: Go on without records whose blocks are damaged in the log's file: `dead.<name>` tells of them.
        append_to_existing: Write into topics that hold results of another run.
    """
    read = log if history is None else history
    targets = default_targets([each.on(read) if isinstance(each, Job) else each for each in jobs], log)
    name = name or called(targets)
    topics = check(targets, log, read=read)
    if not append_to_existing:
        refuse_others_results(log, written_topics(targets))
    _refuse_streams_only(targets)
    held = None if archive is None else Archive(archive)
    outputs = prepared_targets(targets, log, topics if held is None and read is log else ())
    spark = session(spark)
    check_reach(spark, log)
    check_workers(spark)
    # In a thread that has not used it, Spark finds no session, and with it not the format "tidewheel".
    spark.createDataFrame([], "nothing INT")

    def on_damage(damaged: DamagedBlockError) -> None:
        if not skip_damaged:
            raise damaged
        note_damage(log, name, damaged, clock=now())

    try:
        if held is None and read is log:
            results = list(targets)
        else:
            results = [_answered(result, log, on_damage) for result in targets]
        if held is None:
            options = {"group": name, "skipDamaged": str(skip_damaged).lower()}
            exchange_batches, number = _from_log(spark, read, topics, results, key_groups, options)
        else:
            exchange_batches, number = _from_archive(spark, held, results, key_groups)
        rows = in_memory(exchange_batches, [result.flow() for result in results], number)
        writer = rows.write.format("tidewheel").mode("append").option("log", log.address)
        writer.option("encodings", encodings_option(outputs)).save()
    except PySparkException as error:
        raise translate_error(name, error) from error


def _refuse_streams_only(results: Iterable[Result]) -> None:
    """Refuse results that make no sense over rows that are all there at once."""
    for result in results:
        reason = next(filter(None, (stage.operation.refused_in_batch for stage in result.stages)), None)
        if reason is not None:
            raise DefinitionError(
                f"{result.name} {reason}; run it as a stream (available_now=True, or --available-now)"
            )


def _from_log(
    spark: SparkSession,
    log: Log,
    topics: Sequence[str],
    results: Sequence[Result],
    key_groups: int | None,
    options: Mapping[str, str],
) -> tuple[DataFrame, int]:
    """Exchange batches of all that topics of a log hold, and the number of key groups."""
    for topic in topics:
        log.ensure_topic(topic)
    count = sum(log.topic_info(topic).count for topic in topics)
    number = key_groups or _key_groups(spark, count)
    tasks = max(spark.sparkContext.defaultParallelism, -(-count // _EVENTS_PER_TASK))
    options = {**options, "clock": "log", "malformed": "dead", "tasks": str(tasks)}
    return from_log(spark, results, results, number, options, ended=True), number


def _key_groups(spark: SparkSession, events: int) -> int:
    """Choose the number of key groups so that what each holds fits into memory."""
    least = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    return min(_MOST_KEY_GROUPS, max(least, -(-events // _EVENTS_PER_KEY_GROUP)))


def _answered(result: Result, log: Log, on_damage: OnDamage | None) -> Result:
    """Give each stage what its side input holds from the start: the log has it, elsewhere there are rows only."""
    read = partial(side_input_rows, log, on_damage=on_damage)
    stages = [replace(stage, operation=stage.operation.answered(read)) for stage in result.stages]
    return replace(result, stages=tuple(stages))


def _input(results: Sequence[Result], topic: str) -> LogInput:
    return next(
        result.input for result in results if isinstance(result.input, LogInput) and topic in result.input.topics
    )


def _archived(spark: SparkSession, archive: Archive, results: Sequence[Result], topic: str) -> DataFrame:
    """A topic's rows in the order in which the log had them, with the columns that its reader would give."""
    source = _input(results, topic)
    kind = archive.type(topic)
    if kind != source.message:
        raise DefinitionError(f"the archive holds {topic!r} as {kind}, and it is read as {source.message}; choose one")
    columns = arrow_of(source.schema())
    place = [pa.field(name, of) for name, of in _PLACE.items()]
    schema = spark_schema(pa.schema([*columns, *place]))
    files = archive.files(topic)
    frame = spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)
    # Events of one key and one time keep the order of their arrival.
    return frame.orderBy("_append_time", *_PLACE)


def _from_archive(
    spark: SparkSession, archive: Archive, results: Sequence[Result], key_groups: int | None
) -> tuple[DataFrame, int]:
    """Exchange batches of an archive's topics, and the number of key groups."""
    topics = sorted({topic for result in results for topic in result.input.topics})
    frames = {topic: _archived(spark, archive, results, topic) for topic in topics}
    facts = [frame.agg(f.count("*"), f.max("_append_time").cast("double")).first() for frame in frames.values()]
    number = key_groups or _key_groups(spark, sum(fact[0] for fact in facts if fact))
    clock = round(max((fact[1] or 0.0 for fact in facts if fact), default=0.0) * 1_000_000)
    exchange_batches = []
    for topic, frame in frames.items():
        flows = [result.flow() for result in results if topic in result.input.topics]
        columns = _input(results, topic).schema()
        exchange_batches.append(
            dataframe_batches(
                frame.drop(*_PLACE),
                flows,
                number,
                clock=clock,
                ended=True,
                marked=lambda rows: None,
                as_read=columns,
            )
        )
    return reduce(DataFrame.unionAll, exchange_batches), number
