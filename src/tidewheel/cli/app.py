"""The command `tidewheel`: all commands, and what happens to errors."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

from tidewheel import __version__
from tidewheel.cli import progress
from tidewheel.cli.commands.archive import archive
from tidewheel.cli.commands.backup import backup
from tidewheel.cli.commands.compare import compare
from tidewheel.cli.commands.doctor import doctor
from tidewheel.cli.commands.ingest import ingest
from tidewheel.cli.commands.kafka.group import kafka_commands
from tidewheel.cli.commands.record import record
from tidewheel.cli.commands.replay import replay
from tidewheel.cli.commands.restore import restore
from tidewheel.cli.commands.run import JobGroup, run
from tidewheel.cli.commands.serve import serve
from tidewheel.cli.commands.switch import switch
from tidewheel.cli.commands.tail import tail
from tidewheel.cli.commands.topics import topics
from tidewheel.cli.commands.warm_up import warm_up
from tidewheel.cli.installed_commands import CommandGroup
from tidewheel.cli.options import ExitCode, exit_code, say, taught
from tidewheel.errors import TidewheelError

__all__ = ["app", "main"]

_CODES = "Exit codes:\n\n" + "\n".join(f"{int(code):3}  {code.meaning}" for code in ExitCode)

_debug = False


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tidewheel {__version__}")
        raise typer.Exit


def _options(
    debug: Annotated[
        bool, typer.Option("--debug", envvar="TIDEWHEEL_DEBUG", help="Show errors with all their details.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    end_with_stdin: Annotated[
        bool, typer.Option("--end-with-stdin", hidden=True, help="Stop when standard input ends.")
    ] = False,
) -> None:
    global _debug
    _debug = debug
    progress.end_with_stdin = end_with_stdin
    logging.basicConfig(level=logging.INFO if debug else logging.WARNING, handlers=[_Speaking()], force=True)


_options.__doc__ = """Correct event-stream analytics for PySpark, from the sensor to the browser.

Events come in from MQTT, HTTP or recordings (ingest, replay), are kept in a log (a file; see topics and tail), and jobs
on Spark turn them into results, which are in the log again (run) and on a live map (serve). Installed packages add
commands, jobs and processors of their own. Each command explains itself: tidewheel COMMAND --help.

    tidewheel doctor                 (check the installation)
    tidewheel ingest --http 127.0.0.1:8090 --processor events
    tidewheel run my_job.py --available-now
    tidewheel topics
    tidewheel tail analytics.my-job

The log is that of --log, or of the environment variable TIDEWHEEL_LOG, or the file tidewheel.tw in the current folder.
Results are written to standard output, everything else to standard error.
"""

app = typer.Typer(
    name="tidewheel",
    cls=CommandGroup,
    help=taught(_options),
    epilog=_CODES,
    callback=_options,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Begin here": (doctor, warm_up),
    "Into the log": (ingest, replay, record),
    "In the log": (topics, tail, compare, switch, archive, backup, restore),
    "From the log, to people": (serve,),
}
for _panel, _functions in _PANELS.items():
    for _function in _functions:
        app.command(help=taught(_function), rich_help_panel=_panel)(_function)
app.add_typer(
    typer.Typer(
        name="run",
        cls=JobGroup,
        help=taught(run),
        callback=run,
        no_args_is_help=True,
        subcommand_metavar="JOB [JOB]... [OPTIONS]",
        rich_markup_mode="rich",
    ),
    rich_help_panel="From the log, to the log",
)
app.add_typer(kafka_commands(), rich_help_panel="Begin here")


class _Speaking(logging.Handler):
    """A log handler that prints warnings as status text, so that a live line stays intact."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else "dim"
        say(record.getMessage(), style=style)


def main() -> None:
    """Run the command line. An expected error is printed in one line; any other with its traceback."""
    try:
        app()
    except TidewheelError as error:
        if _debug:
            traceback.print_exc()
        say(f"tidewheel: {error}", style="red")
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
