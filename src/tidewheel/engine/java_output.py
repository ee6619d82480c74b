"""What Spark's Java prints, without the chatter of its state operators.

Whenever a query with state starts, a helper of PySpark prints four paragraphs about itself, and there is no setting
against it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_chatter"]

_CHATTER = (b"Starting Streaming TransformWithState", b"Streaming TransformWithState")


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
    threading.Thread(target=_pass_on, args=(reading, os.dup(shown)), name="output of Java", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(shown, output)
        os.close(shown)


def _pass_on(reading: int, shown: int) -> None:
    with os.fdopen(reading, "rb", buffering=0) as lines, os.fdopen(shown, "wb", buffering=0) as out:
        dropped, held = False, b""
        while chunk := lines.read(65_536):
            *whole, held = (held + chunk).split(b"\n")
            for line in whole:
                chatter = line.startswith(_CHATTER)
                if not chatter and not (dropped and not line):  # each is followed by an empty line
                    out.write(line + b"\n")
                dropped = chatter
        if held:
            out.write(held)
