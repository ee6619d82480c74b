"""`tidewheel run JOB`: a job on the log, on Spark."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tidewheel.cli.attending import attend, print_json, stoppable
from tidewheel.cli.common import (
    DEFAULT_LOG,
    DurationOption,
    JsonOption,
    LogOption,
    opened_log,
    parse_instant,
    say,
    taught,
)
from tidewheel.errors import DefinitionError
from tidewheel.model.time import format_duration, format_instant, now

if TYPE_CHECKING:
    from tidewheel.engine.job import Job
    from tidewheel.engine.run import Progress, Run
    from tidewheel.transport.log import Log

__all__ = ["JobGroup", "run"]

_JOB_PANEL = "Parameters of the job"


def run() -> None:
    """Run a job on the log, on Spark.

    A job reads topics of the log and writes its results to the topic analytics.JOB, each exactly once: it notes in its
    checkpoint how far it has come and goes on there when it is started again, whatever happened in between. Ctrl-C and
    SIGTERM let it finish the batch at hand. Each job has parameters of its own: tidewheel run JOB --help.

        tidewheel run vehicle-cell
        tidewheel run vehicle-cell --available-now        (work off what is there, then end)
        tidewheel run vehicle-cell --resolution 8 --checkpoint state/coarse --results analytics.coarse
    """


class JobGroup(TyperGroup):
    """The jobs of the installed packages as commands. They are looked for only when asked for: that imports Spark."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        from tidewheel.engine.job import installed_jobs

        return list(installed_jobs())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a job."""
        from tidewheel.engine.job import installed_jobs

        jobs = installed_jobs()
        if cmd_name in jobs:
            return _command(jobs[cmd_name])
        if cmd_name.startswith("-"):
            return None
        close = get_close_matches(cmd_name, jobs, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise DefinitionError(f"no job {cmd_name!r}{hint} There are: {', '.join(jobs) or 'none'}")


def _command(job: Job) -> Any:
    """A command with the options of every job, and one for each parameter of this one."""

    def command(**given: Any) -> None:
        parameters = {parameter.name: given.pop(parameter.name) for parameter in job.parameters}
        _run(job, parameters=parameters, **given)

    common = inspect.signature(_options, eval_str=True).parameters
    own = {}
    for parameter in job.parameters:
        if parameter.name in common:
            raise DefinitionError(
                f"job {job.name}: its parameter {parameter.name} has the name of an option of tidewheel run; rename it"
            )
        option = typer.Option(parameter.default, rich_help_panel=_JOB_PANEL)
        own[parameter.name] = inspect.Parameter(
            parameter.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=parameter.type
        )
    everything = {**own, **common}
    command.__signature__ = inspect.Signature(list(everything.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in everything.items()}
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    reads = ", ".join(job.reads)
    app.command(job.name, rich_help_panel="Jobs", help=f"{taught(job.function)}\n\nReads {reads}, writes {job.topic}.")(
        command
    )
    return get_command(app)


def _options(
    *,
    log: LogOption = DEFAULT_LOG,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where it notes how far it has come.", show_default="LOG.checkpoints/JOB"),
    ] = None,
    results: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where the results go.", show_default="analytics.JOB")
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End when all that is there now is done.")
    ] = False,
    start: Annotated[
        str,
        typer.Option(metavar="earliest|latest|TIME", help="Where a new checkpoint begins; an old one goes on."),
    ] = "earliest",
    max_events: Annotated[
        int, typer.Option("--max-events-per-batch", min=1, help="A backlog is worked off in batches of this size.")
    ] = 100_000,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on with other parameters than the checkpoint was made with.")
    ] = False,
    length: DurationOption = None,
    as_json: JsonOption = False,
) -> None:
    """What can be said of the running of every job."""


def _run(
    job: Job,
    *,
    parameters: Mapping[str, Any],
    log: str,
    checkpoint: str | None,
    results: str | None,
    available_now: bool,
    start: str,
    max_events: int,
    accept_changes: bool,
    length: int | None,
    as_json: bool,
) -> None:
    if start not in ("earliest", "latest"):
        parse_instant(start)
    with stoppable() as stop, opened_log(log) as opened, _spark_ended():
        target = opened.topic(results or job.topic)
        folder = checkpoint or f"{opened.address}.checkpoints/{job.name}"
        before = _count(opened, target.name)
        running: list[Run] = []

        def work() -> bool:
            from tidewheel.engine.run import start as start_job

            started = start_job(
                job,
                opened,
                checkpoint=folder,
                results=target,
                available_now=available_now,
                begin=start,
                max_events_per_batch=max_events,
                accept_changes=accept_changes,
                **parameters,
            )
            running.append(started)
            deadline = None if length is None else time.monotonic() + length / 1_000_000
            while not started.wait(0.2):
                if stop.is_set() or (deadline is not None and time.monotonic() >= deadline):
                    started.stop()
                    return False
            return True

        def status() -> dict[str, Any]:
            written = _count(opened, target.name) - before
            return _status(job, running[0].progress() if running else None, results=written)

        ended = attend(work, stop=stop, status=status, line=_line, as_json=as_json)
        final = status()
        if as_json:
            print_json(final)
        say(_summary(final, target.name))
        if not ended and (available_now or length is not None):
            stop.unfinished()


@contextmanager
def _spark_ended() -> Iterator[None]:
    """Nothing of Spark is left when the command ends; its Java would otherwise end a little later."""
    in_a_hurry = False
    try:
        yield
    except KeyboardInterrupt:
        in_a_hurry = True
        raise
    finally:
        if not in_a_hurry:
            from tidewheel.engine.session import end_spark

            end_spark()


def _count(log: Log, topic: str) -> int:
    """How many records were ever appended to a topic."""
    return sum(sum(info.next_offsets) for info in log.topics() if info.name == topic)


def _status(job: Job, progress: Progress | None, *, results: int) -> dict[str, Any]:
    if progress is None:
        return {"job": job.name, "state": "starting"}
    return {
        "job": job.name,
        "state": "running",
        "batches": progress.batches,
        "events": progress.events,
        "results": results,
        "rate": round(progress.rate, 1),
        "batch_ms": progress.batch_ms,
        "lag": progress.lag,
        "watermark": None if progress.watermark is None else format_instant(progress.watermark),
        "behind_seconds": None if progress.watermark is None else round((now() - progress.watermark) / 1e6, 3),
        "observed": dict(progress.observed),
    }


def _line(status: Mapping[str, Any]) -> str:
    if status["state"] == "starting":
        return f"{status['job']}: starting Spark ..."
    behind = status["behind_seconds"]
    watermark = "" if behind is None else f", watermark {format_duration(round(behind, 1) * 1_000_000)} behind"
    return (
        f"{status['job']}: {status['events']:,} events, {status['results']:,} results ({status['rate']:,.0f} events/s, "
        f"last batch {status['batch_ms']:,.0f} ms), lag {status['lag']:,}{watermark}"
    )


def _summary(status: Mapping[str, Any], topic: str) -> str:
    if status["state"] == "starting":
        return f"{status['job']}: stopped before it began"
    observed = "".join(f", {count:,} {name}" for name, count in sorted(status["observed"].items()))
    return (
        f"{status['job']}: {status['events']:,} events processed, {status['results']:,} results in {topic}{observed}; "
        f"{status['lag']:,} events left"
    )
