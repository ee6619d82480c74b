"""Jobs of plain Spark: a function from DataFrames to a DataFrame, with everything around it that a job has."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidewheel.engine.checkpoint.batch_identity import check_results, has_written
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.engine.datasource.batch_limit import MAX_BYTES
from tidewheel.engine.datasource.result_topics import refuse_others_results
from tidewheel.engine.datasource.sink import StreamSink
from tidewheel.engine.execution.running_query import Run, Work, java_pid, translate_error
from tidewheel.engine.execution.session import check_reach, session
from tidewheel.engine.execution.worker_python import check_workers
from tidewheel.engine.spark.local_fs import sink_forces
from tidewheel.errors import DefinitionError
from tidewheel.model.time import now
from tidewheel.topic_names import analytics
from tidewheel.transport.events.registry import type_name, types
from tidewheel.transport.log.damage import DamageCount
from tidewheel.transport.log.log import Log, check_topic_name
from tidewheel.transport.topics.types import publish_types

__all__ = ["run_dataframe"]


def run_dataframe(
    function: Callable[..., DataFrame],
    *,
    log: Log,
    reads: Mapping[str, type[Message]],
    writes: type[Message],
    name: str,
    checkpoint: str | Path,
    key: str | tuple[str, ...] = (),
    parameters: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    available_now: bool = False,
    start_from: str = "earliest",
    max_events_per_batch: int = 100_000,
    max_bytes_per_batch: int = MAX_BYTES,
    append_to_existing: bool = False,
    skip_damaged: bool = False,
) -> Run:
    """Run a function of plain Spark as a job: for what Spark has and streams have not, like joins. It takes a streaming
    DataFrame for each topic that is read, in their order, and gives the rows of the result: `event_time` and the fields
    of `writes`. They go to `analytics.<name>`, each once, under the `key` that these columns make; what is malformed
    goes to `dead.<name>`, and with `skip_damaged` so does word of what is damaged in the log's file.

    `parameters` are handed to the function by name. The checkpoint remembers them with the topics, the types and the
    columns of the result, and is refused for others; state that Spark's own operators keep in it is Spark's to check.
    A new checkpoint does not write into a topic that holds results of another run unless `append_to_existing` says so.

    >>> import tempfile
    >>> import tidewheel as tw
    >>> from tidewheel.transport.events.event_pb2 import DeadLetter
    >>> folder = tempfile.mkdtemp()
    >>> log = tw.open_log(folder + "/shop.tw")
    >>> def lost(letters, *, limit):
    ...     return letters.select("event_time", "source", "reason", "count").where(f"count > {limit}")
    >>> run = run_dataframe(
    ...     lost, name="lost", reads={"dead.orders": DeadLetter}, writes=DeadLetter, key="source",
    ...     parameters={"limit": 20}, log=log, checkpoint=folder + "/lost", available_now=True,
    ... )
    >>> run.wait()
    True
    """
    topic = analytics(name)
    check_topic_name(topic)
    if not reads:
        raise DefinitionError(f"run_dataframe {name}: name a topic to read, like reads={{'input.arrival': Arrival}}")
    held = Checkpoint(checkpoint)
    columns = (key,) if isinstance(key, str) else tuple(key)
    # What can be told without Spark is compared before it is started.
    purpose = {
        "job": name,
        "log": log.identity,
        "reads": {each: type_name(of) for each, of in reads.items()},
        "writes": type_name(writes),
        "key": columns,
        "parameters": dict(parameters or {}),
    }
    held.check(json.loads(json.dumps(purpose)))
    exclusive = not append_to_existing and not has_written(log, held.spark_folder)
    if exclusive:
        refuse_others_results(log, [topic], held.folder)
    spark = session(spark)
    check_reach(spark, log)
    check_workers(spark)
    types.register(*reads.values(), writes)
    publish_types(log, types, sorted({type_name(each) for each in (*reads.values(), writes)}))
    for each in (*reads, topic):
        log.ensure_topic(each)
    options = {
        "log": log.address,
        "startFrom": start_from,
        "maxEventsPerBatch": str(max_events_per_batch),
        "maxBytesPerBatch": str(max_bytes_per_batch),
        "malformed": "dead",
        "skipDamaged": str(skip_damaged).lower(),
        "group": name,
        "stopFile": str(held.stop_file),
    }
    result = _computed(name, function, spark, reads, options, parameters or {})
    sink = {
        "log": log.address,
        "topic": topic,
        "type": type_name(writes),
        **({"key": ",".join(columns)} if key else {}),
        **({"exclusive": topic} if exclusive else {}),
        "fsync": str(sink_forces(spark)).lower(),
        "everyBatch": "true",
    }
    StreamSink(sink, result.schema, overwrite=False)  # refuses what does not fit before a checkpoint is made for it
    purpose["columns"] = dict(result.dtypes)
    held.acquire(json.loads(json.dumps(purpose)))
    try:
        held.check_files()
        if held.notes_every_batch:
            check_results(log, held.spark_folder)
        held.begin_to_note_every_batch()
        held.note_helper(java_pid(spark))
        damaged = DamageCount(log, name) if skip_damaged else None
        writer = result.writeStream.format("tidewheel").queryName(f"{name} {now()}").outputMode("append")
        writer = writer.options(**sink, checkpointLocation=held.spark_folder)
        query = writer.trigger(availableNow=True).start() if available_now else writer.start()
    except BaseException as error:
        held.release()
        if isinstance(error, PySparkException):
            raise translate_error(name, error) from error
        raise
    return Run(Work(name, list(reads)), log, query, held, damaged=damaged)


def _computed(
    name: str,
    function: Callable[..., DataFrame],
    spark: SparkSession,
    reads: Mapping[str, type[Message]],
    options: Mapping[str, str],
    parameters: Mapping[str, Any],
) -> DataFrame:
    """Call the function with a streaming DataFrame of each topic, and check what it gives."""
    frames = [
        spark.readStream.format("tidewheel").options(**options, topics=each, type=type_name(of)).load()
        for each, of in reads.items()
    ]
    result: Any = function(*frames, **parameters)  # whatever it declares
    if not isinstance(result, DataFrame) or not result.isStreaming:
        raise DefinitionError(
            f"run_dataframe {name}: its function must give a DataFrame made of those that it takes, got {result!r}"
        )
    return result
