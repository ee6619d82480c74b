"""Start one query for several results of a log."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidewheel.engine.checkpoint.batch_identity import check_results, has_written
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.engine.datasource.backfill import SuspendedFlows, where
from tidewheel.engine.datasource.offset import Offset
from tidewheel.engine.datasource.output_encoding import Encodings, encodings_option
from tidewheel.engine.datasource.result_topics import refuse_others_results
from tidewheel.engine.execution.computation import C, Computation, definition_of
from tidewheel.engine.execution.exchange_rows import OUT
from tidewheel.engine.execution.log_reader import from_log, read_topics
from tidewheel.engine.execution.map_side_reader import StatelessReader, needs_no_state
from tidewheel.engine.execution.run_options import RunSettings
from tidewheel.engine.execution.running_query import Run, java_pid, translate_error
from tidewheel.engine.execution.session import check_reach, session
from tidewheel.engine.execution.state_operator import with_state
from tidewheel.engine.execution.state_settings import (
    check_state_store,
    key_group_count,
    partition_each_key_group,
)
from tidewheel.engine.execution.targets import Target, check, prepared_targets, written_topics
from tidewheel.engine.execution.worker_python import check_workers
from tidewheel.engine.operators.operator import METRICS
from tidewheel.engine.spark.local_fs import sink_forces
from tidewheel.errors import FlowError
from tidewheel.model.time import now
from tidewheel.transport.log.damage import DamageCount
from tidewheel.transport.log.log import Log

__all__ = [
    "check_unbroken",
    "reader_options",
    "refuse_shared_topics",
    "released_on_error",
    "session_for",
    "start_query",
]


def start_query(
    results: Mapping[C, Mapping[str, Target]], log: Log, *, checkpoint: str | Path, name: str, settings: RunSettings
) -> Run:
    """Start one query for all these results of one log, each with its outputs' targets."""
    topics = check(results, log)
    held = Checkpoint(checkpoint)
    key_groups = settings.key_groups
    if key_groups is None:  # those of another machine are as good
        key_groups = (held.purpose() or {}).get("key_groups")
    flows = {str(result.name): definition_of(result) for result in results}
    purpose = json.loads(json.dumps({"job": name, "log": log.identity, "flows": flows}))
    given = {} if key_groups is None else {"key_groups": key_groups}
    held.check({**purpose, **given}, accept_changes=settings.accept_changes)
    exclusive = refuse_shared_topics(log, held, written_topics(results), settings)
    spark = session_for(log, settings)
    if not needs_no_state([result.flow() for result in results]):
        check_state_store(spark)
    number = key_group_count(spark, key_groups)
    held.acquire({**purpose, "key_groups": number}, accept_changes=settings.accept_changes)
    with released_on_error(held, name):
        check_unbroken(held, log)
        targets = prepared_targets(results, log, topics)
        held.note_helper(java_pid(spark))
        resumed = SuspendedFlows.read(held.backfill_file).resume()
        resumed.write(held.backfill_file)
        ticking = settings.clock == "wall" and any(result.flow().waits_for_clock for result in results)
        options = {
            **reader_options(held, name, settings),
            "backfillFile": str(held.backfill_file),
            "firstFile": str(held.first_file),
            "clock": settings.clock,
            "ticking": str(ticking).lower(),
        }
        damaged = DamageCount(log, name) if settings.skip_damaged else None
        shared = SharedQuery(
            spark, log, held, list(results), targets, number, name, options, settings.available_now, exclusive
        )
        query = shared.start()
    return Run(
        name,
        topics,
        log,
        query,
        held,
        restart_without_failed=shared.restart_without_failed if len(results) > 1 else None,
        live=not settings.available_now and settings.clock == "wall",
        damaged=damaged,
    )


def refuse_shared_topics(log: Log, held: Checkpoint, topics: Collection[str], settings: RunSettings) -> bool:
    """Refuse a new checkpoint whose topics hold results of another run. Returns whether they must still be empty when
    its first results are written."""
    exclusive = not settings.append_to_existing and not has_written(log, held.spark_folder)
    if exclusive:
        refuse_others_results(log, topics, held.folder)
    return exclusive


