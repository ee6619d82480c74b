"""Does something grow? A line through samples that a few odd ones cannot bend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["slope"]


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """How much the values grow in a unit of time: the median of the slopes between all pairs of samples (Theil-Sen).

    >>> slope([0, 1, 2, 3, 4], [5, 6, 900, 8, 9])
    1.0
    """
    at, found = np.asarray(times, float), np.asarray(values, float)
    first, second = np.triu_indices(len(at), k=1)
    apart = at[second] - at[first]
    steps = (found[second] - found[first])[apart > 0] / apart[apart > 0]
    if not len(steps):
        raise ValueError(f"a slope needs two moments at least, got {len(at)} samples")
    return float(np.median(steps))
