"""Reading a log that this process cannot write: on a read-only medium, or a file of another user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["ReadOnlyMode", "read_only_mode", "why_read_only"]


class ReadOnlyMode(NamedTuple):
    """How SQLite opens the file: part of a URI, and whether the journal's index must be kept in this process's memory.

    `state` is what the file and its journal look like, where SQLite would not notice that somebody writes to them after
    all; None where it does.
    """

    uri: str
    own_index: bool
    state: tuple[int, ...] | None


def why_read_only(path: Path) -> str | None:
    """Why this process cannot write the file; None if it can, or if there is no such file."""
    path = path.resolve()  # journals lie beside the file itself, also where a link leads to it
    if not path.exists():
        return None
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "it lies on a read-only medium"
    if not os.access(path, os.W_OK):
        return "this user may not write to the file"
    journal = [Path(f"{path}-wal"), Path(f"{path}-shm")]
    if not os.access(path.parent, os.W_OK) and not all(os.access(each, os.W_OK) for each in journal):
        return f"this user may not make the log's journal in the folder {path.parent}"
    return None


def read_only_mode(path: Path) -> ReadOnlyMode:
    """Choose the mode in which the file can be read now."""
    path = path.resolve()
    wal, shared = Path(f"{path}-wal"), Path(f"{path}-shm")
    if shared.exists():  # others are at work, or were when it was copied: SQLite sees to both
        return ReadOnlyMode("mode=ro", False, None)
    status = path.stat()
    try:
        journal = wal.stat().st_size
    except FileNotFoundError:
        journal = 0
    state = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size, journal)
    if journal:  # its index cannot be made beside it; without locks, since nobody else is there
        return ReadOnlyMode("mode=ro&vfs=unix-none", True, state)
    return ReadOnlyMode("immutable=1", False, state)
