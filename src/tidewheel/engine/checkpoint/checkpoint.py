"""A job's checkpoint folder: which run may use it, and for what."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from tidewheel.engine.checkpoint.checkpoint_file import check_crc, read_json, sync_folder, write_json
from tidewheel.errors import CheckpointError
from tidewheel.process_identity import start_time

__all__ = ["EVERY_BATCH", "Checkpoint"]

EVERY_BATCH = "every_batch_is_noted"
"""What `first_file` says of a run that notes every batch in the log; those of earlier versions did not."""

# 4 knew users' objects by how they are shown, 3 steps by the names of classes, 2 expressions by polars' text of them
_VERSION = 5
_STATE_FILE = re.compile(r"\.?(\d+)(?:_[^.]*)?\.(?:changelog|zip|delta|snapshot)(?:\.crc)?")
_GRACE = 30.0  # seconds that the rest of a killed run gets to end
_OWN = ("version", "polars")
_BESIDE = (
    "To run it beside the old one, with results and state of its own: --version v2 (from Python "
    'result.named("NAME.v2") and a new checkpoint)'
)


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
        """The folder of Spark's checkpoint."""
        return str(self.folder / "spark")

    @property
    def stop_file(self) -> Path:
        """While this file is there, no new batch begins."""
        return self.folder / "stop"

    @property
    def backfill_file(self) -> Path:
        """The file that lists suspended flows and how they catch up."""
        return self.folder / "flows.json"

    @property
    def first_file(self) -> Path:
        """The file with the start of the first batch: Spark itself only keeps where batches end."""
        return self.folder / "first.json"

    @property
    def notes_every_batch(self) -> bool:
        """Whether each of its batches is noted in the log, also those that wrote nothing."""
        return bool((read_json(self.first_file, needs=()) or {}).get(EVERY_BATCH))

    def begin_to_note_every_batch(self) -> None:
        """Mark a new checkpoint as one whose batches are all recorded in the log."""
        if not self.first_file.exists() and not any((self.folder / "spark" / "offsets").glob("[0-9]*")):
            write_json(self.first_file, {EVERY_BATCH: True})

    def drop_unfinished(self) -> None:
        """Remove state that an unfinished batch wrote. When the batch is repeated without a job that failed in it, its
        state differs, and Spark may keep an existing file."""
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
        """Refuse a checkpoint in which one of Spark's progress files is damaged; on demand also one with damaged state
        files, which may be large."""
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
        """Lock the folder for this purpose (a JSON object that describes the job), or raise why that is not
        possible."""
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
        """Lock an existing folder only to keep other processes away, or raise why that is not possible."""
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
        fix = "make room on its disk" if error.errno == errno.ENOSPC else "choose another folder"
        return CheckpointError(f"checkpoint {self.folder} cannot be written: {error.strerror}; {fix}")

    def note_helper(self, pid: int) -> None:
        """Record a process that works on the folder for this run (Spark's Java) and may outlive it for a moment."""
        assert self._lock is not None
        self._lock.write(f" {pid} {start_time(pid)}")
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
        while start_time(pid) == started:
            if time.monotonic() > deadline:
                raise CheckpointError(
                    f"checkpoint {self.folder}: the Java process {pid} of an earlier run is still there after "
                    f"{_GRACE:g} s and may still write; end it with: kill -9 {pid}"
                )
            time.sleep(0.05)

    def purpose(self) -> Mapping[str, Any] | None:
        """The purpose that the folder was made for; None if it is new."""
        return read_json(self.folder / "tidewheel.json", needs=("version", "job", "log"))

    def check(self, purpose: Mapping[str, Any], *, accept_changes: bool = False) -> None:
        """Refuse what `acquire` would refuse, before anything is started for it. The folder is not locked meanwhile, so
        it is checked again when it is acquired."""
        found = self._found()
        if found is not None:
            self._refuse({name: found.get(name) for name in purpose}, purpose, found, accept_changes)

    def _check(self, purpose: Mapping[str, Any], accept_changes: bool) -> None:
        wanted = {"version": _VERSION, "polars": version("polars"), **purpose}
        found = self._found()
        if found is not None:
            self._refuse(
                {name: each for name, each in found.items() if name not in _OWN}, purpose, found, accept_changes
            )
        if found != wanted:
            write_json(self.folder / "tidewheel.json", wanted)

    def _found(self) -> Mapping[str, Any] | None:
        found = self.purpose()
        if found is None:
            if (self.folder / "spark").exists() or (self.folder / "offsets").exists():
                raise CheckpointError(
                    f"{self.folder} holds a Spark checkpoint that no Tidewheel job made; use another folder"
                )
        elif found["version"] != _VERSION:
            when = "an earlier" if found["version"] < _VERSION else "a later"
            raise CheckpointError(
                f"checkpoint {self.folder} was written by {when} Tidewheel (its format is {found['version']}, and this "
                f"one reads {_VERSION}): what its state was made for is not known. Go on with the Tidewheel that "
                f"wrote it, or start with a new checkpoint. {_BESIDE}"
            )
        return found

    def _refuse(
        self, before: Mapping[str, Any], now: Mapping[str, Any], found: Mapping[str, Any], accept_changes: bool
    ) -> None:
        from tidewheel.engine.checkpoint.definition import (
            without_expressions,  # brings polars, which who only plans lacks
        )

        changes = _changes(before, now)
        if not changes:
            return
        made_with, polars = found.get("polars"), version("polars")
        reworded = made_with != polars and without_expressions(before) == without_expressions(now)
        fixed = any(before.get(name) != now.get(name) for name in ("job", "log"))
        flows = [each for some in (before, now) for each in (some.get("flows") or {}).values()]
        state = any(flow.get("state") for flow in flows)
        if accept_changes and not fixed and (reworded or not state):
            return
        text = f"checkpoint {self.folder} does not fit this job: {'; '.join(changes)}. "
        if fixed:
            raise CheckpointError(f"{text}Use another checkpoint (--checkpoint FOLDER, or --name; checkpoint=...)")
        if reworded:
            raise CheckpointError(
                f"{text}It was made with polars {made_with}, and this is polars {polars}, which may write the "
                "same expression in another way: if the steps are what they were, go on with --accept-changes "
                "(accept_changes=True)"
            )
        if state:
            raise CheckpointError(f"{text}State was made by these steps, and cannot be used by others. {_BESIDE}")
        if not flows:
            raise CheckpointError(f"{text}Use what it was made for, or another checkpoint and another name")
        raise CheckpointError(
            f"{text}If the results so far may stay, go on with --accept-changes (accept_changes=True). {_BESIDE}"
        )


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, and in which job."""
    from tidewheel.engine.checkpoint.definition import differences

    changes = []
    if before.get("job") != now.get("job"):
        changes.append(f"it is that of the run {before.get('job')!r}, and this one is {now.get('job')!r}")
    if before.get("log") != now.get("log"):
        changes.append(
            f"it was made on another log (whose identity is {before.get('log')}; this one's is {now.get('log')})"
        )
    if before.get("key_groups") != now.get("key_groups"):
        had = before.get("key_groups")
        changes.append(f"key groups: {had} → {now.get('key_groups')} (say key_groups={had})")
    known = ("job", "log", "key_groups", "flows")
    old, new = ({name: some[name] for name in some if name not in known} for some in (before, now))
    changes += differences(old, new)
    flows, others = before.get("flows") or {}, now.get("flows") or {}
    for name in dict.fromkeys([*flows, *others]):
        if name not in flows or name not in others:
            changes.append(f"job {name} is {'new' if name in others else 'gone'}")
        else:
            changes += [f"{name}: {change}" for change in differences(flows[name], others[name])]
    return changes
