"""`serve`: the live map of a log, from its start to its end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from tests.support.command import Running, environment
from tidewheel.model.time import now
from tidewheel.transport.events import codec
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import VehicleCell


@pytest.fixture
def city(tmp_path):
    value = codec.encode(codec.pack(VehicleCell(operator=1, vehicle=7, lat=60.2, lon=24.9), event_time=now()))
    with open_log(tmp_path / "city.tw") as log:
        log.append("analytics.vehicle-cell", records([value], event_times=[now()]))
    return tmp_path / "city.tw"


def test_it_prints_its_address_serves_what_it_was_given_and_ends_when_asked_to(city, tmp_path):
    (tmp_path / "lines.json").write_text('{"type": "FeatureCollection", "features": []}')
    (tmp_path / "layers.json").write_text('[{"topic": "analytics.later", "title": "Mine"}]')
    options = ["--lines", tmp_path / "lines.json", "--layers", tmp_path / "layers.json", "--token", "secret"]
    with Running("serve", "--log", city, "--port", 0, "--json", *options) as server:
        reported = next(server.objects())
        headers = {"Authorization": "Bearer secret"}
        assert httpx.get(f"{reported['url']}/api/layers").status_code == 401
        layers = httpx.get(f"{reported['url']}/api/layers", headers=headers).json()["layers"]
        assert [layer["title"] for layer in layers] == ["Mine", "Vehicles"]
        background = httpx.get(f"{reported['url']}/api/background", headers=headers).json()
        assert background["lines"] == {"type": "FeatureCollection", "features": []}
        assert reported["layers"] == ["later", "vehicles"]
        assert reported["trouble"] == []
        said = server.end(signal.SIGTERM).stderr
        assert reported["url"] in said
        assert server.processes() == []


def test_what_makes_no_sense_is_one_line_and_a_code_for_scripts(city, tmp_path, inside):
    assert "there is no log" in inside("serve", "--log", tmp_path / "none.tw", code=2).stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = inside("serve", "--log", city, "--port", port, code=3).stderr
        assert f"cannot listen at 127.0.0.1 port {port}: Address already in use" in said
    bad = tmp_path / "bad.json"
    bad.write_text('[{"topic": "analytics.x", "show": "cells"}]')
    assert "bad.json: layer 'x'" in inside("serve", "--log", city, "--layers", bad, code=2).stderr
    assert "FeatureCollection" in inside("serve", "--log", city, "--lines", bad, code=2).stderr
    bad.write_text("{")
    assert "not JSON" in inside("serve", "--log", city, "--lines", bad, code=2).stderr
    assert "cannot be read" in inside("serve", "--log", city, "--lines", tmp_path / "none.json", code=2).stderr
    for option, value in (("--tiles", "nowhere"), ("--speed", "0"), ("--allow-origin", "x"), ("--token", "")):
        assert inside("serve", "--log", city, "--port", 0, option, value, code=2).stderr.startswith("tidewheel: ")


def test_it_ends_by_itself_after_its_time(city, inside):
    done = inside("serve", "--log", city, "--port", 0, "--for", "1s", "--json")
    assert {json.loads(line)["shown"] for line in done.stdout.splitlines()} == {1}


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "websockets"])
def test_without_its_packages_it_says_how_to_get_them(city, package):
    code = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['tidewheel', 'serve', '--log', {str(city)!r}]\n"
        "from tidewheel.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 3, done.stderr
    assert "pip install 'tidewheel[serve]'" in done.stderr
