"""How long results take: from when the inputs had reached a result's event time to when the server has the result."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidewheel.model.time import Duration, Instant

__all__ = ["Latencies"]

_RECENT: Duration = 60_000_000
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

Numbers = npt.NDArray[np.int64]


class Latencies:
    """Each result of the last minute, to the millisecond: what is kept grows with the differences, not the results.

    >>> latencies = Latencies()
    >>> latencies.result(np.array([10, 20, 20, 20]) * 1_000_000, had=22_500_000)
    >>> latencies.measure([0, 10_000_000, 20_000_000], [0, 12_000_000, 21_000_000], now=23_000_000)
    >>> latencies.percentiles()
    {'p50': 1500, 'p90': 10500, 'p99': 10500}
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Numbers, Numbers, Instant]] = []
        self._measured: deque[tuple[Instant, Numbers, Numbers]] = deque()
        """When they were measured, the milliseconds, and how many results took each."""

    def result(self, event_times: Numbers, *, had: Instant) -> None:
        """Note that results of these event times came then: how long they took is known when the inputs were looked
        at."""
        self._waiting.append((*np.unique(event_times, return_counts=True), had))

    def measure(self, reached: Sequence[Instant], when: Sequence[Instant], *, now: Instant) -> None:
        """Measure what came since the last time, by the event times that the inputs have reached, rising, and when they
        did. A result of the future (an early one) has no such moment; one whose moment was before the first is not
        measured either."""
        marks, arrivals = np.array(reached, np.int64), np.array(when, np.int64)
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        waiting, self._waiting = self._waiting, []
        for times, counts, had in waiting:
            place = np.searchsorted(marks, times)
            known = (place > 0) & (place < len(marks))
            taken = had - arrivals[place[known]]
            past = taken >= 0
            found.append((taken[past] // 1_000, counts[known][past]))
        millis, which = np.unique(np.concatenate([taken for taken, _ in found]), return_inverse=True)
        each = np.concatenate([counts for _, counts in found])
        self._measured.append((now, millis, np.bincount(which, each, len(millis)).astype(np.int64)))
        while self._measured and self._measured[0][0] < now - _RECENT:
            self._measured.popleft()

    def percentiles(self) -> dict[str, int] | None:
        """The percentiles in milliseconds, by nearest rank; None if nothing was measured."""
        taken = np.concatenate([np.empty(0, np.int64), *(taken for _, taken, _ in self._measured)])
        if not len(taken):
            return None
        order = np.argsort(taken)
        ranks = np.concatenate([counts for _, _, counts in self._measured])[order].cumsum()
        wanted = np.searchsorted(ranks, [np.ceil(share * ranks[-1]) for share in _SHARES.values()])
        return {name: int(taken[order[place]]) for name, place in zip(_SHARES, wanted, strict=True)}
