"""Columns that frames of rows have besides the user's, whose names never begin with two underscores."""

from __future__ import annotations

__all__ = ["ALL", "TIME"]

TIME = "__time"
"""The event time of a row, in microseconds."""
ALL = "__all"
"""The key of rows that have none: the same for all."""
