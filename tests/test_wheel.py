"""The wheel holds all that an installation needs: the page of the live map comes from it, not from a checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

import duckdb
import httpx
import pytest

from tests import ROOT
from tests.support.command import Running, environment
from tests.support.run_pages import code_blocks, write_orders
from tidewheel.model.time import now
from tidewheel.serve.http.page import Page
from tidewheel.transport.events import codec
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import VehicleCell

pytestmark = pytest.mark.long

PAGE = PurePosixPath("tidewheel/serve/page")
NOT_OURS = (".git", ".venv", "node_modules", "build", "dist", "__pycache__", ".*_cache", ".hypothesis", "*.tw*")


def pip(*arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, arguments), "--no-deps", "--quiet", "--disable-pip-version-check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from a copy of the checkout: making it compiles the .proto files anew, which other tests use meanwhile."""
    if not Page().built:
        pytest.skip("the page is not built: make web")
    folder = tmp_path_factory.mktemp("wheel")
    checkout = shutil.copytree(ROOT, folder / "checkout", ignore=shutil.ignore_patterns(*NOT_OURS))
    stray = checkout / "src" / "tidewheel" / "serve" / "node_modules" / "some" / "index.js"
    stray.parent.mkdir(parents=True)
    stray.touch()
    pip("wheel", checkout, "--wheel-dir", folder)
    (made,) = folder.glob("tidewheel-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A fresh environment with the wheel, which sees the packages of this one, but not the checkout."""
    folder = wheel.parent / "environment"
    venv.create(folder, with_pip=False, symlinks=True)
    pip("--python", folder / "bin" / "python", "install", wheel)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Paths in a .pth file are looked into for modules alone, not for other .pth files, as that of an editable install.
    (packages / "others.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    return folder


@pytest.mark.slow
def test_it_holds_the_page_and_the_compiled_messages_and_no_more_than_the_package(wheel):
    names = [PurePosixPath(name) for name in ZipFile(wheel).namelist()]
    tops = {name.parts[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tidewheel", "tidewheel_transit"}
    assert not [name for name in names if "node_modules" in name.parts or name.name.startswith("test_")]
    page = {str(name.relative_to(PAGE)) for name in names if PAGE in name.parents}
    index = ZipFile(wheel).read(str(PAGE / "index.html")).decode()
    assert {"index.html", "icon.svg", "land.json", *assets(index)} <= page
    built = ROOT / "src" / PAGE
    assert page == {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    assert PurePosixPath("tidewheel_transit/transit_pb2.py") in names


@pytest.mark.slow
def test_installed_it_serves_the_page_without_the_checkout(installed, wheel, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    value = codec.encode(codec.pack(VehicleCell(operator=1, vehicle=7, lat=60.2, lon=24.9), event_time=now()))
    with open_log(tmp_path / "city.tw") as log:
        log.append("analytics.vehicle-cell", records([value], event_times=[now()]))
    where = "import tidewheel; print(tidewheel.__file__)"
    reported = subprocess.run(
        [installed / "bin" / "python", "-c", where], env=environment(), capture_output=True, text=True, check=True
    )
    assert installed in Path(reported.stdout.strip()).parents
    command = [str(installed / "bin" / "tidewheel")]
    with Running("serve", "--log", tmp_path / "city.tw", "--port", 0, "--json", command=command) as server:
        url = next(server.objects())["url"]
        index = httpx.get(f"{url}/")
        assert index.headers["content-type"] == "text/html; charset=utf-8"
        kinds = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
        found = assets(index.text)
        assert {Path(name).suffix for name in found} >= set(kinds)
        for name in [*found, "land.json"]:
            answer = httpx.get(f"{url}/{name}")
            assert answer.content == ZipFile(wheel).read(str(PAGE / name))
            assert answer.headers["content-type"] == kinds.get(Path(name).suffix, answer.headers["content-type"])
        layers = httpx.get(f"{url}/api/layers").json()["layers"]
        assert [layer["title"] for layer in layers] == ["Vehicles"], "entry points of the wheel are found"


@pytest.mark.slow
def test_installed_the_first_example_of_the_readme_gives_the_sessions_of_an_oracle(installed, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    first = code_blocks((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert sum(bool(line.strip()) for line in first.splitlines()) <= 15
    write_orders(tmp_path / "orders")
    program = tmp_path / "first.py"
    program.write_text(first)
    python = installed / "bin" / "python"
    done = subprocess.run(
        [python, program], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert last_results(tmp_path / "sessions") == sessions_of(tmp_path / "orders")
    timings = duckdb.sql(f"SELECT DISTINCT pane_timing FROM '{tmp_path}/sessions/**/*.parquet'").fetchall()
    assert {("EARLY",), ("ON_TIME",)} <= {*timings}


def last_results(folder: Path) -> list[tuple[Any, ...]]:
    """What is left when retractions have done their work: each result counts once, and its retraction against it."""
    return duckdb.sql(
        f"""SELECT "user", epoch_us(window_start), epoch_us(window_end), orders, revenue
        FROM '{folder}/**/*.parquet'
        GROUP BY ALL HAVING sum(CASE WHEN retraction THEN -1 ELSE 1 END) > 0 ORDER BY 1, 2"""
    ).fetchall()


def sessions_of(folder: Path) -> list[tuple[Any, ...]]:
    """The oracle: half an hour without an order ends a session."""
    return duckdb.sql(
        f"""WITH marked AS (
            SELECT *, coalesce(ts - lag(ts) OVER mine >= INTERVAL 30 MINUTE, true) AS begins
            FROM '{folder}/*.parquet' WINDOW mine AS (PARTITION BY "user" ORDER BY ts)
        ), numbered AS (
            SELECT *, sum(begins::INT) OVER (PARTITION BY "user" ORDER BY ts ROWS UNBOUNDED PRECEDING) AS nth
            FROM marked
        )
        SELECT "user", epoch_us(min(ts)), epoch_us(max(ts) + INTERVAL 30 MINUTE), count(*), sum(amount)
        FROM numbered GROUP BY "user", nth ORDER BY 1, 2"""
    ).fetchall()


def assets(index: str) -> set[str]:
    """The scripts and styles that the page asks for."""
    return set(re.findall(r'(?:src|href)="\./(assets/[^"]+)"', index))
