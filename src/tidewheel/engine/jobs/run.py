"""Run jobs and results of one log together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewheel.engine.execution.query_start import start_query
from tidewheel.engine.execution.run_options import RunOptions, RunSettings
from tidewheel.engine.execution.targets import Target
from tidewheel.engine.jobs.job import Job
from tidewheel.engine.operators.operator import RESULTS
from tidewheel.engine.streams.result import Result
from tidewheel.engine.streams.stream import Stream
from tidewheel.errors import DefinitionError
from tidewheel.topic_names import output_topic
from tidewheel.transport.log.log import Log

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tidewheel.engine.execution.running_query import Run

__all__ = ["called", "default_targets", "run"]


def run(
    *jobs: Job | Result, log: Log, checkpoint: str | Path, name: str | None = None, **options: Unpack[RunOptions]
) -> Run:
    """Start jobs and results of one log as one query: one scan and one decode per topic, one shuffle and one state
    operator per depth of chaining. Each has a name (a job its own, a result the one of `result.named("delays")`): its
    outputs go to `analytics.<name>`, `late.<name>` and `metrics.<name>`, and further ones to `<output>.<name>`.

    The checkpoint remembers what it was made for, and another job is refused before Spark is started.

    Args:
        jobs: A job alone has its own parameters' defaults; `job.on(log, resolution=8)` is a result with others.
        log: The log that they read, and write to.
        checkpoint: The folder of the query's progress and state.
        name: That of the run: in the log its progress is noted under it, and what is malformed goes to `dead.<name>`.
            By default it is that of the only result, or "jobs".
        options: See `help(tidewheel.RunOptions)`: `spark`, `available_now`, `start_from`, `max_events_per_batch`,
            `max_bytes_per_batch`, `skip_damaged`, `append_to_existing`, `key_groups`, `accept_changes`, `clock`.
    """
    settings = RunSettings.of("run", options)
    targets = default_targets(jobs, log)
    return start_query(targets, log, checkpoint=checkpoint, name=name or called(targets), settings=settings)


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
        result: Any = each.on(log) if isinstance(each, Job) else each  # whatever was given
        if not isinstance(result, Result):
            hint = "; rows as they are become a result with .each_row()" if isinstance(result, Stream) else ""
            raise DefinitionError(f"run: expected a job or a result, got {result!r}{hint}")
        place = {output: log.topic(output_topic(output, str(result.name))) for output in result.schemas()}
        found[result] = {
            output: Target(topic, result.writes, result.key) if output == RESULTS else Target(topic)
            for output, topic in place.items()
        }
    return found
