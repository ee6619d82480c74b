"""The command `tidewheel`: all commands, and what happens to errors."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

from tidewheel import __version__
from tidewheel.cli import attending
from tidewheel.cli.archive import archive
from tidewheel.cli.ask import ask
from tidewheel.cli.backup import backup
from tidewheel.cli.common import ExitCode, exit_code, say, taught
from tidewheel.cli.compare import compare
from tidewheel.cli.demo import demo
from tidewheel.cli.doctor import doctor
from tidewheel.cli.ingest import ingest
from tidewheel.cli.record import record
from tidewheel.cli.replay import replay
from tidewheel.cli.restore import restore
from tidewheel.cli.run import JobGroup, run
from tidewheel.cli.serve import serve
from tidewheel.cli.simulate import simulate
from tidewheel.cli.switch import switch
from tidewheel.cli.tail import tail
from tidewheel.cli.topics import topics
from tidewheel.cli.warm_up import warm_up
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
    attending.end_with_stdin = end_with_stdin
    logging.basicConfig(level=logging.INFO if debug else logging.WARNING, handlers=[_Speaking()], force=True)


_options.__doc__ = """Correct event-stream analytics for PySpark, from the sensor to the browser.

Events come in from MQTT, HTTP, recordings or a simulator (ingest, replay, simulate), are kept in a log (a file; see
topics and tail), and jobs on Spark turn them into results, which are in the log again (run) and on a live map (serve).
Each command explains itself: tidewheel COMMAND --help.

    tidewheel demo                   (all of it, with the live map in the browser)
    tidewheel doctor                 (is everything here that it needs?)
    tidewheel simulate --for 1min    (a minute of a city's traffic)
    tidewheel run vehicle-cell --available-now
    tidewheel topics
    tidewheel tail analytics.vehicle-cell

The log is that of --log, or of the environment variable TIDEWHEEL_LOG, or the file tidewheel.tw in the current folder.
Results are written to standard output, everything else to standard error.
"""

app = typer.Typer(
    name="tidewheel",
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
    "Begin here": (demo, doctor, warm_up),
    "Into the log": (simulate, replay, record, ingest, ask),
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


class _Speaking(logging.Handler):
    """What the parts report while they work, as lines of talk: a live line stays intact."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else "dim"
        say(record.getMessage(), style=style)


def main() -> None:
    """Run the command line. An error that was foreseen is one line; any other is shown whole."""
    try:
        app()
    except TidewheelError as error:
        if _debug:
            traceback.print_exc()
        say(f"tidewheel: {error}", style="red")
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
