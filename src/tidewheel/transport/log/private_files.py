"""Create files and folders that only their user can read; existing ones keep their permissions."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from tidewheel.errors import SetupError

__all__ = ["make_private_file", "make_private_folder"]


def make_private_file(path: Path) -> None:
    """Create an empty file with mode 0600 (less the umask); an existing one stays as it is."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def make_private_folder(path: Path, *, use: str) -> None:
    """Create a folder of mode 0700 in a place where everybody may create one, such as /tmp. One that another user
    created, or a link, is refused: the name can be guessed."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        what = "is a link" if stat.S_ISLNK(status.st_mode) else f"belongs to another user (number {status.st_uid})"
        what = what if stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode) else "is no folder"
        raise SetupError(f"{path}, {use}, {what}; remove it, or set TMPDIR to a folder of your own")
    path.chmod(0o700)
