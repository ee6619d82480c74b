"""`tidewheel run JOB`: jobs on the log, on Spark."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tidewheel.cli.command_options import option_parameters
from tidewheel.cli.options import ExitCode, opened_log, taught
from tidewheel.cli.progress import Stop, stoppable
from tidewheel.cli.run.batch import Given, run_as_batch
from tidewheel.cli.run.options import RunCommandOptions
from tidewheel.cli.run.progress import follow_run
from tidewheel.engine.datasource.result_topics import refuse_others_results
from tidewheel.errors import DefinitionError
from tidewheel.lazy_pandas import defer_pandas
from tidewheel.topic_names import analytics, job_of

if TYPE_CHECKING:
    from tidewheel.engine.execution.running_query import Run
    from tidewheel.engine.jobs.job import Job, Parameter
    from tidewheel.engine.streams.result import Result
    from tidewheel.transport.log.log import Log

__all__ = ["JobGroup", "run"]

_JOB_PANEL = "Parameters"
_SHARED = "jobs"


def run() -> None:
    """Run jobs on the log, on Spark.

    A job reads topics of the log and writes its results to the topic analytics.JOB, each exactly once: it notes in its
    checkpoint how far it has come and goes on there when it is started again, whatever happened in between. Ctrl-C and
    SIGTERM let it finish the batch at hand. Several jobs run together as one query, which reads each topic once; one
    that fails is taken out and reported, and the others go on. A job is named by its name, or by the Python file that
    defines it. Each has parameters of its own: tidewheel run JOB --help. A file in TOML can set them, too.

        tidewheel run my_job.py
        tidewheel run my_job.py delays --config city.toml
        tidewheel run --all --available-now             (work off what is there, then end)
        tidewheel run delays --size "1 h" --version v2  (beside the one that runs: topics and state of its own)
        tidewheel run delays --batch --input city.archive    (over all of it at once)
        tidewheel run delays --batch --input monday.jsonl.gz --input tuesday.jsonl.gz --processor events
    """


class JobGroup(TyperGroup):
    """The jobs of the installed packages as commands. They are looked for only when asked for: that takes a while."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List the names of the jobs."""
        from tidewheel.engine.jobs.discovery import installed_jobs

        defer_pandas()
        return list(installed_jobs())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Make the command of a job."""
        return None if cmd_name.startswith("-") else _command(_found([cmd_name]))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace `--all` by the names of all jobs."""
        if args[:1] == ["--all"]:
            args = [*self.list_commands(ctx), *args[1:]]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of all jobs that are named before the first option."""
        count = next((number for number, text in enumerate(args) if text.startswith("-")), len(args))
        if count < 2:
            return super().resolve_command(ctx, args)
        return " ".join(args[:count]), _command(_found(args[:count])), args[count:]


def _found(names: Sequence[str]) -> list[Job]:
    from tidewheel.engine.jobs.discovery import find_jobs

    defer_pandas()  # before modules of jobs are imported: what they make of pyarrow at once would import pandas, too
    return find_jobs(names)


def _command(jobs: Sequence[Job]) -> Any:
    """A command with the options of every run, and one for each parameter of these jobs."""
    parameters = _parameters(jobs)

    def command(**given: Any) -> None:
        chosen = {name: value for name in parameters if (value := given.pop(name)) is not None}
        _run(jobs, RunCommandOptions(**given), chosen)

    common = option_parameters(RunCommandOptions)
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
    texts = [f"{taught(job.function)}\n\nReads {', '.join(job.reads)}, writes {job.topic}." for job in jobs]
    if len(jobs) > 1:
        texts = [f"{job.name}: {text}" for job, text in zip(jobs, texts, strict=True)]
    app.command(" ".join(job.name for job in jobs), rich_help_panel="Jobs", help="\n\n".join(texts))(command)
    return get_command(app)


def _parameters(jobs: Sequence[Job]) -> dict[str, tuple[Parameter, str]]:
    """The parameters of all these jobs, with their defaults as text. A parameter that several jobs have applies to all
    of them."""
    found: dict[str, list[tuple[Job, Parameter]]] = {}
    for job in jobs:
        for parameter in job.parameters:
            found.setdefault(parameter.name, []).append((job, parameter))
    shown = {}
    for name, having in found.items():
        kinds = {parameter.type for _, parameter in having}
        if len(kinds) > 1:
            types = ", ".join(f"{parameter.type.__name__} for {job.name}" for job, parameter in having)
            raise DefinitionError(f"the parameter {name} is {types}; run these jobs apart")
        defaults = {str(parameter.default) for _, parameter in having}
        words = (
            defaults.pop() if len(defaults) == 1 else ", ".join(f"{job.name}: {each.default}" for job, each in having)
        )
        shown[name] = (having[0][1], words)
    return shown


def _run(jobs: Sequence[Job], options: RunCommandOptions, given: Mapping[str, Any]) -> None:
    options.check(jobs=len(jobs))
    version = options.version
    if options.batch and version is None and options.results is None:
        version = "batch"  # beside what the stream writes, to be compared with it
    over = Given.of(options.sources or [], options.processor)
    parameters = _configured(jobs, options.config, given)
    names = [_name(job, version, options.results) for job in jobs]
    called = options.name or (names[0] if len(names) == 1 else _SHARED + (f".{version}" if version else ""))
    topics = [analytics(each) for each in names]

    def on(read: Log) -> list[Result]:
        return [job.on(read, **parameters[job.name]).named(each) for job, each in zip(jobs, names, strict=True)]

    with stoppable() as stop, opened_log(options.log) as opened, _spark_ended():
        if not options.batch:
            _stream(on(opened), opened, called, topics, options, stop=stop)
            return
        if not options.append_to_existing:
            refuse_others_results(opened, topics)  # before recordings are read
        run_as_batch(
            on,
            opened,
            over,
            called,
            topics,
            append_to_existing=options.append_to_existing,
            skip_damaged=options.skip_damaged,
            stop=stop,
            as_json=options.as_json,
        )


def _stream(
    results: Sequence[Result], log: Log, name: str, topics: Sequence[str], options: RunCommandOptions, *, stop: Stop
) -> None:
    def spark() -> Any:
        from tidewheel.engine.execution.session import session
        from tidewheel.engine.spark.local_fs import FSYNC

        return session(settings={FSYNC: str(options.fsync).lower()})

    def begin() -> Run:
        from tidewheel.engine.checkpoint.checkpoint_folder import checkpoint_folder
        from tidewheel.engine.execution.query_start import start_query
        from tidewheel.engine.execution.run_options import RunSettings
        from tidewheel.engine.jobs.run import default_targets

        return start_query(
            default_targets(results, log),
            log,
            checkpoint=options.checkpoint or checkpoint_folder(log, name),
            name=name,
            settings=RunSettings(
                spark=spark,
                available_now=options.available_now,
                start_from=options.start_from,
                max_events_per_batch=options.max_events,
                max_bytes_per_batch=options.max_bytes,
                accept_changes=options.accept_changes,
                skip_damaged=options.skip_damaged,
                append_to_existing=options.append_to_existing,
            ),
        )

    ended, failed = follow_run(begin, log, name, topics, stop=stop, length=options.length, as_json=options.as_json)
    if failed:
        raise typer.Exit(ExitCode.FAILED)
    if not ended and (options.available_now or options.length is not None):
        stop.unfinished()


def _configured(jobs: Sequence[Job], config: str | None, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters of each job: from the file, and over them from the command line."""
    from tidewheel.engine.jobs.configuration import read_config
    from tidewheel.engine.jobs.discovery import installed_jobs

    known = {**installed_jobs(), **{job.name: job for job in jobs}} if config is not None else {}
    written = {} if config is None else read_config(config, known)
    found = {}
    for job in jobs:
        own = {parameter.name for parameter in job.parameters}
        found[job.name] = {**written.get(job.name, {}), **{name: given[name] for name in given if name in own}}
    return found


def _name(job: Job, version: str | None, results: str | None) -> str:
    """The name that the topics of a job's results are called after."""
    if results is not None:
        name = job_of(results)
        if not name or name == results:
            raise typer.BadParameter(
                f"results go to a topic analytics.NAME (late rows to late.NAME), got {results!r}",
                param_hint="--results",
            )
        return name
    return job.name if version is None else f"{job.name}.{version}"


@contextmanager
def _spark_ended() -> Iterator[None]:
    """End a Spark that was started in here before the command ends; its Java would otherwise end a little later. One
    that was there before stays: a caller from Python may have use for it."""
    there = _spark_is_there()
    in_a_hurry = False
    try:
        yield
    except KeyboardInterrupt:
        in_a_hurry = True
        raise
    finally:
        if not there and not in_a_hurry and _spark_is_there():
            from tidewheel.engine.execution.session import end_spark

            end_spark()


def _spark_is_there() -> bool:
    pyspark = sys.modules.get("pyspark")  # not imported for this: it takes a while
    return pyspark is not None and pyspark.SparkContext._gateway is not None
