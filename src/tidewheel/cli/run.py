"""`tidewheel run JOB`: jobs on the log, on Spark."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tidewheel.cli.attending import Stop, attend, print_json, stoppable
from tidewheel.cli.common import (
    DEFAULT_LOG,
    DurationOption,
    ExitCode,
    JsonOption,
    LogOption,
    SkipDamagedOption,
    opened_log,
    parse_instant,
    say,
    taught,
)
from tidewheel.cli.result_count import ResultCount
from tidewheel.cli.run_as_batch import Given, run_as_batch
from tidewheel.engine.batch_limit import MAX_BYTES
from tidewheel.engine.result_topics import refuse_others_results
from tidewheel.errors import DefinitionError, LogError
from tidewheel.model.time import approximate_duration, format_instant, now
from tidewheel.model.watermark_hold import hold_text

if TYPE_CHECKING:
    from tidewheel.engine.job import Job, Parameter
    from tidewheel.engine.result import Result
    from tidewheel.engine.run import Progress, Run
    from tidewheel.transport.log import Log

__all__ = ["JobGroup", "run"]

_JOB_PANEL = "Parameters"
_SHARED = "jobs"


def run() -> None:
    """Run jobs on the log, on Spark.

    A job reads topics of the log and writes its results to the topic analytics.JOB, each exactly once: it notes in its
    checkpoint how far it has come and goes on there when it is started again, whatever happened in between. Ctrl-C and
    SIGTERM let it finish the batch at hand. Several jobs run together as one query, which reads each topic once; one
    that fails is taken out and told, and the others go on. A job is named by its name, or by the Python file that
    defines it. Each has parameters of its own: tidewheel run JOB --help. A file in TOML can set them, too.

        tidewheel run vehicle-cell
        tidewheel run vehicle-cell my_job.py --config city.toml
        tidewheel run --all --available-now                    (work off what is there, then end)
        tidewheel run vehicle-cell --resolution 8 --version v2 (beside the one that runs: topics and state of its own)
        tidewheel run vehicle-cell --batch --from city.archive (over all of it at once)
        tidewheel run vehicle-cell --batch --from monday.jsonl.gz --from tuesday.jsonl.gz
    """


class JobGroup(TyperGroup):
    """The jobs of the installed packages as commands. They are looked for only when asked for: that imports Spark."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        from tidewheel.engine.job_finder import installed_jobs

        return list(installed_jobs())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a job."""
        from tidewheel.engine.job_finder import find_jobs

        return None if cmd_name.startswith("-") else _command(find_jobs([cmd_name]))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`--all` stands for the names of all jobs."""
        if args[:1] == ["--all"]:
            args = [*self.list_commands(ctx), *args[1:]]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of all jobs that are named before the first option."""
        from tidewheel.engine.job_finder import find_jobs

        count = next((number for number, text in enumerate(args) if text.startswith("-")), len(args))
        if count < 2:
            return super().resolve_command(ctx, args)
        return " ".join(args[:count]), _command(find_jobs(args[:count])), args[count:]


def _command(jobs: Sequence[Job]) -> Any:
    """A command with the options of every run, and one for each parameter of these jobs."""
    parameters = _parameters(jobs)

    def command(**given: Any) -> None:
        told = {name: value for name in parameters if (value := given.pop(name)) is not None}
        _run(jobs, told=told, **given)

    common = inspect.signature(_options, eval_str=True).parameters
    own = {}
    for name, (parameter, defaults) in parameters.items():
        if name in common:
            raise DefinitionError(
                f"job {jobs[0].name}: its parameter {name} has the name of an option of tidewheel run; rename it"
            )
        option = typer.Option(None, rich_help_panel=_JOB_PANEL, show_default=defaults)
        own[name] = inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=parameter.type | None
        )
    everything = {**own, **common}
    command.__signature__ = inspect.Signature(list(everything.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in everything.items()}
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    told = [f"{taught(job.function)}\n\nReads {', '.join(job.reads)}, writes {job.topic}." for job in jobs]
    if len(jobs) > 1:
        told = [f"{job.name}: {text}" for job, text in zip(jobs, told, strict=True)]
    app.command(" ".join(job.name for job in jobs), rich_help_panel="Jobs", help="\n\n".join(told))(command)
    return get_command(app)


def _parameters(jobs: Sequence[Job]) -> dict[str, tuple[Parameter, str]]:
    """The parameters of all these jobs, with their defaults in words. What several have is meant for all of them."""
    found: dict[str, list[tuple[Job, Parameter]]] = {}
    for job in jobs:
        for parameter in job.parameters:
            found.setdefault(parameter.name, []).append((job, parameter))
    shown = {}
    for name, having in found.items():
        kinds = {parameter.type for _, parameter in having}
        if len(kinds) > 1:
            told = ", ".join(f"{parameter.type.__name__} for {job.name}" for job, parameter in having)
            raise DefinitionError(f"the parameter {name} is {told}; run these jobs apart")
        defaults = {str(parameter.default) for _, parameter in having}
        words = (
            defaults.pop() if len(defaults) == 1 else ", ".join(f"{job.name}: {each.default}" for job, each in having)
        )
        shown[name] = (having[0][1], words)
    return shown


def _options(
    *,
    log: LogOption = DEFAULT_LOG,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Parameters in TOML: a table for each job, and one called all.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where it notes how far it has come.", show_default="LOG.checkpoints/NAME"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="What the run is called: its checkpoint, its progress, and dead.NAME.", show_default="JOB"),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(help="Run beside another version: its topics and its checkpoint end in .VERSION."),
    ] = None,
    results: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where the results go.", show_default="analytics.JOB")
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End when all that is there now is done.")
    ] = False,
    batch: Annotated[
        bool, typer.Option("--batch", help="Run over all that is there at once, to its end: nothing is late.")
    ] = False,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="ARCHIVE|RECORDING",
            help="With --batch: read this archive, or these recordings (an option for each), not the log.",
        ),
    ] = None,
    processor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What reads the messages of recordings.", show_default="hfp"),
    ] = None,
    start: Annotated[
        str,
        typer.Option(metavar="earliest|latest|TIME", help="Where a new checkpoint begins; an old one goes on."),
    ] = "earliest",
    max_events: Annotated[
        int, typer.Option("--max-events-per-batch", min=1, help="A backlog is worked off in batches of this size.")
    ] = 100_000,
    max_bytes: Annotated[
        int,
        typer.Option("--max-bytes-per-batch", min=1, help="Nor does a batch read more than so many bytes of records."),
    ] = MAX_BYTES,
    accept_changes: Annotated[
        bool,
        typer.Option("--accept-changes", help="Go on with other parameters and steps, if it keeps no state."),
    ] = False,
    skip_damaged: SkipDamagedOption = False,
    append_to_existing: Annotated[
        bool,
        typer.Option(
            "--append-to-existing", help="Write into topics that hold results of another run, although it is new."
        ),
    ] = False,
    fsync: Annotated[
        bool,
        typer.Option(
            "--fsync/--no-fsync",
            help="Force the checkpoint to the disk in each batch, so that it outlives a power failure.",
        ),
    ] = True,
    length: DurationOption = None,
    as_json: JsonOption = False,
) -> None:
    """What can be said of every run."""


def _run(
    jobs: Sequence[Job],
    *,
    told: Mapping[str, Any],
    log: str,
    config: str | None,
    checkpoint: str | None,
    name: str | None,
    version: str | None,
    results: str | None,
    available_now: bool,
    batch: bool,
    sources: list[str] | None,
    processor: str | None,
    start: str,
    max_events: int,
    max_bytes: int,
    accept_changes: bool,
    skip_damaged: bool,
    append_to_existing: bool,
    fsync: bool,
    length: int | None,
    as_json: bool,
) -> None:
    if start not in ("earliest", "latest"):
        parse_instant(start)
    if sources and not batch:
        raise typer.BadParameter("archives and recordings are read as a batch: add --batch", param_hint="--from")
    if results is not None and len(jobs) > 1:
        raise typer.BadParameter("results of several jobs go to a topic for each; leave it out", param_hint="--results")
    streaming = {
        "--available-now": available_now,
        "--checkpoint": checkpoint is not None,
        "--start": start != "earliest",
        "--accept-changes": accept_changes,
        "--no-fsync": not fsync,
        "--for": length is not None,
    }
    for option, given in streaming.items():
        if batch and given:
            raise typer.BadParameter("makes no sense with --batch, which reads all there is, once", param_hint=option)
    if batch and version is None and results is None:
        version = "batch"  # beside what the stream writes, to be compared with it
    over = Given.of(sources or [], processor)
    parameters = _configured(jobs, config, told)
    names = [_name(job, version, results) for job in jobs]
    called = name or (names[0] if len(names) == 1 else _SHARED + (f".{version}" if version else ""))
    topics = [f"analytics.{each}" for each in names]

    def on(read: Log) -> list[Result]:
        return [job.on(read, **parameters[job.name]).named(each) for job, each in zip(jobs, names, strict=True)]

    with stoppable() as stop, opened_log(log) as opened, _spark_ended():
        if batch:
            if not append_to_existing:
                refuse_others_results(opened, topics)  # before recordings are read
            run_as_batch(
                on,
                opened,
                over,
                called,
                topics,
                append_to_existing=append_to_existing,
                skip_damaged=skip_damaged,
                stop=stop,
                as_json=as_json,
            )
            return
        found = on(opened)
        folder = checkpoint or f"{opened.address}.checkpoints/{called}"

        def begin() -> Run:
            from tidewheel.engine.launch import default_targets, start_flows
            from tidewheel.engine.local_files import FSYNC
            from tidewheel.engine.session import session

            return start_flows(
                default_targets(found, opened),
                opened,
                checkpoint=folder,
                name=called,
                spark=lambda: session(settings={FSYNC: str(fsync).lower()}),
                available_now=available_now,
                begin=start,
                max_events_per_batch=max_events,
                max_bytes_per_batch=max_bytes,
                accept_changes=accept_changes,
                skip_damaged=skip_damaged,
                append_to_existing=append_to_existing,
            )

        ended, failed = _stream(begin, opened, called, topics, stop=stop, length=length, as_json=as_json)
        if failed:
            raise typer.Exit(ExitCode.FAILED)
        if not ended and (available_now or length is not None):
            stop.unfinished()


def _configured(jobs: Sequence[Job], config: str | None, told: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters of each job: from the file, and over them from the command line."""
    from tidewheel.engine.job_config import read_config
    from tidewheel.engine.job_finder import installed_jobs

    known = {**installed_jobs(), **{job.name: job for job in jobs}} if config is not None else {}
    written = {} if config is None else read_config(config, known)
    found = {}
    for job in jobs:
        own = {parameter.name for parameter in job.parameters}
        found[job.name] = {**written.get(job.name, {}), **{name: told[name] for name in told if name in own}}
    return found


