"""Options and helpers that all commands share: exit codes, output, the log."""

from __future__ import annotations

import inspect
import os
from datetime import datetime
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel.errors import (
    CheckpointError,
    DamagedBlockError,
    DefinitionError,
    SetupError,
    TidewheelError,
    TopicNotFoundError,
)
from tidewheel.model.time import Duration, Instant, duration, format_duration, format_instant, instant

if TYPE_CHECKING:
    from rich.console import Console

    from tidewheel.transport.log.log import Log

__all__ = [
    "CaOption",
    "CertificateOption",
    "DEFAULT_LOG",
    "DurationOption",
    "ExistingLogOption",
    "ExitCode",
    "JsonOption",
    "KeyOption",
    "LogOption",
    "PasswordFileOption",
    "ProcessorOption",
    "SkipDamagedOption",
    "_PROCESSORS",
    "_SWITCHES",
    "_WANTED",
    "existing_log",
    "exit_code",
    "local_time",
    "opened_log",
    "out",
    "parse_duration",
    "parse_instant",
    "parse_speed",
    "say",
    "size",
    "taught",
    "report_damage",
]


class ExitCode(IntEnum):
    """The exit codes of commands, for the scripts that call them."""

    FINE = 0
    FAILED = 1
    USAGE = 2
    SETUP = 3
    CHECKPOINT = 4
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """Describe the exit code, for the help."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.FINE: "fine; also when a command that goes on until it is stopped was stopped",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "bad usage: an option, topic, job or file that does not exist or is invalid",
    ExitCode.SETUP: "the machine lacks something: Java, a package, a broker; see tidewheel doctor",
    ExitCode.CHECKPOINT: "the checkpoint does not fit the job, or another run holds it",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C (143: by SIGTERM) before its work was done",
}


def exit_code(error: TidewheelError) -> ExitCode:
    """The exit code for an error.

    >>> exit_code(SetupError("no Java"))
    <ExitCode.SETUP: 3>
    """
    for kind, code in (
        ((DefinitionError, TopicNotFoundError), ExitCode.USAGE),
        (SetupError, ExitCode.SETUP),
        (CheckpointError, ExitCode.CHECKPOINT),
    ):
        if isinstance(error, kind):
            return code
    return ExitCode.FAILED


@cache
def out(*, stderr: bool = False) -> Console:
    """Return the console for results on standard output, or for messages on standard error."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 200  # nothing is cut off where nobody looks
    return console


def say(text: str, *, style: str | None = None) -> None:
    """Print a message to standard error, without interpreting markup."""
    out(stderr=True).print(text, style=style, markup=False)


def report_damage(damaged: DamagedBlockError) -> None:
    """Report damaged records and continue, for `--skip-damaged`."""
    say(str(damaged).partition(". ")[0], style="red")


def taught(function: Any) -> str:
    """Make the help of a command from its docstring: paragraphs flow, indented lines (examples) stay as they are."""
    parts = []
    text = (inspect.getdoc(function) or "").replace("[", "\\[")  # no markup of rich's
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            parts.append("\n".join(f"[cyan]{line}[/cyan]" for line in paragraph.splitlines()))
        else:
            parts.append(" ".join(paragraph.split("\n")))
    return "\n\n".join(parts)


def size(count: int) -> str:
    """Format a number of bytes.

    >>> size(512), size(1_536), size(5 << 30)
    ('512 B', '1.5 KiB', '5.0 GiB')
    """
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def local_time(when: Instant) -> str:
    """Format an instant as the clock on the wall does: time of day to the millisecond, with the date if not today's."""
    try:
        local = datetime.fromtimestamp(when / 1_000_000)
    except (OverflowError, ValueError, OSError):
        return format_instant(when)
    text = local.strftime("%H:%M:%S.%f")[:-3]
    return text if local.date() == datetime.now().date() else f"{local.date()} {text}"


def parse_duration(text: str) -> Duration:
    """Parse a duration of the command line, above 0."""
    try:
        value = duration(text)
    except DefinitionError as error:
        raise typer.BadParameter(str(error)) from None
    if value <= 0:
        raise typer.BadParameter(f"must be longer than {format_duration(0)}, got {text!r}")
    return value


def parse_instant(text: str) -> Instant:
    """Parse a time of the command line: ISO text; what names no zone is UTC."""
    try:
        return instant(text)
    except DefinitionError as error:
        raise typer.BadParameter(str(error)) from None


def parse_speed(text: str) -> float | None:
    """Parse a speed relative to the clock; None for max."""
    if text == "max":
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise typer.BadParameter(f'must be a number above 0, or "max", got {text!r}')
    return value


DEFAULT_LOG = "tidewheel.tw"

LogOption = Annotated[
    str,
    typer.Option("--log", envvar="TIDEWHEEL_LOG", metavar="PATH", help="The log: a file, created if it is missing."),
]

ExistingLogOption = Annotated[
    str, typer.Option("--log", envvar="TIDEWHEEL_LOG", metavar="PATH", help="The log: an existing file.")
]

DurationOption = Annotated[
    int | None,
    typer.Option("--for", metavar="DURATION", parser=parse_duration, help="Stop after 30s, 5min, 2h ..."),
]

ProcessorOption = Annotated[
    str | None,
    typer.Option(
        "--processor", metavar="NAME", help="The processor of the messages: events, json, or one from a package."
    ),
]

CaOption = Annotated[
    str | None,
    typer.Option("--ca", metavar="FILE", help="Certificates to trust with TLS (MQTT).", show_default="the system's"),
]

CertificateOption = Annotated[
    str | None,
    typer.Option("--certificate", metavar="FILE", help="This client's own certificate, if the broker requires one."),
]

KeyOption = Annotated[
    str | None,
    typer.Option(
        "--certificate-key", metavar="FILE", help="Its private key.", show_default="in the file of the certificate"
    ),
]

SkipDamagedOption = Annotated[
    bool,
    typer.Option("--skip-damaged", help="Skip records whose blocks are damaged, and report them."),
]

PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file with the password for the MQTT broker in its first line.",
        show_default="the environment variable TIDEWHEEL_MQTT_PASSWORD",
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]

_PROCESSORS = {
    "events": "tidewheel.ingest.processors.events:EventProcessor",
    "json": "tidewheel.ingest.processors.json_rows:JsonProcessor",
}
"""The processors that come with ingestion itself."""


def opened_log(address: str, **options: Any) -> Log:
    """Open the log for a command that writes; created if it is missing."""
    from tidewheel.lazy_pandas import defer_pandas
    from tidewheel.transport.open_log import open_log

    defer_pandas()

    return open_log(address, **options)


def existing_log(address: str) -> Log:
    """Open the log for a command that only reads: it must be there."""
    if "://" not in address and not os.path.exists(address):
        raise DefinitionError(
            f"there is no log {address}; name another with --log, or fill this one: tidewheel ingest --log {address}"
        )
    return opened_log(address, create=False)


_SWITCHES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

_WANTED: dict[Any, str] = {bool: "yes or no", int: "a whole number", float: "a number", str: "text"}
