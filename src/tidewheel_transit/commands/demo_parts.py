"""The processes of the demo: each is a command of its own, and none outlives the demo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

import tidewheel as tw

__all__ = ["Part", "Parts"]


class Part:
    """A command of Tidewheel in a process of its own, which reports its status every half second as JSON.

    Ctrl-C does not reach it: the demo decides when it ends. Its standard input is a pipe from here, and it ends when
    that does, so also when the demo is killed.
    """

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.status: Mapping[str, Any] = {}
        """The latest status that it reported."""
        self._said: deque[str] = deque(maxlen=20)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidewheel.cli", "--end-with-stdin", *arguments, "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",  # a reader that ended over half a character would leave the part with a full pipe
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._hear, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def code(self) -> int | None:
        """Its exit code; None as long as it runs."""
        return self._process.poll()

    @property
    def said(self) -> str:
        """The last lines that it wrote to standard error."""
        return "\n".join(self._said)

    def stop(self) -> None:
        """Ask it to end in good order."""
        if self.code is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float) -> int | None:
        """Return its exit code once it has ended and all its output has been read; None if it has not ended in time."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        for reader in self._readers:
            reader.join(timeout=5)
        return code

    def kill(self) -> None:
        """End it and all that it started at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            with suppress(ValueError):
                self.status = json.loads(line)

    def _hear(self, stream: IO[str]) -> None:
        for line in stream:
            self._said.append(line.rstrip())


class Parts:
    """The parts of a demo by name. Those still running at the end of its `with` are ended at once."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}

    def start(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a command, with these variables besides those that are set."""
        self._parts[name] = Part(*arguments, environment=environment)

    def check(self) -> None:
        """Raise an error if one of them has ended by itself."""
        for name, part in self._parts.items():
            if part.code is not None:
                raise tw.errors.JobError(f"a part of the demo ({name}) ended with exit code {part.code}:\n{part.said}")

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        for part in self._parts.values():
            part.kill()
