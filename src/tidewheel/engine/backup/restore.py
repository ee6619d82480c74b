"""Restore backups, all or nothing.

The files are copied beside what they will replace, and compared with the manifest on the way. Then a plan is written,
and from there on there is no way back: until the plan has been carried out, nobody can open the log, and whoever finds
the plan carries it out. Each step of it may be done again.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidewheel.atomic_file import write_atomically
from tidewheel.engine.backup.backup import Progress
from tidewheel.engine.backup.checkpoint_copy import move_paths
from tidewheel.engine.backup.file_copy import copy_file, sync, sync_tree
from tidewheel.engine.backup.manifest import LOG_FILE, Manifest, SavedCheckpoint, difference, refuse
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.engine.checkpoint.checkpoint_folder import checkpoints_beside
from tidewheel.errors import BackupError, CheckpointError, DefinitionError
from tidewheel.transport.sqlite.backup import is_in_use
from tidewheel.transport.sqlite.database import restore_plan

__all__ = ["Restored", "finish", "restore"]

_VERSION = 1
_MARKS = {"tidewheel.json", "metadata"}
"""What a folder has that is a checkpoint of a job, or of a query of Spark's."""
_LEFT = {"lock", "stop"}
"""What may be left in one that never became a checkpoint."""


@dataclass(frozen=True)
class Restored:
    """A finished restore."""

    backup: str
    made: str
    records: int
    log: Path
    checkpoints: Mapping[str, Path]
    """Where the checkpoints of the backup are now, by their names in it."""


