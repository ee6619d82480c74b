"""Problems of a log, for `tidewheel topics` and `tidewheel doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewheel.cli.doctor_checks import Finding
from tidewheel.cli.options import size
from tidewheel.errors import LogError
from tidewheel.model.clock_jump import is_ahead
from tidewheel.model.time import format_duration, format_instant, now
from tidewheel.model.watermark_hold import IDLE_HINT, hold_text

if TYPE_CHECKING:
    from tidewheel.transport.log.log import Log

__all__ = ["check_log", "disk_fields", "log_findings"]


def check_log(address: str) -> list[Finding]:
    """Check the log itself, if it is there."""
    from tidewheel.transport.open_log import log_file, open_log

    path = log_file(address)
    if path is not None and not path.exists():
        return []
    try:
        with open_log(address, create=path is None) as log:
            topics = len(log.topics())
            return log_findings(log) or [Finding("ok", "Log", f"{address}, {topics} topics")]
    except LogError as error:
        return [Finding("problem", "Log", str(error), "choose another: --log")]


def log_findings(log: Log) -> list[Finding]:
    """Warnings and problems; nothing if all is well."""
    return [*_disk(log), *_clocks(log), *_watermarks(log)]


def disk_fields(log: Log) -> dict[str, Any] | None:
    """The room on the disk where the log is, for programs; None if the log is not a file that grows."""
    from tidewheel.transport.open_log import log_file
    from tidewheel.transport.sqlite.read_only import why_read_only
    from tidewheel.transport.sqlite.reserve import Reserve, room_beside

    path = log_file(log.address)
    if path is None or not path.exists() or why_read_only(path) is not None:
        return None
    room = room_beside(path)
    return {"free_bytes": room.free, "total_bytes": room.total, "low": room.low, "reserve": bool(Reserve(path))}


def _disk(log: Log) -> list[Finding]:
    from tidewheel.transport.sqlite.reserve import full_disk_remedy

    fields = disk_fields(log)
    if fields is None or not fields["low"]:
        return []
    found = f"the disk is almost full: {size(fields['free_bytes'])} of {size(fields['total_bytes'])} free"
    if not fields["reserve"]:
        found += ", and there is no reserve for maintenance"
    return [Finding("warning", "Room for the log", found, full_disk_remedy(Path(log.address)))]


def _clocks(log: Log) -> list[Finding]:
    present = now()
    ahead = {
        info.name: info.last_append
        for info in log.topics()
        if info.last_append is not None and is_ahead(info.last_append, present)
    }
    if not ahead:
        return []
    last = max(ahead.values())
    when = f"{format_instant(last)}, {format_duration(last - present)} from now"
    found = f"{', '.join(sorted(ahead))}: appended up to {when}"
    fix = "if this machine's clock is right, the next append puts these times right; otherwise set it right"
    return [Finding("warning", "Clock of the log", found, fix)]


def _watermarks(log: Log) -> list[Finding]:
    from tidewheel.transport.topics.held_watermarks import HeldWatermarks

    at = now()
    return [
        Finding("warning", f"Watermark of {job}", hold_text(held, now=at), IDLE_HINT)
        for job, held in HeldWatermarks(log).all(now=at).items()
    ]
