"""The documentation's code runs, and its tables tell of every option."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import typer

import tidewheel
from tidewheel.apps.transit.simulator import Simulator
from tidewheel.cli.app import app
from tidewheel.engine.options import ReadOptions, WriteOptions
from tidewheel.ingest.lookup import Limits
from tidewheel.transport.log import open_log

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/log.md",
    "docs/spark.md",
    "docs/ingestion.md",
    "docs/windows.md",
    "docs/patterns.md",
    "docs/pattern-control.md",
    "docs/testing.md",
    "docs/sql.md",
    "docs/lookups.md",
]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_the_code_of_a_page_runs(page, tmp_path):
    with open_log(tmp_path / "city.tw") as log:
        simulated = Simulator(start=1_760_000_000_000_000).advance(1_760_000_020_000_000).records()
        for topic, batch in simulated.topics.items():
            log.append(topic, batch)
        code = "\n".join(blocks(page))
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if page == "README.md":
            assert log.topic_info("analytics.fast-vehicles").count > 0
            assert "Progress(" in done.stdout


MODULES = [
    info.name
    for info in pkgutil.walk_packages(tidewheel.__path__, "tidewheel.")
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


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        folder = (ROOT / page).parent
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
            assert (folder / target).exists(), f"{page} → {target}"


def test_every_command_is_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = list(typer.main.get_command(app).commands)
    assert len(names) >= 9
    assert [name for name in names if not re.search(rf"`(tidewheel )?{name}\b", readme)] == []
    assert (ROOT / "LICENSE").read_text().strip().startswith("Apache License")
