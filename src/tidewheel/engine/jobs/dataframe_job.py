"""Jobs of plain Spark: a function from DataFrames to a DataFrame, with everything around it that a job has."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.engine.datasource.sink import StreamSink
from tidewheel.engine.execution.query_start import refuse_shared_topics
from tidewheel.engine.execution.run_options import DataFrameRunOptions, RunSettings
from tidewheel.engine.execution.running_query import Run, java_pid
from tidewheel.engine.execution.shared_query import check_unbroken, reader_options, released_on_error, session_for
from tidewheel.engine.spark.local_fs import sink_forces
from tidewheel.errors import DefinitionError
from tidewheel.model.time import now
from tidewheel.topic_names import analytics
from tidewheel.transport.events.registry import type_name, types
from tidewheel.transport.log.damage import DamageCount
from tidewheel.transport.log.log import Log, check_topic_name
from tidewheel.transport.topics.types import publish_types

if TYPE_CHECKING:
    from typing_extensions import Unpack

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
    **options: Unpack[DataFrameRunOptions],
) -> Run:
    """Run a function over Spark DataFrames as a job: for what Spark has and Tidewheel's streams have not, such as
    joins. Its rows go to `analytics.<name>`, each exactly once; malformed records go to `dead.<name>`, and with
    `skip_damaged` so do reports of damage in the log's file.

    The checkpoint remembers the parameters with the topics, the types and the columns of the result, and is refused for
    others; state that Spark's own operators keep in it is Spark's to check.

    Args:
        function: Takes a streaming DataFrame for each topic that is read, in their order, and gives the rows of the
            result: `event_time` and the fields of `writes`.
        log: The log that it reads, and writes to.
        reads: The topics, each with the type of its messages.
        writes: The message type of the results.
        name: That of the job: topics and progress are called after it.
        checkpoint: The folder of the query's progress and state.
        key: The columns that make the key of a result.
        parameters: What is handed to the function by name.
        options: See `help(tidewheel.RunOptions)`: `spark`, `available_now`, `start_from`, `max_events_per_batch`,
            `max_bytes_per_batch`, `skip_damaged`, `append_to_existing`.

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
    settings = RunSettings.of("run_dataframe", options, DataFrameRunOptions)
    job = _DataFrameJob(name, function, reads, writes, (key,) if isinstance(key, str) else tuple(key), parameters or {})
    held = Checkpoint(checkpoint)
    # What is known without Spark is compared before it is started.
    held.check(job.definition(log))
    exclusive = refuse_shared_topics(log, held, [job.topic], settings)
    spark = session_for(log, settings)
    job.prepare(log)
    result = job.rows(spark, {"log": log.address, **reader_options(held, name, settings)})
    sink = {**job.sink_options(log, exclusive=exclusive), "fsync": str(sink_forces(spark)).lower()}
    StreamSink(sink, result.schema, overwrite=False)  # refuses what does not fit before a checkpoint is made for it
    held.acquire(job.definition(log, result))
    with released_on_error(held, name):
        check_unbroken(held, log)
        held.begin_to_note_every_batch()
        held.note_helper(java_pid(spark))
        damaged = DamageCount(log, name) if settings.skip_damaged else None
        query = _started(result, sink, name, held, available_now=settings.available_now)
    return Run(name, list(reads), log, query, held, damaged=damaged)


@dataclass(frozen=True)
class _DataFrameJob:
    """A function of DataFrames, and what goes in and out of it."""

    name: str
    function: Callable[..., DataFrame]
    reads: Mapping[str, type[Message]]
    writes: type[Message]
    key: tuple[str, ...]
    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_topic_name(self.topic)
        if not self.reads:
            raise DefinitionError(
                f"run_dataframe {self.name}: name a topic to read, like reads={{'input.arrival': Arrival}}"
            )

    @property
    def topic(self) -> str:
        """The topic of the results."""
        return analytics(self.name)

    def definition(self, log: Log, result: DataFrame | None = None) -> Mapping[str, Any]:
        """The part of a job that must not change while there is a checkpoint, as JSON; the result's columns once they
        are known."""
        definition = {
            "job": self.name,
            "log": log.identity,
            "reads": {topic: type_name(of) for topic, of in self.reads.items()},
            "writes": type_name(self.writes),
            "key": self.key,
            "parameters": dict(self.parameters),
            **({} if result is None else {"columns": dict(result.dtypes)}),
        }
        as_json: Mapping[str, Any] = json.loads(json.dumps(definition))
        return as_json

    def prepare(self, log: Log) -> None:
        """Make the topics, and publish the types in the log."""
        messages = (*self.reads.values(), self.writes)
        types.register(*messages)
        publish_types(log, types, sorted({type_name(each) for each in messages}))
        for topic in (*self.reads, self.topic):
            log.ensure_topic(topic)

    def rows(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Call the function with a streaming DataFrame of each topic, and check what it gives."""
        frames = [
            spark.readStream.format("tidewheel").options(**options, topics=topic, type=type_name(of)).load()
            for topic, of in self.reads.items()
        ]
        result: Any = self.function(*frames, **self.parameters)  # whatever it declares
        if not isinstance(result, DataFrame) or not result.isStreaming:
            raise DefinitionError(
                f"run_dataframe {self.name}: its function must give a DataFrame made of those that it takes, got "
                f"{result!r}"
            )
        return result

    def sink_options(self, log: Log, *, exclusive: bool) -> dict[str, str]:
        """The options of the sink."""
        return {
            "log": log.address,
            "topic": self.topic,
            "type": type_name(self.writes),
            **({"key": ",".join(self.key)} if self.key else {}),
            **({"exclusive": self.topic} if exclusive else {}),
            "everyBatch": "true",
        }


def _started(
    result: DataFrame, sink: Mapping[str, str], name: str, held: Checkpoint, *, available_now: bool
) -> StreamingQuery:
    writer = result.writeStream.format("tidewheel").queryName(f"{name} {now()}").outputMode("append")
    writer = writer.options(**sink, checkpointLocation=held.spark_folder)
    return writer.trigger(availableNow=True).start() if available_now else writer.start()
