"""Atomic writes: other processes see either the old file or the new one, never a part of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_writer", "sync", "sync_folder", "write_atomically"]


@contextmanager
def atomic_writer(
    path: Path, *, durable: bool = True, concurrent: bool = False, hidden: bool = False
) -> Iterator[BinaryIO]:
    """Write a file beside `path` that takes its place when the block ends, and is removed if the block raises.

    Args:
        path: The file that is written or replaced. What a killed writer left behind is written over by the next.
        durable: Whether the new file outlives a power failure from then on.
        concurrent: Whether several processes may write it at once: each then has a temporary file of its own.
        hidden: Whether the temporary file begins with a dot, for readers that take all other files of a folder.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "positions.json")
    >>> with atomic_writer(path) as file:
    ...     _ = file.write(b"{}")
    ...     path.exists()
    False
    >>> path.read_bytes(), len(list(path.parent.iterdir()))
    (b'{}', 1)
    """
    ending = str(os.getpid()) if concurrent else "new"
    fresh = path.with_name(f"{'.' if hidden else ''}{path.name}.{ending}")
    try:
        with open(fresh, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def write_atomically(path: Path, data: bytes, *, durable: bool = True, concurrent: bool = False) -> None:
    """Write a whole file at once; see `atomic_writer`."""
    with atomic_writer(path, durable=durable, concurrent=concurrent) as file:
        file.write(data)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make durable which names a folder holds, where the file system can do that and this user may ask for it."""
    try:
        sync(folder)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL):
            raise
