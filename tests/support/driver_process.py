"""Spark's drivers as processes of their own, to be killed, and the Python workers that they have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tidewheel.errors import TopicNotFoundError
from tidewheel.transport.log.log import Log

Driver = subprocess.Popen[bytes]


def start_driver(program: str, log: Log, checkpoint: Path, errors: Path) -> Driver:
    """Start a program with the log's address and the checkpoint as its arguments; what it prints is in `errors`."""
    with errors.open("ab") as file:
        command = [sys.executable, "-c", program, log.address, str(checkpoint)]
        return subprocess.Popen(command, stderr=file, stdout=file, start_new_session=True)


def written(log: Log, topic: str) -> int:
    """How many records a topic has."""
    try:
        return log.topic_info(topic).count
    except TopicNotFoundError:
        return 0


def until_written(log: Log, topic: str, count: int, driver: Driver) -> bool:
    """Until the topic has so many records; False if the driver ended before."""
    while written(log, topic) < count:
        if driver.poll() is not None:
            return False
        time.sleep(0.01)  # looks at a condition: the next moment in which to kill
    return True


def kill(driver: Driver, *, alone: bool) -> None:
    """SIGKILL: to the driver alone, whose Java goes on for a moment, or to its Java, too, at the same time."""
    if alone:
        driver.send_signal(signal.SIGKILL)
    else:
        os.killpg(driver.pid, signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL, "it had ended before it was killed"


def kill_worker(driver: Driver) -> bool:
    """SIGKILL to a Python worker that is at work for the driver; False if the driver ended before there was one."""
    while driver.poll() is None:
        for pid, state in _workers(driver.pid):
            if state == "R":
                os.kill(pid, signal.SIGKILL)
                return True
        time.sleep(0.001)  # looks at a condition: somebody at work
    return False


def _workers(driver: int) -> list[tuple[int, str]]:
    """The processes in which Spark runs tasks of Python, with their states: Java has a daemon, which forks them."""
    states: dict[int, str] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended meanwhile
        pid = int(path.parent.name)
        states[pid] = state
        children.setdefault(int(parent), []).append(pid)
    found: list[tuple[int, str]] = []
    family = [driver]
    while family:
        pid = family.pop()
        mine = children.get(pid, [])
        if _is_daemon(pid):
            found += [(child, states[child]) for child in mine]
        else:
            family += mine
    return found


def _is_daemon(pid: int) -> bool:
    try:
        return b"\0pyspark.daemon\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