def _name(job: Job, version: str | None, results: str | None) -> str:
    """The name that the topics of a job's results are called after."""
    if results is not None:
        prefix, dot, rest = results.partition(".")
        if prefix != "analytics" or not dot or not rest:
            raise typer.BadParameter(
                f"results go to a topic analytics.NAME (late rows to late.NAME), got {results!r}",
                param_hint="--results",
            )
        return rest
    return job.name if version is None else f"{job.name}.{version}"


def _stream(
    begin: Callable[[], Run],
    log: Log,
    name: str,
    topics: Sequence[str],
    *,
    stop: Stop,
    length: int | None,
    as_json: bool,
) -> tuple[bool, Mapping[str, str]]:
    """Attend to a run until it ends, and tell: has it ended by itself, and which jobs were taken out?"""
    from tidewheel.transport.run_states import ENDED, FIRST_BATCH, RUNNING, STARTING, RunState, RunStates

    count = ResultCount(log, topics)
    running: list[Run] = []
    states, since = RunStates(log), now()

    def tell(stage: str) -> None:
        with suppress(LogError):  # it may be busy; this is for those who look on
            states.tell(name, RunState(stage, since))

    def work() -> bool:
        tell(STARTING)
        started = begin()
        running.append(started)
        tell(FIRST_BATCH)
        deadline = None if length is None else time.monotonic() + length / 1_000_000
        while not started.wait(0.2):
            if stop.is_set() or (deadline is not None and time.monotonic() >= deadline):
                started.stop()
                return False
        return True

    def status() -> dict[str, Any]:
        if not running:
            return {"job": name, "state": "starting"}
        progress = running[0].progress()
        if progress.batches:
            tell(RUNNING)
        return _status(name, progress, results=count(), failed=running[0].failed)

    try:
        ended = attend(work, stop=stop, status=status, line=_line, as_json=as_json)
        final = status()
    finally:
        tell(ENDED)
    if as_json:
        print_json(final)
    say(_summary(final, topics))
    failed = final.get("failed", {})
    for job, reason in failed.items():
        say(f"{job} was taken out: {reason}. Mend it and start again: it goes on where it stopped", style="red")
    return ended, failed


