"""What the processes of a run take of the machine's memory."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["residents"]


def residents(root: int) -> dict[int, int]:
    """The resident bytes of each process that descends from this one, without itself.

    >>> residents(os.getpid())
    {}
    """
    children: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it ended meanwhile
            fields = stat.rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            sizes[int(entry.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    found: dict[int, int] = {}
    waiting = list(children.get(root, []))
    while waiting:
        process = waiting.pop()
        found[process] = sizes[process]
        waiting += children.get(process, [])
    return found
