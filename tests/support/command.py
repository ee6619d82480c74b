"""Running the real command, and seeing that nothing of it stays behind."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tidewheel.cli import main
from tidewheel.transport.events import codec
from tidewheel.transport.log.log import Log
from tidewheel_transit.transit_pb2 import VehicleCell, VehiclePosition

COMMAND = [sys.executable, "-m", "tidewheel.cli"]
PATIENCE = 900


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_")}
    return {**kept, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb", **more}


def tidewheel(
    *arguments: object, code: int = 0, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; it must end with this exit code."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def in_process(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """As `tidewheel`, within this process and on the Spark that it has: the same code, without the time that a process
    and its Java take to start. For fixtures of a module; a test has `inside`."""
    out, err = io.StringIO(), io.StringIO()
    ended = 0
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        patched.setattr(sys, "argv", ["tidewheel", *map(str, arguments)])
        for name, value in environment().items():
            patched.setenv(name, value)
        try:
            main()
        except SystemExit as exit:
            ended = int(exit.code or 0)
    assert ended == code, f"exit code {ended}\n{out.getvalue()}\n{err.getvalue()}"
    return subprocess.CompletedProcess([], ended, out.getvalue(), err.getvalue())


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The JSON objects that a command has printed."""
    return [json.loads(line) for line in done.stdout.splitlines()]


class Running:
    """A command that goes on; it and all that it starts carry a mark in their environment."""

    def __init__(
        self, *arguments: object, stdin: int = subprocess.DEVNULL, command: Sequence[str] = tuple(COMMAND)
    ) -> None:
        self.mark = f"cli-test-{uuid.uuid4()}"
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)],
            env=environment(CLI_TEST_MARK=self.mark),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def objects(self) -> Iterator[dict[str, Any]]:
        """What it prints as JSON, as it comes."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def end(self, how: int, *, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Send the signal; it must end with this exit code."""
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == code, f"exit code {self.process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess([], code, out, err)

    def processes(self) -> list[int]:
        """It and all its descendants that are there."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if self.mark.encode() in (folder / "environ").read_bytes():
                        found.append(int(folder.name))
                except OSError:
                    continue
        return found

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.process.communicate()


def eventually(condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s in vain: {what}"
        time.sleep(0.05)


def map_address(demo: Running) -> str:
    """Where the live map of a demo is, as soon as it tells."""
    assert demo.process.stderr is not None
    for line in demo.process.stderr:
        if found := re.search(r"the live map: (\S+)", line):
            return found[1]
    raise AssertionError("the demo ended before it told of its map")


def identities(log: Log, topic: str) -> Counter[tuple[Any, ...]]:
    """Which vehicle at which time, and how often: of the positions that must have a result, or of the results."""
    kind = VehicleCell if topic.startswith("analytics.") else VehiclePosition
    found: Counter[tuple[Any, ...]] = Counter()
    for batch in log.read(topic, 0, 0):
        decoded = codec.decode_columns(kind, batch.records.column("value"))
        assert not decoded.errors
        for row in decoded.columns.to_pylist():
            if kind is VehicleCell or (row["journey"] != "deadrun" and row["lat"] is not None):
                found[row["operator"], row["vehicle"], row["event_time"]] += 1
    return found