def restore(
    folder: str | Path,
    log: str | Path,
    *,
    checkpoints: Mapping[str, str | Path] | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> Restored:
    """Put the log of a backup in place at `log`, and its checkpoints with it.

    Args:
        folder: The backup.
        log: Where the log goes.
        checkpoints: Where checkpoints go, by their names in the backup. The others go beside the log, or back to where
            they were if the log does.
        replace: Whether what is there already may be replaced; it never is while it is used.
        progress: Called with what is being done, how much of it is done, and how much there is.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> folder = tempfile.mkdtemp()
    >>> log = open_log(folder + "/shop.tw")
    >>> receipt = log.append_rows("input.order", [{"amount": 12.5, "ts": "2026-01-31T12:00:00Z"}], time="ts")
    >>> from tidewheel.engine.backup.backup import back_up
    >>> backup = back_up(log, folder + "/backup")
    >>> restore(folder + "/backup", folder + "/again.tw").log.name
    'again.tw'
    """
    source, target = Path(folder).absolute(), Path(log).resolve()
    manifest = Manifest.read(source)
    beside = checkpoints_beside(Path(log).absolute())  # beside a link that leads to a log, not beside the log
    places = _places(manifest, target, beside, checkpoints or {})
    if not target.parent.is_dir():
        raise DefinitionError(f"{target}: the folder {target.parent} does not exist; make it first")
    if target.is_dir():
        raise DefinitionError(f"{target} is a folder; a log is a file, such as {target / 'city.tw'}")
    with ExitStack() as held:
        stage = held.enter_context(_stage(target))
        if restore_plan(target).exists():
            raise BackupError(
                f"{target}: an earlier restore was interrupted; finish it first: tidewheel restore --log {target}"
            )
        _check_targets(manifest, target, places, beside, replace)
        for place in places.values():
            _check_place(place, (source, target, *(other for other in places.values() if other != place)))
        for place in places.values():
            if place.is_dir():
                checkpoint = Checkpoint(place)
                checkpoint.hold()
                held.callback(checkpoint.release)
        _check_unused(target)
        try:
            _check_space(manifest, target)
            _copy(manifest, source, stage, places, progress or (lambda what, done, total: None))
            _write_plan(source, manifest, target, places)
            try:
                _check_unused(target)  # who opens it from now on is refused, but somebody may have opened it until now
            except BackupError:
                restore_plan(target).unlink()
                raise
        except BaseException as error:
            if not restore_plan(target).exists():
                for place in places.values():
                    shutil.rmtree(_beside(place, "restore"), ignore_errors=True)
                (stage / LOG_FILE).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise BackupError(f"{target}: the backup could not be put in place: {error}") from error
            raise
        return _carry_out(target)


def finish(log: str | Path) -> Restored | None:
    """Finish a restore that was interrupted; None if there is none."""
    target = Path(log).resolve()
    if not restore_plan(target).exists():
        return None
    with _stage(target) as stage:
        if (stage / LOG_FILE).exists():
            _check_unused(target)
        return _carry_out(target)


def _places(manifest: Manifest, target: Path, beside: Path, given: Mapping[str, str | Path]) -> dict[str, Path]:
    known = {each.name for each in manifest.checkpoints}
    for name in given:
        if name not in known:
            raise DefinitionError(
                f"the backup has no checkpoint {name!r}; it has {', '.join(sorted(known)) or 'none at all'}"
            )
    back = target == Path(manifest.address).resolve()

    def place(each: SavedCheckpoint) -> Path:
        if each.name in given:
            return Path(given[each.name]).resolve()
        if back and not each.beside_log:
            return Path(each.folder).resolve()
        return beside / each.name

    places = {each.name: place(each) for each in manifest.checkpoints}
    for name, path in places.items():
        twice = [other for other, same in places.items() if same == path and other != name]
        if twice:
            raise DefinitionError(f"the checkpoints {name} and {twice[0]} would both go to {path}; choose another")
    return places


def _check_targets(manifest: Manifest, target: Path, places: Mapping[str, Path], beside: Path, replace: bool) -> None:
    there = [path for path in (target, *places.values()) if path.exists()]
    there = [path for path in there if not path.is_dir() or any(path.iterdir())]
    if there and not replace:
        raise DefinitionError(
            f"{there[0]} is there already; restore to another place (--log PATH), move it away, or replace it and all "
            "that came in since the backup: --replace"
        )
    # Jobs that began after the backup: their checkpoints would be ahead of the log.
    for path in sorted(beside.glob("[!.]*/tidewheel.json")):
        if path.parent not in places.values() and (Checkpoint(path.parent).purpose() or {}).get("log") == manifest.log:
            raise CheckpointError(
                f"the checkpoint {path.parent} is not in this backup; it would be ahead of the log that is restored. "
                "Remove it, then its job begins anew"
            )


def _check_place(place: Path, others: Iterable[Path]) -> None:
    """Refuse to put a checkpoint in the place of something else, which would be gone with all that is in it."""
    inside = [other for other in others if other.resolve().is_relative_to(place.resolve())]
    if inside:
        raise DefinitionError(f"{inside[0]} lies in {place}, which cannot become a checkpoint; choose another folder")
    if not place.exists():
        return
    if os.path.ismount(place):
        raise DefinitionError(f"{place} is a mount point, which cannot be replaced; choose a folder in it")
    held = {each.name for each in place.iterdir()} if place.is_dir() else {place.name}
    if not held <= _LEFT and not held & _MARKS:
        raise DefinitionError(f"{place} is there and is no checkpoint; choose another folder, or move it away")


def _check_unused(target: Path) -> None:
    if target.exists() and is_in_use(target):
        raise BackupError(f"{target} is in use; stop whatever reads or writes it (jobs, ingestion, the map) first")


def _check_space(manifest: Manifest, target: Path) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < manifest.size:
        raise BackupError(
            f"{target}: the backup takes {manifest.size >> 20:,} MiB, and {free >> 20:,} MiB are free beside what is "
            "there; make room, or move the old log away"
        )


@contextmanager
def _stage(target: Path) -> Iterator[Path]:
    """The folder beside a log in which its successor is made; for one restore at a time."""
    stage = restore_plan(target).parent
    stage.mkdir(mode=0o700, exist_ok=True)
    with open(stage / "lock", "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BackupError(f"{target}: another restore of this log is running") from None
        try:
            yield stage
        finally:
            if not restore_plan(target).exists():
                shutil.rmtree(stage, ignore_errors=True)


def _copy(manifest: Manifest, source: Path, stage: Path, places: Mapping[str, Path], progress: Progress) -> None:
    """Copy everything to its new place under a temporary name, and refuse files that are not what was saved."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        progress("copying", done, manifest.size)

    staged = {each.prefix: _beside(places[each.name], "restore") for each in manifest.checkpoints}
    for path in staged.values():
        shutil.rmtree(path, ignore_errors=True)  # of a restore that was killed
        path.mkdir(mode=0o700, parents=True)
    wrong: list[str | None] = []
    for file in manifest.files:
        prefix = next((prefix for prefix in staged if file.path.startswith(prefix)), None)
        path = stage / LOG_FILE if prefix is None else staged[prefix] / file.path[len(prefix) :]
        if prefix is None and file.path != LOG_FILE:
            raise BackupError(f"the manifest of {source} names a file of no checkpoint, {file.path}")
        try:
            _, size, summed = copy_file(source / file.path, path, progress=add)
        except FileNotFoundError:
            wrong.append(f"{file.path} is missing")
            continue
        wrong.append(difference(file, size, summed))
    refuse(source, [each for each in wrong if each is not None])
    for each in manifest.checkpoints:
        move_paths(staged[each.prefix], places[each.name])
    progress("making it durable", done, manifest.size)
    for path in (stage, *staged.values()):
        sync_tree(path)
        sync(path.parent)


def _write_plan(source: Path, manifest: Manifest, target: Path, places: Mapping[str, Path]) -> None:
    plan = {
        "version": _VERSION,
        "backup": str(source),
        "made": manifest.made,
        "records": manifest.records,
        "checkpoints": {name: str(path) for name, path in places.items()},
    }
    write_atomically(restore_plan(target), json.dumps(plan).encode())


def _carry_out(target: Path) -> Restored:
    plan: dict[str, Any] = json.loads(restore_plan(target).read_text(encoding="utf-8"))
    if plan["version"] != _VERSION:
        raise BackupError(
            f"{restore_plan(target)} is of version {plan['version']}, this Tidewheel knows {_VERSION}; finish the "
            "restore with the Tidewheel that began it"
        )
    places = {name: Path(path) for name, path in plan["checkpoints"].items()}
    try:
        _change_names(target, places.values())
    except OSError as error:
        raise BackupError(
            f"{target}: the backup could not be put in place: {error}. Nobody can open the log before that is done: "
            f"fix it, then: tidewheel restore --log {target}"
        ) from error
    return Restored(plan["backup"], plan["made"], plan["records"], target, places)


def _change_names(target: Path, places: Collection[Path]) -> None:
    """The steps of a plan."""
    for place in places:
        staged, old = _beside(place, "restore"), _beside(place, "replaced")
        if staged.exists():
            if place.exists():
                shutil.rmtree(old, ignore_errors=True)
                place.rename(old)
            staged.rename(place)
            sync(place.parent)
    staged = restore_plan(target).parent / LOG_FILE
    if staged.exists():
        # The journal of the old log would be taken for one of the new.
        for ending in ("-wal", "-shm"):
            Path(f"{target}{ending}").unlink(missing_ok=True)
        sync(target.parent)
        staged.replace(target)
        sync(target.parent)
    for place in places:
        shutil.rmtree(_beside(place, "replaced"), ignore_errors=True)
    restore_plan(target).unlink()
    sync(restore_plan(target).parent)


def _beside(place: Path, purpose: str) -> Path:
    """A name beside a checkpoint, hidden so that it is not taken for another."""
    return place.with_name(f".{place.name}.{purpose}")
