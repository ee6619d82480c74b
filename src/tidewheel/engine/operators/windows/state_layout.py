"""The layout of state: which frame a window is in. A batch reads and writes only those that its rows or its time touch.

Windows that end together are kept together. Where ends are as many as windows, or all the same (sessions, global and
custom windows), there is one frame as long as it is small, and from then on each key is in one of a fixed number.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidewheel.engine.operators.windows.assignment import END
from tidewheel.model.key_hash import key_hash
from tidewheel.model.windows import Calendar, Sliding, Windows

__all__ = ["FEW", "SEGMENT", "is_spread", "segments"]

SEGMENT = "__segment"
FEW = 4_096
"""How many windows are in one frame."""
_ALL_IN_ONE = 0
_SPREAD = 16


def segments(windows: Windows, frame: pl.DataFrame, keys: Sequence[str], *, spread: bool) -> pl.Series:
    """The number of each window's frame. `spread`: whether keys are in frames of their own."""
    match windows:
        case Sliding():
            number = (pl.col(END) - windows.offset) // windows.every
        case Calendar():
            number = pl.col(END)
        case _ if spread:
            return (key_hash(frame, keys) % _SPREAD + 1).cast(pl.Int64).alias(SEGMENT)
        case _:
            return pl.repeat(_ALL_IN_ONE, frame.height, dtype=pl.Int64, eager=True).alias(SEGMENT)
    return frame.select(number.alias(SEGMENT)).to_series()


def is_spread(windows: Windows, numbers: Sequence[int], height: int) -> bool:
    """Whether keys are in frames of their own, where these frames are there and one of them has so many windows."""
    if isinstance(windows, Sliding | Calendar):
        return False
    return height > FEW or any(number != _ALL_IN_ONE for number in numbers)
