"""Measure a rate from a running total."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["Rate"]


class Rate:
    """A rate per second over the last few seconds.

    >>> rate = Rate()
    >>> rate(100, at=7.0), rate(150, at=8.0), rate(300, at=9.0)
    (0.0, 50.0, 100.0)
    """

    def __init__(self, *, over: float = 5.0) -> None:
        self._over = over
        self._seen: deque[tuple[float, int]] = deque()

    def __call__(self, total: int, at: float | None = None) -> float:
        """Return the rate when the total is this (`at`: seconds of any clock); 0 if the total has restarted."""
        at = time.monotonic() if at is None else at
        self._seen.append((at, total))
        while len(self._seen) > 2 and at - self._seen[1][0] >= self._over:
            self._seen.popleft()
        began, first = self._seen[0]
        return max(0, total - first) / (at - began) if at > began else 0.0
