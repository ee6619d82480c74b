"""The manifest of a backup: a file that lists its contents and is written last. A folder without one is not a backup,
or an unfinished one.

backup/
    manifest.json       what was saved when, and the size and SHA-256 of every file
    log.tw              the log
    checkpoints/NAME/   the checkpoint of each job
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tidewheel.atomic_file import write_atomically
from tidewheel.engine.backup.file_copy import digest, sync
from tidewheel.errors import BackupError

__all__ = ["LOG_FILE", "BackupFile", "Manifest", "SavedCheckpoint", "difference", "refuse", "verify"]

LOG_FILE = "log.tw"
_NAME = "manifest.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file of a backup, by its path in it."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint in a backup: `name` is its folder in the backup, `folder` is where it was, `job` is the job it
    belongs to (None for one of Spark's own). `beside_log`: it was in the command line's default place."""

    name: str
    folder: str
    job: str | None
    beside_log: bool

    @property
    def prefix(self) -> str:
        """The prefix of the paths of its files."""
        return f"checkpoints/{self.name}/"


@dataclass(frozen=True)
class Manifest:
    """The contents of a backup."""

    made: str
    """When it was made, in ISO text."""
    tidewheel: str
    """The version that made it."""
    log: str
    """The identity of the log."""
    address: str
    """Where the log was."""
    topics: int
    records: int
    checkpoints: tuple[SavedCheckpoint, ...]
    files: tuple[BackupFile, ...]

    @property
    def size(self) -> int:
        """The bytes of all its files."""
        return sum(file.size for file in self.files)

    def write(self, folder: Path) -> None:
        """Finish a backup whose files are all on disk."""
        fields = {"version": _VERSION, **asdict(self)}
        write_atomically(folder / _NAME, json.dumps({**fields, "sha256": _sum(fields)}, indent=1).encode())
        sync(folder.parent)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a backup; an incomplete one is refused."""
        path = folder / _NAME
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            noted = fields.pop("sha256")
            version = fields.pop("version")
        except FileNotFoundError:
            raise BackupError(
                f"{folder} is not a finished backup: it has no {_NAME}. "
                + ("It was interrupted; use another, and remove this one" if folder.is_dir() else "Check the path")
            ) from None
        except (ValueError, KeyError, AttributeError) as error:
            raise BackupError(f"{path} is damaged ({error}); use another backup") from None
        if version != _VERSION:
            raise BackupError(
                f"{folder} is a backup of version {version}, this Tidewheel reads version {_VERSION}; use the one that "
                f"made it ({fields.get('tidewheel')})"
            )
        if noted != _sum({"version": version, **fields}):
            raise BackupError(f"{path} is damaged: it does not have the SHA-256 that it states; use another backup")
        checkpoints = tuple(SavedCheckpoint(**each) for each in fields.pop("checkpoints"))
        files = tuple(BackupFile(**each) for each in fields.pop("files"))
        for name in (*(file.path for file in files), *(f"{each.prefix}x" for each in checkpoints)):
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise BackupError(f"{path} names a file outside of the backup, {name!r}; it was not made by Tidewheel")
        return cls(checkpoints=checkpoints, files=files, **fields)


def verify(folder: Path, *, progress: Callable[[int], None] | None = None) -> Manifest:
    """Read a whole backup, and refuse it if any file is missing or has changed."""
    manifest = Manifest.read(folder)
    wrong = [problem for file in manifest.files if (problem := _wrong(folder, file, progress)) is not None]
    refuse(folder, wrong)
    return manifest


def refuse(folder: Path, wrong: Iterable[str]) -> None:
    """Refuse a backup that is damaged or incomplete."""
    problems = list(wrong)
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise BackupError(f"the backup {folder} is damaged: {'; '.join(problems[:3])}{more}. Use another backup")


def _wrong(folder: Path, file: BackupFile, progress: Callable[[int], None] | None) -> str | None:
    try:
        return difference(file, *digest(folder / file.path, progress=progress))
    except OSError as error:
        return f"{file.path} cannot be read ({error.strerror})"


def difference(file: BackupFile, size: int, sha256: str) -> str | None:
    """How a file differs from the one that was saved; None if it is the same."""
    if size != file.size:
        return f"{file.path} has {size:,} bytes, not {file.size:,}"
    return None if sha256 == file.sha256 else f"{file.path} is not what was saved (SHA-256)"


def _sum(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
