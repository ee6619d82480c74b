"""Where the checkpoints of a log's jobs are unless another place is given."""

from __future__ import annotations

import zlib
from pathlib import Path

from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import log_file
from tidewheel.user_folders import data_folder

__all__ = ["checkpoint_folder", "checkpoints_beside"]


def checkpoint_folder(log: Log, name: str) -> Path:
    """The folder of the checkpoint of a job: beside the log's file, or in the user's own folder for a log that is
    elsewhere, however its address is written."""
    file = log_file(log.address)
    if file is not None:
        return checkpoints_beside(file) / name
    place = log.address.partition("?")[0].rstrip("/").rpartition("/")[2].replace(":", "-")
    return data_folder() / "checkpoints" / f"{place}-{zlib.crc32(log.identity.encode()):08x}" / name


def checkpoints_beside(log: str | Path) -> Path:
    """The folder with the checkpoints of the jobs of a log in a file."""
    return Path(f"{log}.checkpoints")
