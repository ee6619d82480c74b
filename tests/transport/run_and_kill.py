"""Let a process work on a log, and kill it."""

from __future__ import annotations

import random
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path


def run_and_kill(
    processes: ForkServerContext,
    work: Callable[[str, int, Connection], None],
    address: str | Path,
    seed: int,
    *,
    least: int = 0,
    most: int = 30,
    within: float = 0.02,
) -> int:
    """Let a process acknowledge `least` to `most` appends, and kill it `within` seconds of the last; gives the last
    sequence number that it acknowledged, or -1."""
    choose = random.Random(seed)
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(target=work, args=(str(address), seed, theirs))
    process.start()
    theirs.close()
    acknowledged = -1
    try:
        for _ in range(choose.randint(least, most)):
            acknowledged = ours.recv()
        process.join(choose.uniform(0, within))
        assert process.is_alive(), "it ended by itself"
    finally:
        process.kill()
    process.join()
    try:
        while True:  # what it acknowledged before it died
            acknowledged = ours.recv()
    except EOFError:
        return acknowledged
