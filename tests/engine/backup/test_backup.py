"""Backups of a log and its checkpoints: consistent whenever they are made, whole or refused, put back or not at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.engine.backup import backup_support
from tests.engine.backup.backup_support import Job, check, killed_at, last_commit
from tests.support.command import eventually
from tidewheel.engine.backup.backup import back_up
from tidewheel.engine.backup.manifest import Manifest, verify
from tidewheel.engine.backup.restore import finish, restore
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.errors import BackupError, CheckpointError, DefinitionError, LogError
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log

BACKUPS = 6
"""So many are made of a job that goes on meanwhile."""


@pytest.fixture
def city(tmp_path):
    """A log with a job of four batches, which has ended."""
    path = tmp_path / "city.tw"
    run_job(path, tmp_path / "city.tw.checkpoints" / "copy", 4)
    return path


def run_job(path, folder, batches):
    with open_log(path, sync="normal") as log:
        job = Job(log, folder)
        for _ in range(batches):
            job.batch()
        job.checkpoint.release()


def made(path, folder, **options):
    with open_log(path, sync="normal") as log:
        return back_up(log, folder, **options)


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def events(path):
    with open_log(path, sync="normal") as log:
        return log.topic_info("input").count


def test_whenever_it_is_made_log_and_checkpoint_go_together(tmp_path):
    log, folder = tmp_path / "city.tw", tmp_path / "city.tw.checkpoints" / "copy"
    command = [sys.executable, "-m", backup_support.__name__, str(log), str(folder)]
    with subprocess.Popen(command, cwd=ROOT) as job:
        try:
            eventually(lambda: last_commit(folder) >= 3 or job.poll() is not None, "three batches are done")
            assert job.poll() is None
            done = []
            for number in range(BACKUPS):
                backup = made(log, tmp_path / f"b{number}")
                assert backup.manifest.checkpoints[0].job == "copy"
                place = tmp_path / f"r{number}"
                place.mkdir()
                restored = restore(tmp_path / f"b{number}", place / "city.tw")
                with open_log(place / "city.tw", sync="normal") as opened:
                    done.append(check(opened, restored.checkpoints["copy"]))
                shutil.rmtree(place)
        finally:
            job.kill()
    assert done == sorted(done)
    assert done[-1] > done[0], "the job went on meanwhile"


def test_a_backup_holds_all_and_only_what_a_job_goes_on_from(city, tmp_path):
    folder = tmp_path / "city.tw.checkpoints" / "copy"
    (folder / "stop").touch()
    (folder / "flows.json").write_text("{}")
    (folder / "flows.new").write_text("{")
    (folder / "spark" / "offsets" / ".4.uuid.tmp").write_text("half")
    (folder / "spark" / "state" / "0" / "0" / "5.changelog").write_text("of a batch that was never done")
    backup = made(city, tmp_path / "b")
    saved = content(tmp_path / "b" / "checkpoints" / "copy")
    left_out = {"lock", "stop", "flows.new", "spark/offsets/.4.uuid.tmp", "spark/state/0/0/5.changelog"}
    assert saved == {name: data for name, data in content(folder).items() if name not in left_out}
    assert {file.path for file in backup.manifest.files} == {"log.tw", *(f"checkpoints/copy/{name}" for name in saved)}
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700
    restore(tmp_path / "b", tmp_path / "restored.tw")
    assert (tmp_path / "restored.tw.checkpoints" / "copy").stat().st_mode & 0o777 == 0o700
    assert backup.without_checkpoint == ()
    assert verify(tmp_path / "b") == backup.manifest == Manifest.read(tmp_path / "b")


def test_a_log_without_checkpoints_and_checkpoints_elsewhere(tmp_path):
    path = tmp_path / "city.tw"
    with open_log(path, sync="normal") as log:
        log.append("input", records([b"a"]))
        log.commit("job-elsewhere", {("input", 0): 1})
    assert made(path, tmp_path / "b0").without_checkpoint == ("job-elsewhere",)
    for name in ("x/state", "y/state"):
        run_job(path, tmp_path / name, 2)
    backup = made(path, tmp_path / "b1", checkpoints=[tmp_path / "x" / "state", tmp_path / "y" / "state"])
    assert [each.name for each in backup.manifest.checkpoints] == ["state", "state-2"]
    # Elsewhere they go beside the log, and do not touch those that are in use; where the log was they go back.
    (tmp_path / "other").mkdir()
    restored = restore(tmp_path / "b1", tmp_path / "other" / "city.tw", checkpoints={"state-2": tmp_path / "z"})
    beside = tmp_path / "other" / "city.tw.checkpoints" / "state"
    assert dict(restored.checkpoints) == {"state": beside, "state-2": tmp_path / "z"}
    assert content(beside) == content(tmp_path / "b1" / "checkpoints" / "state")
    shutil.rmtree(tmp_path / "x")
    restored = restore(tmp_path / "b1", path, replace=True)
    assert restored.checkpoints["state"] == tmp_path / "x" / "state"
    with pytest.raises(DefinitionError, match="no checkpoint 'stat'"):
        restore(tmp_path / "b1", path, checkpoints={"stat": tmp_path / "z"})
    (tmp_path / "third").mkdir()
    assert restore(tmp_path / "b0", tmp_path / "third" / "city.tw").checkpoints == {}
    assert events(tmp_path / "third" / "city.tw") == 1


def test_what_makes_no_sense_is_refused(city, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(DefinitionError, match="not an empty folder"):
        made(city, tmp_path / "full")
    with pytest.raises(DefinitionError, match="is in the checkpoint"):
        made(city, tmp_path / "city.tw.checkpoints" / "copy" / "b")
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        made(city, tmp_path / "b", checkpoints=[tmp_path / "full"])
    with pytest.raises(DefinitionError, match="belongs to another log"):
        made(tmp_path / "other.tw", tmp_path / "b", checkpoints=[tmp_path / "city.tw.checkpoints" / "copy"])
    assert not (tmp_path / "b").exists()
    with pytest.raises(BackupError, match="it has no manifest"):
        restore(tmp_path / "full", tmp_path / "new.tw")
    with pytest.raises(BackupError, match=r"Check the path"):
        restore(tmp_path / "nothing", tmp_path / "new.tw")


def test_what_is_there_is_replaced_only_if_told_and_never_while_it_is_used(city, tmp_path):
    made(city, tmp_path / "b")
    folder = tmp_path / "city.tw.checkpoints" / "copy"
    with pytest.raises(DefinitionError, match="--replace"):
        restore(tmp_path / "b", city)
    shutil.move(city, tmp_path / "away.tw")
    with pytest.raises(DefinitionError, match=r"checkpoints/copy is there already.*--replace"):
        restore(tmp_path / "b", city)
    shutil.move(tmp_path / "away.tw", city)
    before = content(folder)
    with open_log(city, sync="normal") as log:
        log.append("input", records([b"later"]))
        with pytest.raises(BackupError, match="is in use"):
            restore(tmp_path / "b", city, replace=True)
    held = Checkpoint(folder)
    held.hold()
    with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()}"):
        restore(tmp_path / "b", city, replace=True)
    held.release()
    assert events(city) == 5
    assert content(folder) == before
    # A job that began after the backup would be ahead of the log.
    run_job(city, tmp_path / "city.tw.checkpoints" / "younger", 0)
    with pytest.raises(CheckpointError, match="younger is not in this backup"):
        restore(tmp_path / "b", city, replace=True)
    shutil.rmtree(tmp_path / "city.tw.checkpoints" / "younger")
    restore(tmp_path / "b", city, replace=True)
    assert events(city) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "city.tw", "city.tw.checkpoints"]
    assert [path.name for path in (tmp_path / "city.tw.checkpoints").iterdir()] == ["copy"]


def test_only_a_checkpoint_is_replaced_by_a_checkpoint(city, tmp_path):
    made(city, tmp_path / "b")
    shutil.rmtree(tmp_path / "city.tw.checkpoints")
    state = tmp_path / "state"
    (state / "delays").mkdir(parents=True)
    (state / "delays" / "tidewheel.json").touch()
    for place, said in (
        (state, "is no checkpoint"),  # it holds some
        (tmp_path, "lies in .*, which cannot become a checkpoint"),
        (tmp_path / "b", "lies in .*, which cannot become a checkpoint"),
        (city, "lies in .*, which cannot become a checkpoint"),
    ):
        before = content(tmp_path)
        with pytest.raises(DefinitionError, match=said):
            restore(tmp_path / "b", city, checkpoints={"copy": place}, replace=True)
        assert content(tmp_path) == before
    # One that never came to anything is no loss.
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "lock").touch()
    restored = restore(tmp_path / "b", city, checkpoints={"copy": tmp_path / "begun"}, replace=True)
    assert (restored.checkpoints["copy"] / "tidewheel.json").exists()


def test_a_plan_that_cannot_be_carried_out_says_what_to_do(city, tmp_path, monkeypatch):
    made(city, tmp_path / "b")
    rename = Path.rename

    def refused(path, target):
        if path == tmp_path / "city.tw.checkpoints" / "copy":
            raise OSError(16, "Device or resource busy")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refused)
        with pytest.raises(BackupError, match=r"busy.*fix it, then: tidewheel restore --log"):
            restore(tmp_path / "b", city, replace=True)
    with pytest.raises(LogError, match="tidewheel restore --log"):
        open_log(city)
    assert finish(city).log == city
    assert events(city) == 4


def test_checkpoints_of_a_log_behind_a_link_go_where_its_jobs_look_for_them(tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "city.tw"
    open_log(tmp_path / "disk" / "real.tw").close()
    link.symlink_to(tmp_path / "disk" / "real.tw")
    folder = tmp_path / "city.tw.checkpoints" / "copy"
    run_job(link, folder, 4)
    made(link, tmp_path / "b")
    run_job(tmp_path / "disk" / "real.tw", tmp_path / "elsewhere", 1)
    assert restore(tmp_path / "b", link, replace=True).checkpoints == {"copy": folder}
    assert link.is_symlink()
    with open_log(link, sync="normal") as log:
        assert check(log, folder) == 3


def test_the_journal_of_the_old_log_is_not_taken_for_one_of_the_new(city, tmp_path):
    made(city, tmp_path / "b")
    code = (
        "import os, signal, sys; from tidewheel import open_log, records;"
        "log = open_log(sys.argv[1]); log.append('input', records([b'x' * 100_000]));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(city)], check=False)
    assert (tmp_path / "city.tw-wal").stat().st_size > 0
    city.write_bytes(b"something has written over it")
    restore(tmp_path / "b", city, replace=True)
    assert events(city) == 4


@pytest.mark.parametrize("what", ["flip", "cut", "gone", "manifest", "version", "outside"])
def test_a_damaged_backup_is_refused_and_changes_nothing(city, tmp_path, what):
    made(city, tmp_path / "b")
    with open_log(city, sync="normal") as log:
        log.append("input", records([b"later"]))
    before = content(tmp_path / "city.tw.checkpoints")
    whole = content(tmp_path / "b")
    names = ["manifest.json"] if what in ("manifest", "version", "outside") else [
        name for name in whole if name != "manifest.json"
    ]  # fmt: skip
    for name in names:
        path, data = tmp_path / "b" / name, whole[name]
        if what in ("flip", "manifest"):
            middle = len(data) // 2
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        elif what == "cut":
            path.write_bytes(data[:-1])
        elif what == "gone":
            path.unlink()
        else:
            fields = json.loads(data)
            del fields["sha256"]
            fields["version"] = 2 if what == "version" else 1
            fields["files"][0]["path"] = "../log.tw"
            from tidewheel.engine.backup.manifest import _sum

            path.write_text(json.dumps({**fields, "sha256": _sum(fields)}))
        reported = {"version": "version 2", "outside": "outside of the backup", "manifest": "damaged"}.get(what, name)
        with pytest.raises(BackupError, match=reported):
            verify(tmp_path / "b")
        with pytest.raises(BackupError, match=reported):
            restore(tmp_path / "b", city, replace=True)
        path.write_bytes(data)
    assert content(tmp_path / "city.tw.checkpoints") == before
    assert events(city) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "city.tw", "city.tw.checkpoints"]
    restore(tmp_path / "b", city, replace=True)
    assert events(city) == 4


def test_a_killed_backup_is_no_backup(city, tmp_path):
    number = 0
    while killed_at(number, lambda: made(city, tmp_path / "b"), tmp_path / "b"):
        number += 1
        if (tmp_path / "b" / "manifest.json").exists():
            verify(tmp_path / "b")
        else:
            with pytest.raises(BackupError, match="not a finished backup"):
                restore(tmp_path / "b", tmp_path / "new.tw")
        assert not (tmp_path / "new.tw").exists()
        with open_log(city, sync="normal") as log:
            log.append("input", records([b"later"]))
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
    assert number > 10
    verify(tmp_path / "b")


def test_a_killed_restore_leaves_the_old_or_is_finished_to_the_new(city, tmp_path):
    folder = tmp_path / "city.tw.checkpoints" / "copy"
    made(city, tmp_path / "b")
    saved = content(tmp_path / "b" / "checkpoints" / "copy")
    places = [tmp_path / f"city.tw{ending}" for ending in (".restore", ".checkpoints", "", "-wal", "-shm")]
    number, seen = 0, set()
    while True:
        # What is to be replaced: a log and a checkpoint that are further.
        if events(city) == 4:
            with open_log(city, sync="normal") as log:
                log.append("input", records([b"later"]))
            (folder / "later").touch()
        killed = killed_at(number, lambda: restore(tmp_path / "b", city, replace=True), *places)
        try:
            new = events(city) == 4
            seen.add("new" if new else "old")
        except LogError:
            with pytest.raises(LogError, match="tidewheel restore --log"):
                events(city)
            with pytest.raises(BackupError, match="interrupted"):
                restore(tmp_path / "b", city, replace=True)
            killed_at(number % 7, lambda: finish(city), *places)  # whoever finishes it may be killed, too
            finish(city)
            seen.add("finished")
            new = True
        assert events(city) == (4 if new else 5)
        assert (folder / "later").exists() is not new
        if new:
            assert {name: data for name, data in content(folder).items() if name != "lock"} == saved
        if not killed:
            break
        number += 1
    assert seen == {"old", "finished", "new"}
    assert number > 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "city.tw", "city.tw.checkpoints"]
    assert [path.name for path in folder.parent.iterdir()] == ["copy"]


def test_a_full_disk_leaves_no_backup_and_no_harm(city, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], check=False).returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        with open_log(city, sync="normal") as log:
            for _ in range(3):
                log.append("input", records([os.urandom(1 << 20)]))
        with pytest.raises(BackupError, match=r"MiB are free; make room"):
            made(city, small / "b")
        made(city, tmp_path / "b")
        (small / "city.tw").touch()
        with pytest.raises(BackupError, match=r"MiB are free"):
            restore(tmp_path / "b", small / "city.tw", replace=True)
        # Something else takes the room while it is copied.
        for taken in range(0, 1 << 20, 1 << 18):
            with open_log(tmp_path / "little.tw", sync="normal") as log:
                log.append("input", records([os.urandom(1 << 19)]))

                def fill(what: str, done: int, total: int, taken: int = taken) -> None:
                    if what == "copying the log":
                        (small / "taken").write_bytes(bytes((2 << 20) - (1 << 17) - taken))

                with pytest.raises((BackupError, OSError), match=r"full|No space"):
                    back_up(log, small / "c", progress=fill)
            assert not (small / "c").exists()
            (small / "taken").unlink(missing_ok=True)
        assert os.listdir(small) == ["city.tw"]
        assert events(city) == 7
    finally:
        subprocess.run(["umount", small], check=True)


def test_state_that_is_moved_names_its_own_schemas(city, tmp_path):
    operator = tmp_path / "city.tw.checkpoints" / "copy" / "spark" / "state" / "0"
    schema = operator / "_stateSchema" / "default" / "0_uuid"
    schema.parent.mkdir(parents=True)
    schema.touch()
    metadata = operator / "_metadata" / "v2" / "0"
    metadata.parent.mkdir(parents=True)
    reported = {"stateStoreInfo": [{"storeName": "default", "stateSchemaFilePaths": [f"file:{schema}"]}]}
    metadata.write_text(f"v2\n{json.dumps(reported)}")
    (metadata.parent / ".0.crc").write_bytes(b"crc\0\0\0\2\0\n)*Q\xd8\xdd")
    made(city, tmp_path / "b")
    (tmp_path / "a place").mkdir()
    restored = restore(tmp_path / "b", tmp_path / "a place" / "city.tw")
    moved = restored.checkpoints["copy"] / "spark" / "state" / "0"
    head, text = (moved / "_metadata" / "v2" / "0").read_text().split("\n")
    (path,) = json.loads(text)["stateStoreInfo"][0]["stateSchemaFilePaths"]
    assert head == "v2"
    assert path == f"file:{moved}/_stateSchema/default/0_uuid"
    assert Path(path.removeprefix("file:")).exists()
    assert not (moved / "_metadata" / "v2" / ".0.crc").exists()
