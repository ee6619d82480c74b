"""The work of one step: searching in the rows of one frame, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from tidewheel.match_recognize.matching.backtracking import Partition, Search, Undecided
from tidewheel.match_recognize.matching.matches import Found

__all__ = ["Step", "MatchAttempt"]


@dataclass(frozen=True, slots=True)
class Step:
    """What a step gives.

    rows: of the matches that are decided. last: for each of these rows, the first column of the order at the last row
    of its match. given_up: the attempts that took too many rows. state: for the next step.
    """

    rows: pl.DataFrame
    last: pl.Series
    given_up: pl.DataFrame
    state: dict[str, pl.DataFrame]


@dataclass
class MatchAttempt:
    """Searches in a frame, and notes what is found.

    prepare: to be called before the first search. stood: the instruction, from 1, and how many rows after its start the
    last attempt that was undecided stood; 0 if it must be searched anew. given_up: the rows that were, from and up to.
    """

    search: Search
    columns: Sequence[np.ndarray[Any, np.dtype[np.bool_]] | None]
    order_times: pl.Series | None
    limit: int | None
    prepare: Callable[[], None]
    found: Found = field(default_factory=Found)
    given_up: list[tuple[int, int]] = field(default_factory=list)
    stood: tuple[int, int] = (0, 0)

    @cached_property
    def masks(self) -> list[bytes | None]:
        """The columns in a form of which single values are read fast."""
        self.prepare()
        return [None if column is None else column.tobytes() for column in self.columns]

    @cached_property
    def times(self) -> list[int | None] | None:
        """The order_times likewise."""
        return None if self.order_times is None else self.order_times.to_list()

    def match(self, start: int, partition: Partition, number: int, failed: set[Any]) -> Any:
        """Search for a match from a row on (see `Search.match`)."""
        taken = self.search.match(start, partition, self.masks, self.times, number, failed, self.limit)
        if isinstance(taken, Undecided) and self.search.can_resume:
            self.stood = (taken.place + 1, taken.row - start)
        return taken

    def still(self, start: int, partition: Partition, place: int, reached: int) -> tuple[int, int] | None:
        """The place at which an attempt that stood there stands now, if it is still undecided.

        Only the new rows are looked at, so an attempt that goes on and on does not cost its whole length every time.
        """
        resumed = Undecided(int(place) - 1, start + int(reached))
        taken = self.search.match(start, partition, self.masks, self.times, 0, set(), self.limit, resumed)
        return (taken.place + 1, taken.row - start) if isinstance(taken, Undecided) else None

    def give_up(self, start: int) -> int:
        """Note an attempt that took too many rows; gives the row after those given up."""
        assert self.limit is not None
        self.given_up.append((start, start + self.limit))
        return start + self.limit
