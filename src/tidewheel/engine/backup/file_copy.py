"""Copy files, with a stamp that changes when the file does, and a digest of what was copied."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidewheel.atomic_file import sync

__all__ = ["Stamp", "copy_file", "digest", "stamp_of", "sync", "sync_tree"]

_CHUNK = 1 << 20


class Stamp(NamedTuple):
    """File attributes that change when a file is written or replaced."""

    device: int
    inode: int
    size: int
    modified: int


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def copy_file(
    source: Path, target: Path, *, progress: Callable[[int], None] | None = None, durable: bool = False
) -> tuple[Stamp, int, str]:
    """Copy a file with its permissions, and its folders; returns the stamp of what was read, its size and its
    SHA-256."""
    target.parent.mkdir(parents=True, exist_ok=True)
    summed, size = hashlib.sha256(), 0
    with open(source, "rb") as reader, open(target, "wb") as writer:
        status = os.fstat(reader.fileno())
        os.fchmod(writer.fileno(), status.st_mode & 0o777)
        while chunk := reader.read(_CHUNK):
            summed.update(chunk)
            writer.write(chunk)
            size += len(chunk)
            if progress is not None:
                progress(len(chunk))
        if durable:
            writer.flush()
            os.fsync(writer.fileno())
    return stamp_of(status), size, summed.hexdigest()


def digest(path: Path, *, progress: Callable[[int], None] | None = None) -> tuple[int, str]:
    """The size and the SHA-256 of a file."""
    summed, size = hashlib.sha256(), 0
    with open(path, "rb") as reader:
        while chunk := reader.read(_CHUNK):
            summed.update(chunk)
            size += len(chunk)
            if progress is not None:
                progress(len(chunk))
    return size, summed.hexdigest()


def sync_tree(folder: Path, *, files: bool = True) -> None:
    """Make a folder durable with all that is in it; without `files` only the names."""
    for parent, _, names in os.walk(folder):
        if files:
            for name in names:
                sync(Path(parent, name))
        sync(Path(parent))
