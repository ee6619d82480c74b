"""The lesser and the greater of two values, as polars has them: NaN is neither, unless there is nothing else."""

from __future__ import annotations

from typing import Any

__all__ = ["greater", "lesser"]


def lesser(one: Any, other: Any) -> Any:
    """The lesser of two values; of two that are equal, the first.

    >>> lesser(2.0, 1.0), lesser(float("nan"), 1.0), lesser(1.0, float("nan"))
    (1.0, 1.0, 1.0)
    """
    return other if one != one or other < one else one


def greater(one: Any, other: Any) -> Any:
    """The greater of two values; of two that are equal, the first.

    >>> greater("a", "b"), greater(float("nan"), 1.0), greater(1.0, float("nan"))
    ('b', 1.0, 1.0)
    """
    return other if one != one or other > one else one
