"""Copies of a log that others write to."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from tests.transport.sqlite.test_damage import change
from tidewheel.errors import BackupError, LogError
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.sqlite import backup
from tidewheel.transport.sqlite.backup import check_copy, is_in_use
from tidewheel.transport.sqlite.database import restore_plan


@pytest.fixture
def log(tmp_path):
    with open_log(tmp_path / "test.tw", sync="normal") as log:
        yield log


def values(log, topic="t"):
    return [value for batch in log.read(topic, 0, 0) for value in batch.records.column("value").to_pylist()]


def test_a_snapshot_stays_as_it_was_while_others_write_more_than_the_journal_holds(log, tmp_path, monkeypatch):
    monkeypatch.setattr(backup, "_STEP_PAGES", 64)
    before = [os.urandom(100_000) for _ in range(10)]
    log.append("t", records(before))
    steps = []
    with open_log(log.address, sync="normal") as other, log.snapshot() as snapshot:

        def meanwhile(done, total):
            steps.append((done, total))
            if len(steps) <= 3:
                other.append("t", records([os.urandom(7 << 20)]))

        snapshot.copy(tmp_path / "copy.tw", progress=meanwhile)
        assert snapshot.records == 10
    assert len(steps) > 3
    assert [done for done, _ in steps] == sorted(done for done, _ in steps), "it did not begin anew"
    assert {total for _, total in steps} == {snapshot.size}
    check_copy(tmp_path / "copy.tw", log.identity)
    assert [path.name for path in tmp_path.glob("copy.tw*")] == ["copy.tw"], "it is one file"
    with open_log(tmp_path / "copy.tw") as copy:
        assert values(copy) == before
        assert copy.identity == log.identity
        copy.append("t", records([b"after"]))
        assert values(copy) == [*before, b"after"]
    assert log.topic_info("t").count == 13


def test_what_is_still_in_the_journal_is_in_the_copy(log, tmp_path):
    log.append("t", records([b"a"]))
    subprocess.run(["cp", log.address, tmp_path / "file.tw"], check=True)  # this process must not open it by itself
    with open_log(tmp_path / "file.tw") as file:
        assert file.topics() == [], "copied as a file it lacks what is in the journal"
    with log.snapshot() as snapshot:
        snapshot.copy(tmp_path / "copy.tw", progress=lambda done, total: None)
    with open_log(tmp_path / "copy.tw") as copy:
        assert values(copy) == [b"a"]


def test_writers_wait_while_a_log_stands_still(log):
    log.append("t", records([b"a"]))
    appended = threading.Event()

    def append():
        with open_log(log.address, sync="normal") as other:
            other.append("t", records([b"b"]))
        appended.set()

    with log.standstill():
        writer = threading.Thread(target=append)
        writer.start()
        with log.snapshot() as snapshot:
            assert snapshot.records == 1
        assert not appended.wait(0.2)
    assert appended.wait(30)
    writer.join()
    assert values(log) == [b"a", b"b"]


def test_a_damaged_copy_and_one_of_another_log_are_refused(log, tmp_path):
    for number in range(20):
        log.append("t", records([os.urandom(20_000)], keys=[b"%d" % number]))
    log.producer("importer").append({"t": records([b"x"])})
    copy = tmp_path / "copy.tw"
    with log.snapshot() as snapshot:
        snapshot.copy(copy, progress=lambda done, total: None)
    with pytest.raises(BackupError, match="copy of the log"):
        check_copy(copy, "another")
    assert check_copy(copy, log.identity) == []
    whole = copy.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(b"\1" + bytes(7), 60_000) + 5_000] ^= 1  # in a payload, of which SQLite knows nothing
    copy.write_bytes(flipped)
    with pytest.raises(BackupError, match=r"damaged.*t partition 0, offsets \d+ to \d+: the checksum.*--skip-damaged"):
        check_copy(copy, log.identity)
    assert len(check_copy(copy, log.identity, skip_damaged=True)) == 1
    copy.write_bytes(whole)
    change(copy, "UPDATE producer SET epoch = epoch + 1")  # nor of this
    with pytest.raises(BackupError, match="a row of the table producer is damaged"):
        check_copy(copy, log.identity, skip_damaged=True)
    copy.write_bytes(whole[:4096] + b"\xff" * 4096 + whole[8192:])
    with pytest.raises(BackupError, match="damaged"):
        check_copy(copy, log.identity)
    copy.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BackupError, match="damaged"):
        check_copy(copy, log.identity)


def test_a_log_is_in_use_while_anybody_has_it_open_and_be_it_idle(tmp_path):
    path = tmp_path / "log.tw"
    with open_log(path) as log:
        log.append("t", records([b"a"]))
        assert is_in_use(path)
    assert not is_in_use(path)
    code = (
        "import sys; from tidewheel.transport.open_log import open_log; log = open_log(sys.argv[1]); log.topics();"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "open\n"
        assert is_in_use(path)
        other.stdin.close()
    assert not is_in_use(path)
    with open_log(path) as log:
        assert values(log) == [b"a"]
    path.write_bytes(b"no log at all" * 1000)
    assert not is_in_use(path)


def test_a_log_is_not_opened_in_the_midst_of_a_restore(tmp_path):
    path = tmp_path / "log.tw"
    open_log(path).close()
    plan = restore_plan(path)
    plan.parent.mkdir()
    plan.write_text("{}")
    (tmp_path / "link.tw").symlink_to(path)
    for name in ("log.tw", "link.tw"):
        with pytest.raises(LogError, match="tidewheel restore --log"):
            open_log(tmp_path / name)
    plan.unlink()
    open_log(path).close()
