"""Back up a log and the checkpoints of its jobs, consistent at one moment, while they are in use.

Log and checkpoints belong together. A checkpoint that is older than its log takes new batches for old ones; one that is
newer begins behind events that are not there any more. So writers stand still for the moment in which the last changes
of the checkpoints are copied and the log's snapshot is begun. The rest, nearly all of it, is copied before and after.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tidewheel import __version__
from tidewheel.engine.backup.checkpoint_copy import CheckpointCopy
from tidewheel.engine.backup.file_copy import digest, sync_tree
from tidewheel.engine.backup.manifest import LOG_FILE, BackupFile, Manifest, SavedCheckpoint
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.engine.checkpoint.checkpoint_folder import checkpoints_beside
from tidewheel.errors import BackupError, DefinitionError
from tidewheel.model.time import format_instant, now
from tidewheel.transport.log.log import Log
from tidewheel.transport.sqlite.backup import LogSnapshot, check_copy
from tidewheel.transport.sqlite.log import SqliteLog

__all__ = ["Backup", "Progress", "back_up"]

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many bytes are done, and how many there are."""

_HOLD_SECONDS = 5.0  # others give up after a minute
_ATTEMPTS = 5
_ROUNDS = 3  # what is written while the first copy is made is less than that, and so on


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made."""

    manifest: Manifest
    held_seconds: float
    """How long writers had to wait."""
    without_checkpoint: tuple[str, ...]
    """Consumer groups of the log that no checkpoint of the backup is of."""
    damaged: tuple[str, ...] = ()
    """Blocks of the log that are damaged, and so are they in the backup."""


def back_up(
    log: Log,
    folder: str | Path,
    *,
    checkpoints: Sequence[str | Path] = (),
    skip_damaged: bool = False,
    progress: Progress | None = None,
) -> Backup:
    """Save a log, the checkpoints beside it, and these `checkpoints`, to a new or empty folder.

    Jobs and other writers may go on: they wait for a moment. A backup that fails leaves no folder behind; one that is
    killed leaves a folder that is not taken for a backup.

    Args:
        log: The log, which must be in a file.
        folder: A new or empty folder.
        checkpoints: Checkpoints that lie elsewhere than beside the log.
        skip_damaged: Save the rest of a log that has damaged blocks. Such a log is refused otherwise, so that no good
            backup is given up for a bad one.
        progress: Called with what is being done, how much of it is done, and how much there is.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> folder = tempfile.mkdtemp()
    >>> log = open_log(folder + "/shop.tw")
    >>> receipt = log.append_rows("input.order", [{"amount": 12.5, "ts": "2026-01-31T12:00:00Z"}], time="ts")
    >>> back_up(log, folder + "/backup").damaged
    ()
    """
    if not isinstance(log, SqliteLog):
        raise DefinitionError(f"only logs in a file can be backed up, not {log.address}")
    target = Path(folder).absolute()
    saved = _chosen(log, checkpoints)
    for each in saved:
        if target.is_relative_to(Path(each.folder).resolve()):
            raise DefinitionError(f"{target} is in the checkpoint {each.folder}; choose a folder elsewhere")
    was_there = target.is_dir()
    if target.exists() and (not was_there or any(target.iterdir())):
        raise DefinitionError(
            f"{target} is there already, and not an empty folder; each backup has a folder of its own"
        )
    target.mkdir(parents=True, mode=0o700, exist_ok=True)
    target.chmod(0o700)  # also one that was there: it holds all that the log does
    try:
        return _make(log, target, saved, skip_damaged, progress or (lambda what, done, total: None))
    except BaseException as error:
        for path in target.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not was_there:
            target.rmdir()
        if isinstance(error, OSError):
            raise BackupError(f"{target}: the backup could not be written: {error.strerror or error}") from error
        raise


def _chosen(log: SqliteLog, named: Iterable[str | Path]) -> list[SavedCheckpoint]:
    """All checkpoints to save, each once: those beside the log, and those that were named."""
    home = checkpoints_beside(log.address)
    found = sorted(path.parent for path in home.glob("[!.]*/tidewheel.json"))
    folders = {path.resolve(): path.absolute() for path in [*found, *map(Path, named)]}
    saved: list[SavedCheckpoint] = []
    for path in folders.values():
        purpose = Checkpoint(path).purpose()
        if purpose is not None and purpose.get("log") != log.identity:
            raise DefinitionError(
                f"the checkpoint {path} belongs to another log ({purpose.get('log')}, this one is {log.identity}); "
                "back it up with that one, or remove it"
            )
        taken = {each.name for each in saved}
        name = next(name for name in _names(path.name) if name not in taken)
        job = None if purpose is None else str(purpose.get("job"))
        saved.append(SavedCheckpoint(name, str(path), job, beside_log=path in found))
    return saved


def _names(name: str) -> Iterable[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


def _make(
    log: SqliteLog, target: Path, saved: Sequence[SavedCheckpoint], skip_damaged: bool, progress: Progress
) -> Backup:
    copies = [CheckpointCopy(Path(each.folder), target / each.prefix) for each in saved]
    _check_space(target, sum(copy.size for copy in copies) + Path(log.address).stat().st_size)
    with ExitStack() as reading:
        snapshot, held = _at_one_moment(log, copies, reading, progress)
        made = now()
        groups = set(log.groups())
        snapshot.copy(target / LOG_FILE, progress=lambda done, total: progress("copying the log", done, total))
    (target / LOG_FILE).chmod(Path(log.address).stat().st_mode & 0o777)
    progress("checking the log", 0, 0)
    damaged = check_copy(target / LOG_FILE, log.identity, skip_damaged=skip_damaged)
    total, done = snapshot.size, 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        progress("checking the log", done, total)

    files = [BackupFile(LOG_FILE, *digest(target / LOG_FILE, progress=add))]
    for each, copy in zip(saved, copies, strict=True):
        files += [BackupFile(each.prefix + name, *facts) for name, facts in sorted(copy.files.items())]
    sync_tree(target)
    manifest = Manifest(
        made=format_instant(made),
        tidewheel=__version__,
        log=log.identity,
        address=log.address,
        topics=snapshot.topics,
        records=snapshot.records,
        checkpoints=tuple(saved),
        files=tuple(files),
    )
    manifest.write(target)
    return Backup(manifest, held, tuple(sorted(groups - {each.job for each in saved})), tuple(damaged))


def _at_one_moment(
    log: SqliteLog, copies: Sequence[CheckpointCopy], reading: ExitStack, progress: Progress
) -> tuple[LogSnapshot, float]:
    """Copy the checkpoints, and begin the snapshot of the log that goes with them. Returns how long writers waited."""
    total, done, held = sum(copy.size for copy in copies), 0, 0.0

    def add(count: int) -> None:
        nonlocal done
        done += count
        progress("copying the checkpoints", done, max(done, total))

    for _ in range(_ATTEMPTS):
        for _ in range(_ROUNDS):
            unchanged = [copy.refresh(progress=add) for copy in copies]
            if all(unchanged):
                break
        with log.standstill():
            began = time.monotonic()
            consistent = all(copy.await_consistency(began + _HOLD_SECONDS) for copy in copies)
            snapshot = reading.enter_context(log.snapshot()) if consistent else None
            held = max(held, time.monotonic() - began)
        if snapshot is not None:
            return snapshot, held
    raise BackupError(
        f"the checkpoints did not come to rest within {_HOLD_SECONDS:g} s, {_ATTEMPTS} times; if the disk is busy, try "
        "again later; if something other than jobs writes into them, end it"
    )


def _check_space(target: Path, needed: int) -> None:
    free = shutil.disk_usage(target).free
    if free < needed:
        raise BackupError(
            f"{target}: the backup takes about {needed >> 20:,} MiB, and {free >> 20:,} MiB are free; make room, or "
            "choose another disk"
        )
