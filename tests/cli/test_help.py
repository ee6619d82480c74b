"""The help teaches, and comes at once."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tests.support.command import environment, tidewheel
from tidewheel import __version__
from tidewheel.cli import main
from tidewheel.cli.options import ExitCode

COMMANDS = [
    "demo",
    "simulate",
    "replay",
    "record",
    "ingest",
    "ask",
    "topics",
    "tail",
    "compare",
    "switch",
    "archive",
    "doctor",
    "kafka",
    "run",
    "serve",
]


def test_the_command_is_installed():
    (script,) = entry_points(group="console_scripts", name="tidewheel")
    assert script.load() is main


def test_the_help_names_every_command_and_every_exit_code():
    text = tidewheel("--help").stdout
    for command in COMMANDS:
        assert f"│ {command} " in text
    for code in ExitCode:
        assert f"{int(code):3}  {code.meaning}" in text


def test_without_arguments_there_is_help():
    assert "Usage" in tidewheel(code=2).stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(command, inside):
    text = inside(command, "--help").stdout
    assert f"    tidewheel {command}" in text
    assert len(text.splitlines()) > 10


def test_the_jobs_are_listed_with_what_they_do(inside):
    assert "vehicle-cell Each vehicle position with its H3 cell." in " ".join(inside("run", "--help").stdout.split())


def test_the_parameters_of_a_job_are_options_with_its_defaults(inside):
    text = inside("run", "vehicle-cell", "--help").stdout
    (line,) = (line for line in text.splitlines() if "--resolution" in line)
    assert "default: (9)" in line
    assert "Reads input.vehicle-position, writes analytics.vehicle-cell" in text


def test_the_version_is_reported():
    assert tidewheel("--version").stdout == f"tidewheel {__version__}\n"


def imported(*arguments: str) -> set[str]:
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('\\n'.join(['modules:', *sys.modules])))\n"
        f"sys.argv = ['tidewheel', *{list(arguments)!r}]\n"
        "from tidewheel.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    return set(done.stdout.partition("modules:\n")[2].splitlines())


def test_help_loads_none_of_the_large_libraries():
    assert not {"pyspark", "polars", "pyarrow"} & imported("--help")


def test_looking_at_the_log_does_not_load_spark(small_log):
    for command in (["tail", "input.arrival"], ["topics"]):
        modules = imported(*command, "--log", str(small_log))
        assert "pyarrow" in modules
        assert "pyspark" not in modules
