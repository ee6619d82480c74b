"""The documentation's code runs, and its tables tell of every option."""

from __future__ import annotations

import doctest
import functools
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

import tidewheel
import tidewheel.cli
import tidewheel_transit
from tests import ROOT
from tests.support.run_pages import code_of
from tidewheel.cli.app import app
from tidewheel.engine.datasource.options import ReadOptions, WriteOptions
from tidewheel.ingest.http.limits import HttpLimits
from tidewheel.ingest.lookup import Limits
from tidewheel.serve import Layer
from tidewheel.serve.http.limits import ServeLimits

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/jobs.md",
    "docs/log.md",
    "docs/kafka.md",
    "docs/backup.md",
    "docs/existing-job.md",
    "docs/extending.md",
    "docs/spark.md",
    "docs/ingestion.md",
    "docs/windows.md",
    "docs/patterns.md",
    "docs/pattern-control.md",
    "docs/testing.md",
    "docs/sql.md",
    "docs/transit.md",
    "docs/lookups.md",
    "docs/map.md",
]


WITH_CODE = [page for page in PAGES if code_of(ROOT / page)]


@functools.cache
def outcomes(*pages: str) -> dict[str, dict[str, Any]]:
    """What came of the code of these pages, which run one after another."""
    with tempfile.TemporaryDirectory(prefix="pages") as folder:
        done = subprocess.run(
            [sys.executable, ROOT / "tests" / "support" / "run_pages.py", *(str(ROOT / page) for page in pages)],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {str(Path(outcome["page"]).relative_to(ROOT)): outcome for outcome in found}


@pytest.mark.slow
def test_the_code_of_the_readme_runs():
    outcome = outcomes("README.md")["README.md"]
    assert not outcome["error"], outcome["error"]
    assert outcome["counts"]["analytics.fast-vehicles"] > 0
    assert "Progress(" in outcome["printed"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in WITH_CODE if page != "README.md"])
def test_the_code_of_a_page_runs(page):
    outcome = outcomes(*(each for each in WITH_CODE if each != "README.md"))[page]
    assert not outcome["error"], outcome["error"]
    if page == "docs/windows.md":
        reported = (ROOT / page).read_text(encoding="utf-8")
        assert outcome["printed"] in reported, "what explain() says is in the page"


MODULES = [
    info.name
    for package in (tidewheel, tidewheel_transit)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not info.name.endswith(("_pb2", ".__main__"))
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_are_true(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


@pytest.mark.parametrize("options", [ReadOptions, WriteOptions])
def test_every_option_of_the_format_is_documented(options):
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    names = options.NAMES.split()
    missing = [name for name in names if f"| `{name}` |" not in page and name != "path"]
    assert missing == []


def test_every_limit_of_a_lookup_is_documented():
    page = (ROOT / "docs" / "lookups.md").read_text(encoding="utf-8")
    assert [field.name for field in fields(Limits) if f"| `{field.name}` |" not in page] == []


def test_every_limit_of_the_http_connector_is_documented():
    page = (ROOT / "docs" / "ingestion.md").read_text(encoding="utf-8")
    table = page.partition("**Limits**")[2].partition("\n\nWhen there are more")[0]
    assert [field.name for field in fields(HttpLimits) if f"`{field.name}`" not in table] == []


def test_every_name_for_commands_is_documented():
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    assert [name for name in tidewheel.cli.__all__ if f"`{name}`" not in page.partition("exports\n\n|")[2]] == []


def test_every_limit_of_the_server_is_documented():
    page = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    assert [field.name for field in fields(ServeLimits) if f"| `{field.name}` |" not in page] == []


def test_every_field_of_a_layer_is_documented():
    page = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    table = page.partition("| field |")[2].partition("\n\n")[0]
    assert [name for name in Layer.__struct_fields__ if f"`{name}`" not in table] == []


def test_every_room_is_in_the_architecture():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = Path(tidewheel.__file__).parent
    rooms = {path.parent.name for path in source.rglob("__init__.py")} - {"tidewheel"}
    assert [room for room in sorted(rooms) if f"`{room}`" not in page and f"`{room}/`" not in page] == []


def test_every_file_that_the_architecture_names_is_there():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = Path(tidewheel.__file__).parent
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+)`", page)
    places = [source, source / "engine", source / "patterns"]
    assert len(named) > 15
    assert [n for n in named if not any((p / n).is_dir() or (p / f"{n}.py").is_file() for p in places)] == []


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        folder = (ROOT / page).parent
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
            assert (folder / target).exists(), f"{page} → {target}"


def test_every_command_is_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = typer.main.get_command(app).list_commands(None)
    assert len(names) >= 9
    assert [name for name in names if not re.search(rf"`(tidewheel )?{name}\b", readme)] == []
    assert (ROOT / "LICENSE").read_text().strip().startswith("Apache License")
