"""The interface of a trigger in columns: named arrays of state, one place for each window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tidewheel.model.time import Instant

__all__ = ["DEADLINE", "Arrays", "Column", "Mask", "TriggerContext", "NEVER_DUE", "VectorizedTrigger"]

Arrays = dict[str, npt.NDArray[Any]]

Mask = npt.NDArray[np.bool_]

NEVER_DUE = np.iinfo(np.int64).max
DEADLINE = ".at"
"""How the names of columns end that hold when a trigger is due."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of trigger state, what it begins with, and how the states of merged windows become one."""

    name: str
    initial: int
    merge: Literal["sum", "min", "max"]


@dataclass(frozen=True, slots=True)
class TriggerContext:
    """What a trigger may look at: for each window whether the watermark has passed it and whether the batch touched it,
    and the clock."""

    passed: Mask
    clock: Instant
    touched: Mask


class VectorizedTrigger(ABC):
    """A node of a trigger."""

    @abstractmethod
    def columns(self) -> list[Column]:
        """The state of the node and all below it."""

    @abstractmethod
    def on_elements(self, state: Arrays, where: Mask, counts: npt.NDArray[np.int64], clock: Instant) -> None:
        """Note that `counts` elements came to the windows of the mask."""

    @abstractmethod
    def should_fire(self, state: Arrays, at: TriggerContext) -> Mask:
        """For each window whether it fires."""

    @abstractmethod
    def on_fire(self, state: Arrays, where: Mask, at: TriggerContext) -> Mask:
        """Note that the windows of the mask fire; for each whether that finishes it."""

    def due(self, state: Arrays) -> npt.NDArray[np.int64]:
        """For each window the clock at which it is due."""
        deadlines = [state[column.name] for column in self.columns() if column.name.endswith(DEADLINE)]
        size = len(next(iter(state.values())))
        return np.minimum.reduce(deadlines) if deadlines else np.full(size, NEVER_DUE, np.int64)

    def reset(self, state: Arrays, where: Mask, clock: Instant) -> None:
        """Reset the windows of the mask."""
        for column in self.columns():
            state[column.name][where] = column.initial
        self.rearm(state, where, clock)

    def rearm(self, state: Arrays, where: Mask, clock: Instant) -> None:
        """Start again, after a reset by firing, those that need no element to start."""
        for child in self.children():
            child.rearm(state, where, clock)

    def on_merge(self, state: Arrays, merged: Mask, passed: Mask) -> None:
        """Adjust the state of windows that have just merged; `passed`: the watermark was past their new ends."""
        for child in self.children():
            child.on_merge(state, merged, passed)

    def children(self) -> Iterable[VectorizedTrigger]:
        """The nodes below."""
        return ()
