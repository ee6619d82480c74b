"""Operators: what runs on one bucket of keys, a batch at a time, on columns. They know no Spark.

An operator holds no state of its own. What it must remember it keeps as frames in a store; each store call may be a
round trip to another process, so an operator's calls grow with the slices of time that a batch touches, never with the
number of keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from tidewheel.model.time import Instant

__all__ = ["LATE", "RESULTS", "MemoryStore", "Outputs", "Store", "Tick"]

Outputs = Mapping[str, pl.DataFrame]
"""The frames that an operator gives in a batch, by the name of the stream."""

RESULTS = "results"
LATE = "late"


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of a batch: the watermark in force when its events came, the one it moves to, and its clock."""

    before: Instant | None
    watermark: Instant | None
    clock: Instant


class Store(Protocol):
    """The state of an operator in one bucket: frames by name."""

    def names(self) -> list[str]:
        """All names, sorted. Costs nothing."""

    def get(self, name: str) -> pl.DataFrame | None:
        """The frame of this name."""

    def put(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a frame under this name."""

    def remove(self, name: str) -> None:
        """Forget it; nothing happens if there is none."""


class MemoryStore:
    """A store in this process's memory: for tests, and for input that is read to its end at once."""

    def __init__(self) -> None:
        self.frames: dict[str, pl.DataFrame] = {}
        self.calls = 0

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self.frames)

    def get(self, name: str) -> pl.DataFrame | None:
        """The frame of this name."""
        self.calls += 1
        return self.frames.get(name)

    def put(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a frame under this name."""
        self.calls += 1
        self.frames[name] = frame

    def remove(self, name: str) -> None:
        """Forget it."""
        self.calls += 1
        self.frames.pop(name, None)
