"""Measures of a match: expressions over the events that its stages took, for `match(measures=...)` and for conditions.

>>> import tidewheel as tw
>>> str(tw.measures.last("low.price"))
'col("last(low.price)")'
"""

from __future__ import annotations

from tidewheel.patterns.define.references import collect, count, first, last, max, mean, min, previous, sum

__all__ = ["collect", "count", "first", "last", "max", "mean", "min", "previous", "sum"]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports
