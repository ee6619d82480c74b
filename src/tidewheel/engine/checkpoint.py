"""A job's checkpoint folder: who may use it, and for what."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from tidewheel.engine.checkpoint_file import check_crc, read_json, sync_folder, write_json
from tidewheel.errors import CheckpointError

__all__ = ["EVERY_BATCH", "Checkpoint"]

EVERY_BATCH = "every_batch_is_noted"
"""What `first_file` says of a run that notes every batch in the log; those of earlier versions did not."""

_VERSION = 2
_STATE_FILE = re.compile(r"\.?(\d+)(?:_[^.]*)?\.(?:changelog|zip|delta|snapshot)(?:\.crc)?")
_GRACE = 30.0  # seconds that the rest of a killed run gets to end


class Checkpoint:
    """A checkpoint folder, held by one run at a time.

    The folder says for which job it was made; another job is refused. While it is held no other run gets it: neither a
    second one, nor one that follows a killed run whose Java process is still dying and might still write.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._lock: TextIO | None = None

    @property
    def spark_folder(self) -> str:
        """Where Spark keeps its part."""
        return str(self.folder / "spark")

    @property
    def stop_file(self) -> Path:
        """While this file is there, no new batch begins."""
        return self.folder / "stop"

    @property
    def roster_file(self) -> Path:
        """Which flows were taken out, and how they come back."""
        return self.folder / "flows.json"

    @property
    def first_file(self) -> Path:
        """Where the first batch began: Spark itself keeps only where batches end."""
        return self.folder / "first.json"

    @property
    def notes_every_batch(self) -> bool:
        """Whether each of its batches is noted in the log, also those that wrote nothing."""
        return bool((read_json(self.first_file, needs=()) or {}).get(EVERY_BATCH))

    def begin_to_note_every_batch(self) -> None:
        """For a run without a beginning of its own to keep: note that its batches are noted, if it has none yet."""
        if not self.first_file.exists() and not any((self.folder / "spark" / "offsets").glob("[0-9]*")):
            write_json(self.first_file, {EVERY_BATCH: True})

    def drop_unfinished(self) -> None:
        """Remove state that a batch wrote which was never done. When the batch is repeated without a job that failed in
        it, its state is another, and Spark may leave a file that is there as it is."""
        done = [int(path.name) for path in (self.folder / "spark" / "commits").glob("[0-9]*")]
        for path in (self.folder / "spark" / "state").rglob("*"):
            if self.is_unfinished(path.name, max(done, default=-1)):
                path.unlink()

    @staticmethod
    def is_unfinished(name: str, last: int) -> bool:
        """Whether a file of this name is state of a batch after the last one that was done."""
        version = _STATE_FILE.fullmatch(name)
        return version is not None and int(version[1]) > last + 1  # batch 0 leaves version 1

    def last_offset(self) -> Mapping[str, Any]:
        """The end of the last batch that is done, or the beginning of the first."""
        done = [int(path.name) for path in (self.folder / "spark" / "commits").glob("[0-9]*")]
        if not done:
            return read_json(self.first_file, needs=("version", "log", "positions")) or {}
        lines = check_crc(self.folder / "spark" / "offsets" / str(max(done))).splitlines()
        offset: Mapping[str, Any] = json.loads(lines[-1])
        return offset

    def check_files(self, *, state: bool = False) -> None:
        """Refuse a checkpoint of which a file of Spark's that tells how far it has come is damaged; on demand also one
        of the state, which may be large."""
        for kind in ("offsets", "commits"):
            for path in sorted((self.folder / "spark" / kind).glob("[0-9]*")):
                check_crc(path)
        if (self.folder / "spark" / "metadata").exists():
            check_crc(self.folder / "spark" / "metadata")
        for path in sorted((self.folder / "spark" / "state").rglob("*")) if state else ():
            if path.is_file() and path.suffix != ".crc":
                with suppress(FileNotFoundError):  # Spark removes what it needs no longer
                    check_crc(path)

    def acquire(self, purpose: Mapping[str, Any], *, accept_changes: bool = False) -> None:
        """Take the folder for this purpose (a JSON object that describes the job), or say why it cannot be had."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(self.folder.parent)
        except OSError as error:
            raise self._unwritable(error) from error
        lock = self._locked()
        with self._closed_on_error(lock):
            self._check(purpose, accept_changes)
            self._note_holder(lock)

    def hold(self) -> None:
        """Take a folder that is there for no purpose but to keep others away, or say why it cannot be had."""
        lock = self._locked()
        with self._closed_on_error(lock):
            self._note_holder(lock)

    def _locked(self) -> TextIO:
        try:
            lock = open(self.folder / "lock", "a+", encoding="utf-8")  # noqa: SIM115  # held as long as the run
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "?"
            lock.close()
            raise CheckpointError(
                f"checkpoint {self.folder} is in use by process {holder.split()[0]}; stop that run first, or give this "
                "one a checkpoint of its own"
            ) from None
        try:
            self._await_previous(lock)
        except BaseException:
            lock.close()
            raise
        return lock

    @contextmanager
    def _closed_on_error(self, lock: TextIO) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            with suppress(OSError):  # what it could not write it tries again
                lock.close()
            if isinstance(error, OSError):
                raise self._unwritable(error) from error
            raise

    def _note_holder(self, lock: TextIO) -> None:
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock
        self.stop_file.unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> CheckpointError:
        mend = "make room on its disk" if error.errno == errno.ENOSPC else "choose another folder"
        return CheckpointError(f"checkpoint {self.folder} cannot be written: {error.strerror}; {mend}")

    def note_helper(self, pid: int) -> None:
        """A process that works on the folder for this run (Spark's Java) and may outlive it for a moment."""
        assert self._lock is not None
        self._lock.write(f" {pid} {_started(pid)}")
        self._lock.flush()

    def release(self) -> None:
        """Let others have it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            self.stop_file.unlink(missing_ok=True)
            lock.seek(0)
            lock.truncate()
            lock.close()

    def _await_previous(self, lock: TextIO) -> None:
        lock.seek(0)
        noted = lock.read().split()[1:3]
        if len(noted) < 2:
            return
        pid, started = int(noted[0]), noted[1]
        deadline = time.monotonic() + _GRACE
        while _started(pid) == started:
            if time.monotonic() > deadline:
                raise CheckpointError(
                    f"checkpoint {self.folder}: the Java process {pid} of an earlier run is still there after "
                    f"{_GRACE:g} s and may still write; end it with: kill -9 {pid}"
                )
            time.sleep(0.05)

    def purpose(self) -> Mapping[str, Any] | None:
        """What it was made for; None if it is new."""
        return read_json(self.folder / "tidewheel.json", needs=("version", "job", "log"))

    def _check(self, purpose: Mapping[str, Any], accept_changes: bool) -> None:
        wanted = {"version": _VERSION, **purpose}
        found = self.purpose()
        if found is not None:
            changes = _changes(found, wanted)
            fixed = [name for name in ("version", "job", "log") if found.get(name) != wanted.get(name)]
            if not changes:
                return
            if fixed or not accept_changes:
                mend = "use another checkpoint" + (
                    "" if fixed else ", or accept the change if the old results may stay"
                )
                raise CheckpointError(f"checkpoint {self.folder} does not fit this job: {'; '.join(changes)}. {mend}")
        elif (self.folder / "spark").exists() or (self.folder / "offsets").exists():
            raise CheckpointError(
                f"{self.folder} holds a Spark checkpoint that no Tidewheel job made; use another folder for this job"
            )
        write_json(self.folder / "tidewheel.json", wanted)


def _changes(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str = "") -> list[str]:
    """What differs, and where in it."""
    told: list[str] = []
    for name in sorted(found.keys() | wanted.keys()):
        old, new = found.get(name), wanted.get(name)
        if name == "parameters" and old != new:
            # What they change in the steps that follow from them is no news.
            return [*told, *_changes(old or {}, new or {}, f"{where}{name}.")]
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            told += _changes(old, new, f"{where}{name}.")
        elif old != new and isinstance(old or new, Mapping) and None in (old, new):
            told.append(f"{where}{name} {'is new' if old is None else 'is gone'}")
        elif old != new:
            told.append(f"{where}{name} was {json.dumps(old)} and is {json.dumps(new)}")
    return told


def _started(pid: int) -> str | None:
    """When the process began, in the kernel's own count; None if there is no such process (or it is a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]
