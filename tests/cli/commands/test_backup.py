"""`tidewheel backup` and `tidewheel restore`."""

from __future__ import annotations

import json
import shutil
import signal

from tests.support.command import PATIENCE, Running, eventually, lines
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.sqlite.database import restore_plan


def add(path, count=1):
    with open_log(path) as log:
        log.append("input.arrival", records([b"later"] * count))


def count(path):
    with open_log(path) as log:
        return log.topic_info("input.arrival").count


def a_checkpoint(folder, path):
    with open_log(path) as log:
        checkpoint = Checkpoint(folder)
        checkpoint.acquire({"job": folder.name, "log": log.identity})
        checkpoint.release()
        log.commit("elsewhere", {("input.arrival", 0): 0})
    (folder / "spark").mkdir()
    (folder / "spark" / "metadata").write_text("{}")


def test_a_backup_is_made_verified_and_put_back(small_log, inside, tmp_path):
    a_checkpoint(tmp_path / "small.tw.checkpoints" / "delays", small_log)
    done = inside("backup", tmp_path / "b", "--log", small_log)
    assert "5 records in 1 topics, and 1 checkpoints (delays)" in done.stdout
    assert "writers had to wait for" in done.stderr
    assert "no checkpoint of elsewhere is in it" in done.stderr
    assert "is whole" in inside("backup", tmp_path / "b", "--verify").stdout
    add(small_log, 3)
    refused = inside("restore", tmp_path / "b", "--log", small_log, code=2)
    assert "--replace" in refused.stderr
    done = inside("restore", tmp_path / "b", "--log", small_log, "--replace")
    assert "5 records, as at 20" in done.stdout
    assert "the checkpoint delays" in done.stdout
    assert count(small_log) == 5


def test_for_programs_there_is_json(small_log, inside, tmp_path):
    a_checkpoint(tmp_path / "state", small_log)
    made = lines(inside("backup", tmp_path / "b", "--log", small_log, "--checkpoint", tmp_path / "state", "--json"))[-1]
    assert made["records"] == 5
    assert made["checkpoints"] == {"state": str(tmp_path / "state")}
    assert made["without_checkpoint"] == ["elsewhere"]
    assert lines(inside("backup", tmp_path / "b", "--verify", "--json"))[-1]["files"] == made["files"] == 3
    place = f"state={tmp_path / 'new'}"
    done = inside("restore", tmp_path / "b", "--log", tmp_path / "new.tw", "--checkpoint", place, "--json")
    assert lines(done)[-1]["checkpoints"] == {"state": str(tmp_path / "new")}
    assert (tmp_path / "new" / "tidewheel.json").exists()


def test_exit_codes_say_what_is_wrong(small_log, inside, tmp_path):
    assert "there is no log" in inside("backup", tmp_path / "b", "--log", tmp_path / "none.tw", code=2).stderr
    assert "no manifest" in inside("backup", tmp_path / "b", "--verify", code=1).stderr
    assert "no manifest" in inside("restore", tmp_path / "b", "--log", tmp_path / "new.tw", code=1).stderr
    assert "which backup" in inside("restore", "--log", small_log, code=2).stderr
    inside("backup", tmp_path / "b", "--log", small_log)
    assert "not an empty folder" in inside("backup", tmp_path / "b", "--log", small_log, code=2).stderr
    assert "NAME=FOLDER" in inside("restore", tmp_path / "b", "--checkpoint", "x", code=2).stderr
    with open_log(small_log) as log:
        log.topics()
        assert "is in use" in inside("restore", tmp_path / "b", "--log", small_log, "--replace", code=1).stderr
    (tmp_path / "b" / "log.tw").write_bytes(b"damaged")
    assert "is damaged: log.tw has 7 bytes" in inside("backup", tmp_path / "b", "--verify", code=1).stderr
    assert "damaged" in inside("restore", tmp_path / "b", "--log", small_log, "--replace", code=1).stderr
    assert not (tmp_path / "new.tw").exists()
    assert count(small_log) == 5


def test_a_restore_that_was_cut_short_is_finished_by_the_next(small_log, inside, tmp_path):
    inside("backup", tmp_path / "b", "--log", small_log)
    add(small_log)
    plan = restore_plan(small_log)
    plan.parent.mkdir()
    shutil.copy(tmp_path / "b" / "log.tw", plan.parent / "log.tw")
    reported = {"version": 1, "backup": str(tmp_path / "b"), "made": "2026", "records": 5, "checkpoints": {}}
    plan.write_text(json.dumps(reported))
    for command in ("topics", "tail input.arrival", "backup x"):
        refused = inside(*command.split(), "--log", small_log, code=1)
        assert f"tidewheel restore --log {small_log}" in refused.stderr
    done = inside("restore", "--log", small_log)
    assert "was interrupted; it is finished now" in done.stderr
    assert count(small_log) == 5
    assert not plan.parent.exists()


def test_a_backup_that_is_stopped_is_cleared_away(tmp_path):
    path = tmp_path / "large.tw"
    with open_log(path, sync="normal") as log:
        log.append("input.arrival", records([bytes(1000)]))
        with Running("backup", tmp_path / "b", "--log", path, "--json") as command:
            with log.standstill():
                eventually(lambda: (tmp_path / "b").exists(), "it has begun, and waits for those who write")
                command.process.send_signal(signal.SIGINT)
                assert any(status["stopping"] for status in command.objects()), "it has noticed"
            _, reported = command.process.communicate(timeout=PATIENCE)
            assert command.process.returncode == 130, reported
    assert "nothing of it is left" in reported
    assert not (tmp_path / "b").exists()