def session_for(log: Log, settings: RunSettings) -> SparkSession:
    """The session of a run, able to reach the log and to run Python workers."""
    spark = session(settings.spark() if callable(settings.spark) else settings.spark)
    check_reach(spark, log)
    check_workers(spark)
    return spark


def check_unbroken(held: Checkpoint, log: Log) -> None:
    """Refuse a checkpoint with damaged files, or one whose last results are missing in the log."""
    held.check_files()
    if held.notes_every_batch:
        check_results(log, held.spark_folder)


def reader_options(held: Checkpoint, name: str, settings: RunSettings) -> dict[str, str]:
    """The options of `format("tidewheel")` that follow from those of a run."""
    return {
        "startFrom": settings.start_from,
        "maxEventsPerBatch": str(settings.max_events_per_batch),
        "maxBytesPerBatch": str(settings.max_bytes_per_batch),
        "malformed": "dead",
        "skipDamaged": str(settings.skip_damaged).lower(),
        "group": name,
        "stopFile": str(held.stop_file),
    }


@contextmanager
def released_on_error(held: Checkpoint, name: str) -> Iterator[None]:
    """Release a checkpoint whose query could not be started, and raise the cause without Spark's layers around it."""
    try:
        yield
    except BaseException as error:
        held.release()
        if isinstance(error, PySparkException):
            raise translate_error(name, error) from error
        raise


@dataclass(frozen=True)
class SharedQuery:
    """The query that results share, which can be restarted without those that failed."""

    spark: SparkSession
    log: Log
    held: Checkpoint
    results: Sequence[Computation]
    targets: Encodings
    key_groups: int
    name: str
    options: Mapping[str, str]
    available_now: bool
    exclusive: bool
    """No other run has written into its topics, and none may have when its first results come."""

    def start(self) -> StreamingQuery:
        """Start the query with all flows that are not suspended."""
        # In a thread that has not used it, Spark finds no session, and with it not the format "tidewheel".
        self.spark.createDataFrame([], "nothing INT")
        self.held.drop_unfinished()
        suspended = SuspendedFlows.read(self.held.backfill_file).suspended
        running = [result for result in self.results if result.name not in suspended]
        # Those that wait are read for nothing, but their topics keep their place in the offsets, and their state
        # operators in the plan.
        flows = [result.flow() for result in running]
        if needs_no_state([result.flow() for result in self.results]):
            rows = read_topics(self.spark, self.results, StatelessReader(flows), OUT, self.options)
        else:
            exchange_batches = from_log(self.spark, self.results, running, self.key_groups, self.options)
            depth = max(len(result.stages) for result in self.results)
            rows = with_state(exchange_batches, flows, self.key_groups, depth=depth)
        writer = (
            rows.writeStream.format("tidewheel")
            .queryName(f"{self.name} {now()}")
            .outputMode("append")
            .option("log", self.log.address)
            .option("encodings", encodings_option(self.targets))
            .option("exclusive", ",".join(sorted(self._exclusive())))
            .option("fsync", str(sink_forces(self.spark)).lower())
            .option("checkpointLocation", self.held.spark_folder)
        )
        with partition_each_key_group(self.spark, self.key_groups):
            return writer.trigger(availableNow=True).start() if self.available_now else writer.start()

    def _exclusive(self) -> set[str]:
        if not self.exclusive:
            return set()
        return {target.topic for (_, output), target in self.targets.items() if output != METRICS}

    def restart_without_failed(self, error: PySparkException) -> StreamingQuery | None:
        """Take out the one that broke the query, and start the others again; None if it was none of them, or the last
        one."""
        found = translate_error(self.name, error)
        if not isinstance(found, FlowError):
            return None
        suspended_flows = SuspendedFlows.read(self.held.backfill_file)
        names = {str(result.name) for result in self.results}
        if found.flow not in names or names <= {*suspended_flows.suspended, found.flow}:
            return None
        reached = Offset.from_json(self.held.last_offset())
        since = where(reached, found.flow, suspended_flows)
        suspended_flows.suspend(found.flow, found.reason, since).write(self.held.backfill_file)
        return self.start()
