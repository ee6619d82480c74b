"""The implementations of the log that the tests of its interface run on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidewheel.transport.log import Log, open_log

LOGS: dict[str, Callable[[Path], Log]] = {
    "sqlite": lambda folder: open_log(folder / "city.tw"),
}
"""How to make an empty log of each kind, given an empty folder. Another implementation is one more entry."""

PROMPT = {"sqlite"}
"""Those that let everything leave when they are maintained which may; of others nobody knows when it does."""
