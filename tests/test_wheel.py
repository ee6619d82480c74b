"""The wheel holds all that an installation needs: the page of the live map comes from it, not from a checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import httpx
import pytest
from cli_support import Running, environment

from tidewheel.apps.transit.transit_pb2 import VehicleCell
from tidewheel.model.time import now
from tidewheel.serve.page import Page
from tidewheel.transport import codec
from tidewheel.transport.log import open_log, records

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parent.parent
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
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tidewheel"}
    assert not [name for name in names if "node_modules" in name.parts or name.name.startswith("test_")]
    page = {str(name.relative_to(PAGE)) for name in names if PAGE in name.parents}
    index = ZipFile(wheel).read(str(PAGE / "index.html")).decode()
    assert {"index.html", "icon.svg", "land.json", *assets(index)} <= page
    built = ROOT / "src" / PAGE
    assert page == {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    assert PurePosixPath("tidewheel/apps/transit/transit_pb2.py") in names


@pytest.mark.slow
def test_installed_it_serves_the_page_without_the_checkout(installed, wheel, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    value = codec.encode(codec.pack(VehicleCell(operator=1, vehicle=7, lat=60.2, lon=24.9), event_time=now()))
    with open_log(tmp_path / "city.tw") as log:
        log.append("analytics.vehicle-cell", records([value], event_times=[now()]))
    where = "import tidewheel; print(tidewheel.__file__)"
    told = subprocess.run(
        [installed / "bin" / "python", "-c", where], env=environment(), capture_output=True, text=True, check=True
    )
    assert installed in Path(told.stdout.strip()).parents
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


def assets(index: str) -> set[str]:
    """The scripts and styles that the page asks for."""
    return set(re.findall(r'(?:src|href)="\./(assets/[^"]+)"', index))
