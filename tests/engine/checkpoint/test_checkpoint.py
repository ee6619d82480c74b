"""Who may use a checkpoint folder, and for what."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.errors import CheckpointError

PURPOSE = {"job": "cells", "log": "L", "parameters": {"resolution": 9}}


def hold(folder, **changes):
    checkpoint = Checkpoint(folder)
    checkpoint.acquire({**PURPOSE, **changes})
    return checkpoint


def test_a_second_run_is_refused_while_the_first_holds_it(tmp_path):
    first = hold(tmp_path)
    with pytest.raises(CheckpointError, match=rf"in use by process {os.getpid()}"):
        hold(tmp_path)
    first.release()
    hold(tmp_path).release()


def test_it_knows_what_it_was_made_for(tmp_path):
    assert Checkpoint(tmp_path).purpose() is None
    hold(tmp_path, key_groups=3).release()
    assert Checkpoint(tmp_path).purpose()["key_groups"] == 3
    (tmp_path / "tidewheel.json").write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        Checkpoint(tmp_path).purpose()


def test_a_killed_holder_leaves_it_free(tmp_path):
    code = (
        "import sys, time; from tidewheel.engine.checkpoint.checkpoint import Checkpoint;"
        f"held = Checkpoint({str(tmp_path)!r}); held.acquire({PURPOSE!r}); print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(CheckpointError, match=f"in use by process {holder.pid}"):
        hold(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    hold(tmp_path).release()


def test_what_a_killed_run_left_behind_is_waited_for(tmp_path):
    helper = subprocess.Popen(["sleep", "600"])
    first = hold(tmp_path)
    first.note_helper(helper.pid)
    first._lock.close()  # as when the process dies: the lock is gone, the note is not
    taken = threading.Event()
    thread = threading.Thread(target=lambda: (hold(tmp_path).release(), taken.set()))
    thread.start()
    assert not taken.wait(0.3)
    helper.kill()
    helper.wait()
    assert taken.wait(20)
    thread.join()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"job": "other"}, r"that of the run 'cells', and this one is 'other'\. Use another checkpoint"),
        ({"log": "M"}, r"another log \(whose identity is L; this one's is M\)\. Use another checkpoint"),
        ({"parameters": {"resolution": 8}}, r"parameter resolution: 9 → 8\. Use what it was made for"),
        ({"reads": {"more": "Type"}}, r"input topic is new"),
        ({"key_groups": 3}, r"key groups: None → 3"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(tmp_path, changes, message):
    hold(tmp_path).release()
    with pytest.raises(CheckpointError, match=message):
        hold(tmp_path, **changes)
    hold(tmp_path).release()


def test_changed_parameters_can_be_accepted_but_not_another_job(tmp_path):
    hold(tmp_path).release()
    changed = Checkpoint(tmp_path)
    changed.acquire({**PURPOSE, "parameters": {"resolution": 8}}, accept_changes=True)
    changed.release()
    assert json.loads((tmp_path / "tidewheel.json").read_text())["parameters"] == {"resolution": 8}
    with pytest.raises(CheckpointError, match="that of the run"):
        changed.acquire({**PURPOSE, "job": "other"}, accept_changes=True)


def test_a_damaged_or_foreign_folder_is_refused(tmp_path):
    hold(tmp_path / "damaged").release()
    (tmp_path / "damaged" / "tidewheel.json").write_text("{")
    with pytest.raises(CheckpointError, match="damaged"):
        hold(tmp_path / "damaged")
    (tmp_path / "foreign" / "offsets").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="no Tidewheel job"):
        hold(tmp_path / "foreign")


def test_state_of_a_batch_that_was_never_done_is_dropped(tmp_path):
    held = Checkpoint(tmp_path)
    part = tmp_path / "spark" / "state" / "0" / "1"
    part.mkdir(parents=True)
    commits = tmp_path / "spark" / "commits"
    commits.mkdir()
    for number in (0, 1):
        (commits / str(number)).touch()
    for name in ("1.zip", "2.changelog", ".2.changelog.crc", "3.changelog", ".3.changelog.crc", "3.zip", "_metadata"):
        (part / name).touch()
    held.drop_unfinished()
    assert sorted(path.name for path in part.iterdir()) == [".2.changelog.crc", "1.zip", "2.changelog", "_metadata"]
