"""Telling a process from a later one that got its number."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["start_time"]


def start_time(pid: int) -> str | None:
    """When a process started, as the system counts it; None if there is no such process, or only what its parent has
    not asked for yet (a zombie). One word, to be compared with what was noted of the process before."""
    if not Path("/proc/self/stat").exists():
        return _told_by_ps(pid)
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()
    # Where the first thread of a killed process is a zombie, others may still be on their way out, with its files and
    # ports: a Java has dozens.
    threads, started = int(rest[16]), rest[18]
    return None if state in "ZX" and threads <= 1 else started


def _told_by_ps(pid: int) -> str | None:
    """The same where there is no /proc, as on macOS."""
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    state, *started = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split() or ["Z"]
    return None if state[0] in "ZX" else "-".join(started)