@contextmanager
def _spark_ended() -> Iterator[None]:
    """Nothing of a Spark that was started in here is left when the command ends; its Java would otherwise end a little
    later. One that was there before stays: whoever calls the command from Python may have use for it."""
    there = _spark_is_there()
    in_a_hurry = False
    try:
        yield
    except KeyboardInterrupt:
        in_a_hurry = True
        raise
    finally:
        if not there and not in_a_hurry and _spark_is_there():
            from tidewheel.engine.session import end_spark

            end_spark()


def _spark_is_there() -> bool:
    pyspark = sys.modules.get("pyspark")  # not imported for this: it takes a while
    return pyspark is not None and pyspark.SparkContext._gateway is not None


def _status(name: str, progress: Progress, *, results: int, failed: Mapping[str, str]) -> dict[str, Any]:
    return {
        "job": name,
        "state": "running",
        "batches": progress.batches,
        "events": progress.events,
        "results": results,
        "rate": round(progress.rate, 1),
        "batch_ms": progress.batch_ms,
        "lag": progress.lag,
        "watermark": None if progress.watermark is None else format_instant(progress.watermark),
        "behind_seconds": None if progress.watermark is None else round((now() - progress.watermark) / 1e6, 3),
        "damaged": progress.damaged,
        "held_by": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "since": format_instant(each.since),
                "watermark": None if each.mark is None else format_instant(each.mark),
            }
            for each in progress.held_by
        ],
        "held": hold_text(progress.held_by, now=now()),
        "failed": dict(failed),
    }


