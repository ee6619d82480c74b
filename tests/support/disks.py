"""Real file systems for tests: small ones, and ones that cannot be written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _run(*command: object) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"file systems cannot be mounted here: {done.stderr.strip() or done.returncode}")


@contextmanager
def small_disk(folder: Path, *, megabytes: int) -> Iterator[Path]:
    """A disk of this size in the folder."""
    if os.getuid() != 0:
        pytest.skip("only root may mount file systems")
    folder.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=False)


def forbid_writing(folder: Path) -> None:
    """From now on nobody can write to the disk that is mounted there."""
    _run("mount", "-o", "remount,ro", folder)


def fill(folder: Path) -> Path:
    """A file that takes all that is left on the disk there."""
    path = folder / "something-else"
    with open(path, "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(os.urandom(size)) == size:
                    pass
            except OSError:
                continue
    return path


@contextmanager
def read_only_view(folder: Path, view: Path) -> Iterator[Path]:
    """The same folder at another place, through which it cannot be written."""
    view.mkdir()
    _run("mount", "--bind", folder, view)
    try:
        _run("mount", "-o", "remount,ro,bind", view)
        yield view
    finally:
        subprocess.run(["umount", "--lazy", view], check=False)
