"""The rows that a match attempt has taken so far, as conditions ask for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidewheel.match_recognize.expressions.to_python import hashable

__all__ = ["FoldedRows", "History"]


@dataclass(slots=True)
class FoldedRows:
    """An aggregate over the rows of a set, kept for every length of the attempt, so that going back costs nothing.

    step: from a state and a row to the state after it.
    """

    rows: int
    start: Any
    step: Callable[[Any, History, int], Any]
    states: list[Any] = field(default_factory=list)

    def state(self, history: History) -> Any:
        """The state over all rows of the set."""
        rows, states = history.rows[self.rows], self.states
        for index in range(len(states), len(rows)):
            states.append(self.step(states[index - 1] if index else self.start, history, rows[index]))
        return states[-1] if states else self.start


class History:
    """An attempt: where it starts, the labels of its rows, and for each set of variables the rows mapped to it.

    sets: the sets that conditions ask for. remembered: what of it can change what conditions will say.
    """

    __slots__ = ("_folds", "_of_label", "_remembered", "first", "labels", "last", "number", "rows", "start")

    def __init__(
        self,
        sets: Sequence[frozenset[int]],
        folds: Sequence[FoldedRows],
        remembered: Sequence[Callable[[History], Hashable]],
        variables: int,
    ) -> None:
        self._of_label = [[index for index, one in enumerate(sets) if label in one] for label in range(variables)]
        self._folds, self._remembered = folds, remembered
        self.rows: list[list[int]] = [[] for _ in sets]
        self.labels: list[int] = []
        self.start = self.first = self.last = self.number = 0

    def begin(self, start: int, first: int, last: int, number: int) -> None:
        """Begin an attempt at a row, in a partition from `first` up to `last`."""
        self.start, self.first, self.last, self.number = start, first, last, number
        self.labels.clear()
        for rows in self.rows:
            rows.clear()
        for fold in self._folds:
            fold.states.clear()

    def push(self, row: int, label: int) -> None:
        """Map the next row to a variable."""
        self.labels.append(label)
        for index in self._of_label[label]:
            self.rows[index].append(row)

    def back(self, row: int) -> None:
        """Forget this row and all after it."""
        if len(self.labels) <= row - self.start:
            return
        del self.labels[row - self.start :]
        for rows in self.rows:
            while rows and rows[-1] >= row:
                rows.pop()
        for fold in self._folds:
            del fold.states[len(self.rows[fold.rows]) :]

    def label(self, row: int) -> int | None:
        """The variable that a row is mapped to, if it is taken."""
        index = row - self.start
        return self.labels[index] if 0 <= index < len(self.labels) else None

    def key(self) -> Hashable:
        """A key of the attempt's state: two attempts at the same row and place with equal keys have the same result."""
        return tuple(part(self) for part in self._remembered)


def whole(history: History) -> Hashable:
    """The key of a history of which every label counts."""
    return tuple(history.labels)


def edge(index: int, *, first: bool, count: int, labelled: bool) -> Callable[[History], Hashable]:
    """Remember the first or last rows of a set, with their labels if those matter."""

    def part(history: History) -> Hashable:
        rows = history.rows[index]
        seen = tuple(rows[:count] if first else rows[-count:])
        return (seen, tuple(history.label(row) for row in seen)) if labelled else seen

    return part


def folded(fold: FoldedRows) -> Callable[[History], Hashable]:
    """Remember the state of an aggregate."""
    return lambda history: hashable(fold.state(history))


__all__ += ["edge", "folded", "whole"]
