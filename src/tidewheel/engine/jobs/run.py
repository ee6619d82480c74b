"""Run jobs and results of one log together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from tidewheel.engine.datasource.batch_limit import MAX_BYTES
from tidewheel.engine.execution.query_start import start_flows
from tidewheel.engine.execution.running_query import Run
from tidewheel.engine.execution.targets import Target
from tidewheel.engine.jobs.job import Job
from tidewheel.engine.operators.operator import RESULTS
from tidewheel.engine.streams.result import Result
from tidewheel.errors import DefinitionError
from tidewheel.topic_names import output_topic
from tidewheel.transport.log.log import Log

__all__ = ["called", "default_targets", "run"]


def run(
    *jobs: Job | Result,
    log: Log,
    checkpoint: str | Path,
    name: str | None = None,
    spark: SparkSession | None = None,
    available_now: bool = False,
    start_from: str = "earliest",
    max_events_per_batch: int = 100_000,
    max_bytes_per_batch: int = MAX_BYTES,
    key_groups: int | None = None,
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
        start_from=start_from,
        max_events_per_batch=max_events_per_batch,
        max_bytes_per_batch=max_bytes_per_batch,
        key_groups=key_groups,
        accept_changes=accept_changes,
        skip_damaged=skip_damaged,
        append_to_existing=append_to_existing,
    )


def called(results: Iterable[Result]) -> str:
    """The default name of a run of these results."""
    names = [str(result.name) for result in results]
    return names[0] if len(names) == 1 else "jobs"


def default_targets(jobs: Sequence[Job | Result], log: Log) -> dict[Result, dict[str, Target]]:
    """Every output of jobs and results, each in the topic that is called after it."""
    if not jobs:
        raise DefinitionError("run: give at least one job or result")
    found: dict[Result, dict[str, Target]] = {}
    for each in jobs:
        result = each.on(log) if isinstance(each, Job) else each
        place = {output: log.topic(output_topic(output, str(result.name))) for output in result.schemas()}
        found[result] = {
            output: Target(topic, result.writes, result.key) if output == RESULTS else Target(topic)
            for output, topic in place.items()
        }
    return found
