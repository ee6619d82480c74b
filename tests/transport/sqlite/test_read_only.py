"""Logs that cannot be written: they are read as they are, and say why they cannot be written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disks import forbid_writing, read_only_view, small_disk
from tidewheel.errors import LogError
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.sqlite import database


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=16) as folder:
        yield folder


def values(log: Log, topic: str = "news") -> list[bytes]:
    found = (batch.records.column("value").to_pylist() for batch in log.read(topic, 0, 0))
    return [value for some in found for value in some]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidewheel.cli", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_log_on_a_read_only_medium_is_read_and_not_written(disk: Path) -> None:
    path = disk / "city.tw"
    with open_log(path) as log:
        log.append("news", records([b"one", b"two"]))
        log.commit("reader", {("news", 0): 1})
    forbid_writing(disk)
    with open_log(path) as log:
        assert values(log) == [b"one", b"two"]
        assert log.committed("reader") == {("news", 0): 1}
        assert log.topic_info("news").count == 2
        log.ensure_topic("news")
        with pytest.raises(LogError, match="can be read but not written: it lies on a read-only medium"):
            log.append("news", records([b"three"]))
        for write in (
            lambda: log.create_topic("more"),
            lambda: log.delete_topic("news"),
            lambda: log.commit("reader", {("news", 0): 2}),
            lambda: log.producer("me"),
        ):
            with pytest.raises(LogError, match="can be read but not written"):
                write()
    reported = json.loads(command("topics", "--log", path, "--json").stdout)
    assert [topic["records"] for topic in reported["topics"]] == [2]
    done = command("tail", "news", "-n", "5", "--log", path, "--json")
    assert len(done.stdout.splitlines()) == 2, done.stderr
    done = command("topics", "news", "--keep", "1h", "--log", path)
    assert done.returncode == 1
    assert "it lies on a read-only medium" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_journal_that_was_left_behind_on_a_read_only_medium_is_read_too(disk: Path, tmp_path: Path) -> None:
    with open_log(tmp_path / "city.tw") as log:
        log.append("news", records([b"one"]))
        for ending in ("", "-wal"):  # as a copy that was taken while it was open
            shutil.copy(tmp_path / f"city.tw{ending}", disk / f"city.tw{ending}")
    assert (disk / "city.tw-wal").stat().st_size > 0
    forbid_writing(disk)
    with open_log(disk / "city.tw") as log:
        assert values(log) == [b"one"]
        assert log.topic_info("news").count == 1


def test_what_others_write_is_seen_through_a_read_only_view(disk: Path, tmp_path: Path) -> None:
    """Before anybody has it open, while somebody writes, and after."""
    with open_log(disk / "city.tw") as writer:
        writer.append("news", records([b"one"]))
    with read_only_view(disk, tmp_path / "view") as view, open_log(view / "city.tw") as reader:
        assert values(reader) == [b"one"]
        with open_log(disk / "city.tw") as writer:
            writer.append("news", records([b"two"]))
            assert values(reader) == [b"one", b"two"]
            writer.append("news", records([b"three"]))
            assert reader.wait({("news", 0): 2}, timeout=120)
            assert values(reader) == [b"one", b"two", b"three"]
        assert values(reader) == [b"one", b"two", b"three"]
        with open_log(disk / "city.tw") as writer:
            writer.append("news", records([b"four"]))
        assert values(reader)[-1] == b"four"


def test_an_empty_file_on_a_read_only_medium_is_no_log(disk: Path) -> None:
    (disk / "city.tw").touch()
    forbid_writing(disk)
    with pytest.raises(LogError, match="is empty: there is nothing to read, and it lies on a read-only medium"):
        open_log(disk / "city.tw")
    with pytest.raises(LogError, match=r"cannot be made: Read-only file system"):
        open_log(disk / "other.tw")


def test_a_medium_that_goes_away_is_reported_and_the_process_goes_on_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "city.tw"
    with open_log(path) as log:
        log.append("news", records([b"one"]))
    monkeypatch.setattr(database, "why_read_only", lambda _: "it lies on a read-only medium")
    with open_log(path) as log:
        assert values(log) == [b"one"]
        path.rename(tmp_path / "away.tw")
        for _ in range(2):
            with pytest.raises(LogError, match="has been removed while it was open"):
                values(log)
        (tmp_path / "away.tw").rename(path)
        assert values(log) == [b"one"]
        pid = os.fork()  # which waits for all who read
        if not pid:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
