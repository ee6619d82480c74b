"""Commands of other packages: found by entry points, loaded when called, and nobody else's trouble if broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.command import tidewheel

_TILL = '''
from datetime import datetime, timezone
from typing import Annotated

import typer

import tidewheel as tw
from tidewheel.cli import DEFAULT_LOG, LogOption, command, opened_log, say


@command(panel="Into the log")
def till(count: Annotated[int, typer.Option(help="So many sales.")] = 3, log: LogOption = DEFAULT_LOG) -> None:
    """Sell something.

        tidewheel till --count 7
    """
    if count < 1:
        raise tw.errors.DefinitionError(f"nothing is sold {count} times")
    with opened_log(log) as opened:
        sold = [{"item": n, "at": datetime.now(timezone.utc)} for n in range(count)]
        opened.append_rows("input.sale", sold, time="at")
        say(f"{count} sold")


def plain() -> None:
    """Plain and simple."""


accounts = typer.Typer(help="Look at the books.")


@accounts.command()
def close() -> None:
    """Close them."""
    print("closed")


@accounts.command()
def open() -> None:
    """Open them."""


nothing = 7
'''


def install(folder: Path, package: str, code: str, **commands: str) -> None:
    """What pip would leave of a package with such commands."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    points = "".join(f"{name} = {module}:{target}\n" for name, target in commands.items())
    (info / "entry_points.txt").write_text(f"[tidewheel.commands]\n{points}")


@pytest.fixture
def packages(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "packages"
    folder.mkdir()
    install(folder, "my-shop", _TILL, till="till", plain="plain", accounts="accounts", topics="plain", seven="nothing")
    install(folder, "sad-shop", "import a_module_that_is_missing", weep="weep")
    install(folder, "other-shop", _TILL, twice="plain")
    install(folder, "third-shop", _TILL, twice="till")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


def flat(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def test_they_are_listed_where_they_say_or_under_their_package(packages):
    text = tidewheel("--help", **packages).stdout
    into, of_shop = text.index("Into the log"), text.index("Of the package my-shop")
    assert into < text.index("│ till ") < text.index("In the log")
    assert of_shop < text.index("│ plain ")
    assert "Sell something." in text
    assert "Look at the books." in text


def test_one_runs_with_its_options_and_its_errors_as_one_of_ours(packages, tmp_path):
    log = tmp_path / "shop.tw"
    assert "2 sold" in tidewheel("till", "--count", 2, "--log", log, **packages).stderr
    assert tidewheel("till", "--count", 0, "--log", log, code=2, **packages).stderr.strip() == (
        "tidewheel: nothing is sold 0 times"
    )
    assert "So many sales." in tidewheel("till", "-h", **packages).stdout
    assert tidewheel("accounts", "close", **packages).stdout == "closed\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("weep", "the command 'weep' of the package sad-shop cannot be loaded: No module named 'a_module_that_is_miss"),
        ("seven", "the command 'seven' of the package my-shop is no function and no typer app"),
        ("twice", "the packages other-shop and third-shop both offer a command 'twice'; remove one of them"),
    ],
)
def test_a_broken_one_is_reported_with_its_package_and_breaks_no_other(packages, command, said):
    assert said in flat(tidewheel(command, "--any", "option", code=3, **packages).stderr)
    listed = flat(tidewheel("--help", **packages).stdout)
    assert said[:60] in listed
    assert "Sell something." in listed


def test_none_takes_the_place_of_one_of_ours(packages):
    assert "Plain and simple" not in tidewheel("topics", "--help", **packages).stdout


def test_a_command_of_ours_loads_none_of_theirs(packages, tmp_path):
    marker = tmp_path / "packages" / "my_shop.py"
    marker.write_text("raise SystemExit('loaded')")
    assert "loaded" not in tidewheel("doctor", "--help", **packages).stderr
