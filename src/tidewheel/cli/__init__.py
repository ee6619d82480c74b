"""The command line: one file for each command, `app` for all of them together.

These are the names for commands of your own (`docs/extending.md`): options that every command has alike, and how a
command speaks, goes on until it is stopped, and ends. None loads polars, pyarrow or Spark before it is needed.
"""

from tidewheel.cli.app import main
from tidewheel.cli.broker import make_broker
from tidewheel.cli.command_options import with_options
from tidewheel.cli.connectors import Account, account_line
from tidewheel.cli.installed_commands import command
from tidewheel.cli.options import (
    DEFAULT_LOG,
    CaOption,
    CertificateOption,
    ExistingLogOption,
    ExitCode,
    JsonOption,
    KeyOption,
    LogOption,
    PasswordFileOption,
    SkipDamagedOption,
    existing_log,
    local_time,
    opened_log,
    out,
    parse_duration,
    parse_instant,
    parse_speed,
    say,
)
from tidewheel.cli.progress import Stop, print_json, run_with_progress, start_text, stoppable
from tidewheel.model.rate import Rate
from tidewheel.transport.log.private_files import make_private_folder

__all__ = [
    "Account",
    "CaOption",
    "CertificateOption",
    "DEFAULT_LOG",
    "ExistingLogOption",
    "ExitCode",
    "JsonOption",
    "KeyOption",
    "LogOption",
    "PasswordFileOption",
    "Rate",
    "SkipDamagedOption",
    "Stop",
    "account_line",
    "command",
    "existing_log",
    "local_time",
    "main",
    "make_broker",
    "make_private_folder",
    "opened_log",
    "out",
    "parse_duration",
    "parse_instant",
    "parse_speed",
    "print_json",
    "run_with_progress",
    "say",
    "start_text",
    "stoppable",
    "with_options",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports
