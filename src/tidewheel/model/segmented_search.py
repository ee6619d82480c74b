"""Searching many sorted runs of one array at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["first_at_or_after"]

Integers = npt.NDArray[np.int64]


def first_at_or_after(times: Integers, low: Integers, high: Integers, limit: Integers) -> Integers:
    """For each sorted run times[low:high], the first place whose time is at least its limit, or high.

    >>> times = np.array([1, 2, 9, 4, 5])
    >>> first_at_or_after(times, np.array([0, 3]), np.array([3, 5]), np.array([2, 7])).tolist()
    [1, 5]
    """
    low, high = low.copy(), high.copy()
    # One binary search for all runs: as many rounds as the longest run has bits, however many runs there are.
    while (low < high).any():
        middle = (low + high) // 2
        open_ = low < high
        before = np.zeros(len(low), dtype=np.bool_)
        before[open_] = times[middle[open_]] < limit[open_]
        low = np.where(before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)
    return low
