"""Filter the output of Spark's Java.

Whenever a query with state starts, a helper of PySpark prints four paragraphs about itself; and those that are about to
answer when Spark ends print that nobody listens any more. There is no setting against either.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidewheel.threads import ServiceThread

__all__ = ["without_chatter"]

_CHATTER = (b"Starting Streaming TransformWithState", b"Streaming TransformWithState")
_TRACEBACK = b"Traceback (most recent call last):"
_HANG_UPS = (b"BrokenPipeError", b"ConnectionResetError", b"EOFError")


@contextmanager
def without_chatter() -> Iterator[None]:
    """A process that is started in here inherits outputs that drop those lines and pass all others on."""
    with _filtered(1), _filtered(2):
        yield


@contextmanager
def _filtered(output: int) -> Iterator[None]:
    reading, writing = os.pipe()
    shown = os.dup(output)
    os.dup2(writing, output)
    os.close(writing)
    copy = os.dup(shown)
    ServiceThread(lambda: _pass_on(reading, copy), name="output of Java").start()
    try:
        yield
    finally:
        os.dup2(shown, output)
        os.close(shown)


def _pass_on(reading: int, shown: int) -> None:
    with os.fdopen(reading, "rb", buffering=0) as lines, os.fdopen(shown, "wb", buffering=0) as out:
        dropped, held = False, b""
        trace: list[bytes] = []
        while chunk := lines.read(65_536):
            *whole, held = (held + chunk).split(b"\n")
            for line in whole:
                if line == _TRACEBACK or (trace and line.startswith(b"  ")):
                    trace.append(line)
                    continue
                chatter = line.startswith(_CHATTER)
                places = _places(trace)
                # It tells of PySpark's daemon alone, and not of code that runs in it.
                hang_up = line.startswith(_HANG_UPS) and bool(places) and all(map(_of_daemon, places))
                if not (chatter or hang_up or (dropped and not line)):  # chatter is followed by an empty line
                    with suppress(OSError):  # nobody listens any more: Java's pipe must be emptied all the same
                        out.write(b"".join(each + b"\n" for each in (*trace, line)))
                dropped, trace = chatter, []
        cut_short = bool(trace) and held[:1] in (b"", b" ") and all(map(_of_daemon, _places(trace)))
        if not cut_short:  # by the end of the helper that was about to print it
            out.write(b"".join(each + b"\n" for each in trace) + held)


def _places(trace: list[bytes]) -> list[bytes]:
    return [line for line in trace if line.startswith(b"  File ")]


def _of_daemon(place: bytes) -> bool:
    return b"/pyspark/daemon.py" in place