def _line(status: Mapping[str, Any]) -> str:
    if status["state"] == "starting":
        return f"{status['job']}: starting Spark ..."
    behind = status["behind_seconds"]
    watermark = "" if behind is None else f", watermark {approximate_duration(round(behind * 1_000_000))} behind"
    if status["held"]:
        watermark = f"{watermark or ', no watermark'} ({status['held']})"
    failed = f", taken out: {', '.join(status['failed'])}" if status["failed"] else ""
    failed += f", {status['damaged']:,} damaged" if status["damaged"] else ""
    return (
        f"{status['job']}: {status['events']:,} events, {status['results']:,} results ({status['rate']:,.0f} events/s, "
        f"last batch {status['batch_ms']:,.0f} ms), lag {status['lag']:,}{watermark}{failed}"
    )


def _summary(status: Mapping[str, Any], topics: Sequence[str]) -> str:
    if status["state"] == "starting":
        return f"{status['job']}: stopped before it began"
    return (
        f"{status['job']}: {status['events']:,} events processed, {status['results']:,} results in "
        f"{', '.join(topics)}; {status['lag']:,} events left{_damaged(status)}"
    )


def _damaged(status: Mapping[str, Any]) -> str:
    lost = status["damaged"]
    return f"; {lost:,} in damaged blocks were passed over: tidewheel tail dead.{status['job']}" if lost else ""
