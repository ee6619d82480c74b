"""A log on a full disk: nothing is lost, and there is a way out."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.disks import fill, small_disk
from tidewheel.errors import DiskFullError
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.open_log import open_log

MEGABYTE = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=88) as folder:
        yield folder


def append_until_full(log: Log, *topics: str) -> int:
    """How many appends of two megabytes to each of the topics were acknowledged."""
    producer = log.producer("filler")
    for number in range(1_000):
        try:
            producer.append({topic: records([os.urandom(2 * MEGABYTE)]) for topic in topics}, sequence=number)
        except DiskFullError:
            return number
    raise AssertionError("the disk is not full")


def count(log: Log, topic: str) -> int:
    return sum(batch.records.num_rows for batch in log.read(topic, 0, log.position(topic, 0, "earliest")))


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidewheel.cli", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_on_a_full_disk_a_topic_can_be_deleted_and_appending_goes_on(disk: Path) -> None:
    with open_log(disk / "city.tw") as log:
        appended = append_until_full(log, "old", "new")
        assert (disk / "city.tw-reserve").stat().st_size == 20 * MEGABYTE
        fill(disk)
        with pytest.raises(DiskFullError, match=r"appended before is safe.*tidewheel topics TOPIC --keep 1d"):
            log.append("new", records([os.urandom(MEGABYTE)]))
        log.delete_topic("old")
        assert count(log, "new") == appended
        log.maintain()
        log.append("new", records([os.urandom(MEGABYTE)]))
        assert count(log, "new") == appended + 1


def test_on_a_full_disk_retention_makes_room_by_itself_and_the_reserve_comes_back(disk: Path) -> None:
    with open_log(disk / "city.tw") as log:
        appended = append_until_full(log, "news")
        other = fill(disk)
        log.create_topic("news", retention=Retention(size=4 * MEGABYTE))
        log.maintain()
        assert 0 < count(log, "news") < appended
        other.unlink()
        for _ in range(8):
            log.append("news", records([os.urandom(MEGABYTE)]))
        log.create_topic("news")
        while (disk / "city.tw").stat().st_size < 16 * MEGABYTE:
            log.append("news", records([os.urandom(MEGABYTE)]))
            log.maintain()
        log.maintain()
        assert (disk / "city.tw-reserve").stat().st_size == 20 * MEGABYTE


@pytest.mark.parametrize("change", [["--delete", "--yes"], ["--keep", "1MB"]])
def test_on_a_full_disk_the_command_line_makes_room_in_a_log_that_nobody_has_open(
    disk: Path, change: list[str]
) -> None:
    """The journal's files are not there then, and there is no room to make them."""
    path = disk / "city.tw"
    with open_log(path) as log:
        for _ in range(10):
            log.append("old", records([os.urandom(2 * MEGABYTE)]))
            log.append("new", records([os.urandom(2 * MEGABYTE)]))
    assert not Path(f"{path}-shm").exists()
    fill(disk)
    done = command("topics", "old", *change, "--log", path, "--json")
    assert done.returncode == 0, done.stderr
    with open_log(path) as log:
        assert count(log, "new") == 10
        log.append("new", records([b"x"]))


def test_what_was_acknowledged_before_the_disk_was_full_is_there_after_a_kill(disk: Path) -> None:
    path = disk / "city.tw"
    program = """
import os, sys
from tidewheel.transport.open_log import open_log
from tidewheel.transport.log.log_types import records
log = open_log(sys.argv[1])
number = 0
try:
    while True:
        log.append("news", records([b"%8d" % number + os.urandom(1_500_000)]))
        number += 1
except Exception as error:
    print(type(error).__name__, number, flush=True)
    os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    kind, acknowledged = done.stdout.split()
    assert (kind, done.returncode) == ("DiskFullError", -9)
    with open_log(path) as log:
        log.create_topic("news", retention=Retention())
        values = [
            int(value[:8]) for batch in log.read("news", 0, 0) for value in batch.records.column("value").to_pylist()
        ]
        assert values == list(range(int(acknowledged)))


def test_a_disk_that_fills_up_is_warned_of(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = disk / "city.tw"
    with caplog.at_level(logging.WARNING), open_log(path) as log:
        append_until_full(log, "news")
    warnings = [record.getMessage() for record in caplog.records if "almost full" in record.getMessage()]
    assert 1 <= len(warnings) <= 8
    assert "--keep 1d" in warnings[0]
    reported = json.loads(command("topics", "--log", path, "--json").stdout)
    assert reported["disk"]["low"] is True
    assert reported["disk"]["free_bytes"] < 20 * MEGABYTE
    assert "the disk is almost full" in command("topics", "--log", path).stdout


def test_a_small_log_keeps_no_reserve(tmp_path: Path) -> None:
    with open_log(tmp_path / "city.tw") as log:
        log.append("news", records([b"x"]))
        log.maintain()
    assert not (tmp_path / "city.tw-reserve").exists()


def test_a_new_topic_does_not_take_the_reserve(disk: Path) -> None:
    with open_log(disk / "city.tw") as log:
        append_until_full(log, "news")
        fill(disk)
        with suppress(DiskFullError):  # the journal may have room for some
            for number in range(200):
                log.create_topic(f"dead.{number}" + "x" * 200)
        assert (disk / "city.tw-reserve").stat().st_size == 20 * MEGABYTE
        log.create_topic("news", retention=Retention(size=4 * MEGABYTE))
