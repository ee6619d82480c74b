"""Jobs over all that there is, as one batch: the history of a log, or an archive of it.

The functions of the jobs and all that runs them are those of the stream. Nothing is late, since everything is there at
once, and the input ends, so that every window closes.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidewheel.engine.archive import Archive
from tidewheel.engine.columns import spark_schema
from tidewheel.engine.input import LogInput, outcomes
from tidewheel.engine.job import Job
from tidewheel.engine.launch import called, check, default_targets, from_log, prepared_targets, written_topics
from tidewheel.engine.looked_up import LookedUp
from tidewheel.engine.match_book import BookMatch
from tidewheel.engine.query import in_memory, row_parcels
from tidewheel.engine.result import Result, arrow_of
from tidewheel.engine.result_topics import refuse_others_results
from tidewheel.engine.run import explained
from tidewheel.engine.session import check_reach, session
from tidewheel.engine.worker_python import check_workers
from tidewheel.errors import DamagedBlockError, DefinitionError
from tidewheel.model.time import now
from tidewheel.transport.damage import note_damage
from tidewheel.transport.log import Log, OnDamage

__all__ = ["run_batch"]

_EVENTS_PER_TASK = 500_000
_EVENTS_PER_BUCKET = 500_000
_MOST_BUCKETS = 512
_PLACE = {"_partition": pa.int32(), "_offset": pa.int64()}


def run_batch(
    *jobs: Job | Result,
    log: Log,
    archive: str | Path | None = None,
    history: Log | None = None,
    name: str | None = None,
    spark: SparkSession | None = None,
    buckets: int | None = None,
    skip_damaged: bool = False,
    append_to_existing: bool = False,
) -> None:
    """Run jobs and results over all that their topics hold, or over an archive of these topics, to the end. With a
    `history` the topics are those of that log, and so are the results that are given; they are written to `log`.

    Outputs go to the topics that `tidewheel.run` would write: name results anew (`result.named("delays.batch")`) where
    those have results already, which is refused unless `append_to_existing` says so. All of it is written in one
    transaction, or nothing.

    With `skip_damaged` it goes on without records whose blocks are damaged in the log's file: `dead.<name>` tells of
    them. Lookups find the answers that `log` has now, whatever the rows are from.
    """
    read = log if history is None else history
    targets = default_targets([each.on(read) if isinstance(each, Job) else each for each in jobs], log)
    results = list(targets)
    name = name or called(results)
    topics = check(targets, log, read=read)
    if not append_to_existing:
        refuse_others_results(log, written_topics(targets))
    for result in results:
        if any(isinstance(what, BookMatch) for what in result.flow().told.values()):
            raise DefinitionError(
                f"{result.name} looks for patterns that a topic changes while it runs: what it finds depends on when; "
                "run it as a stream (available_now=True, or --available-now)"
            )
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
        if held is None:
            if read is not log:
                for topic in topics:
                    read.ensure_topic(topic)
                results = [_answered(result, log, on_damage) for result in results]
            count = sum(read.topic_info(topic).count for topic in topics)
            number = buckets or _buckets(spark, count)
            tasks = max(spark.sparkContext.defaultParallelism, -(-count // _EVENTS_PER_TASK))
            options = {"clock": "log", "malformed": "dead", "group": name, "tasks": str(tasks)}
            options["skipDamaged"] = str(skip_damaged).lower()
            parcels = from_log(spark, results, results, number, options, ended=True)
        else:
            results = [_answered(result, log, on_damage) for result in results]
            inputs = sorted({topic for result in results for topic in result.input.topics})
            frames = {topic: _archived(spark, held, results, topic) for topic in inputs}
            facts = [frame.agg(f.count("*"), f.max("_append_time").cast("double")).first() for frame in frames.values()]
            number = buckets or _buckets(spark, sum(fact[0] for fact in facts if fact))
            clock = round(max((fact[1] or 0.0 for fact in facts if fact), default=0.0) * 1_000_000)
            parcels = _from_archive(frames, results, number, clock)
        rows = in_memory(parcels, [result.flow() for result in results], number)
        (
            rows.write.format("tidewheel")
            .mode("append")
            .option("log", log.address)
            .option("parcels", base64.b64encode(cloudpickle.dumps(outputs)).decode())  # type: ignore[no-untyped-call]
            .save()
        )
    except PySparkException as error:
        raise explained(name, error) from error


def _buckets(spark: SparkSession, events: int) -> int:
    """So many that what each holds fits into memory."""
    least = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    return min(_MOST_BUCKETS, max(least, -(-events // _EVENTS_PER_BUCKET)))


def _answered(result: Result, log: Log, on_damage: OnDamage | None) -> Result:
    """With the answers to its lookup from the start: the log keeps them, elsewhere there are rows only."""
    stages = [
        replace(stage, what=replace(stage.what, known=outcomes(log, stage.what, on_damage=on_damage)))
        if isinstance(stage.what, LookedUp)
        else stage
        for stage in result.stages
    ]
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


def _from_archive(frames: dict[str, DataFrame], results: Sequence[Result], buckets: int, clock: int) -> DataFrame:
    parcels = []
    for topic, frame in frames.items():
        flows = [result.flow() for result in results if topic in result.input.topics]
        columns = _input(results, topic).schema()
        parcels.append(
            row_parcels(
                frame.drop(*_PLACE),
                flows,
                buckets,
                clock=clock,
                ended=True,
                marked=lambda rows: None,
                as_read=columns,
            )
        )
    return reduce(DataFrame.unionAll, parcels)
