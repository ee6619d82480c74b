"""Room on the disk that only a log's maintenance may use: a file beside the log, given up when the disk is full.

To delete something, too, SQLite writes first: into the journal, and from there into the file. On a full disk nothing
could be deleted any more. The reserve is as large as a journal becomes before it is moved into the file, and some more.
It holds nothing, and may be removed at any time: it is made again when there is room. Small logs have none.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RESERVE_BYTES", "Reserve", "Room", "room_beside", "full_disk_remedy"]

RESERVE_BYTES = 20 << 20
_WORTH_BYTES = 16 << 20
"""From this size on a log has a reserve."""
_FULL_BYTES = 1 << 20
"""With less than this a disk may be full for SQLite."""
_LOW_SHARE, _LOW_LEAST, _LOW_MOST = 20, 64 << 20, 1 << 30

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Room:
    """How much of a disk is free for this user, in bytes."""

    free: int
    total: int

    @property
    def low(self) -> bool:
        """Whether it is time to make room: less than a twentieth is free, or less than 64 MiB, and less than 1 GiB."""
        return self.free < min(max(self.total // _LOW_SHARE, _LOW_LEAST), _LOW_MOST)

    @property
    def full(self) -> bool:
        """Whether a write may have failed for want of room."""
        return self.free < _FULL_BYTES

    def __str__(self) -> str:
        return f"{self.free / (1 << 20):,.1f} of {self.total / (1 << 20):,.0f} MiB free"


def room_beside(path: Path) -> Room:
    """The room on the disk where the file is."""
    status = os.statvfs(path.parent)
    return Room(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)


class Reserve:
    """The reserve of a log, shared by all processes that use it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.path = Path(f"{log.resolve()}-reserve")  # on the disk that the log itself is on
        self._warned_at: int | None = None

    def __bool__(self) -> bool:
        """Whether there is something to give up."""
        try:
            return self.path.stat().st_size > 0
        except OSError:
            return False

    def give_up(self, size: int | None = None) -> None:
        """Let go so many bytes, or all. Call it while the log is locked, so that no append takes them."""
        with suppress(FileNotFoundError):
            left = 0 if size is None else max(0, self.path.stat().st_size - size)
            if left:
                os.truncate(self.path, left)
            else:
                self.path.unlink()
        _logger.warning("%s: the disk is full (%s); maintenance uses its reserve", self._log, room_beside(self._log))

    def keep(self) -> None:
        """Make the reserve if it is missing, the log is large enough and there is room; warn if the disk fills up."""
        try:
            self._keep()
        except OSError as error:  # the log works without
            _logger.info("%s: no reserve could be made: %s", self._log, error)
        self._warn()

    def _keep(self) -> None:
        status = self._log.stat()
        there = self.path.stat().st_size if self.path.exists() else 0
        if there >= RESERVE_BYTES or status.st_size < _WORTH_BYTES or room_beside(self._log).free < 2 * RESERVE_BYTES:
            return
        file = os.open(self.path, os.O_CREAT | os.O_WRONLY, status.st_mode & 0o777)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, RESERVE_BYTES)
            else:
                os.write(file, bytes(RESERVE_BYTES))
        except OSError:
            self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)

    def _warn(self) -> None:
        """Warn once, and again whenever half of what was left is gone."""
        room = room_beside(self._log)
        if not room.low:
            self._warned_at = None
        elif self._warned_at is None or room.free <= self._warned_at // 2:
            self._warned_at = room.free
            _logger.warning("%s: the disk is almost full (%s): %s", self._log, room, full_disk_remedy(self._log))


def full_disk_remedy(log: Path) -> str:
    """How to make room, for people."""
    return (
        f"limit topics (tidewheel topics TOPIC --keep 1d --log {log}), delete some (--delete), or move other files away"
    )
