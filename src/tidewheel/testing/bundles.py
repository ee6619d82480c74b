"""The contents of a script: bundles, each the input of one batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from tidewheel.model.panes import END_OF_TIME, START_OF_TIME
from tidewheel.model.time import Instant

__all__ = ["Bundle", "Bundles", "is_valid_time"]


def is_valid_time(time: Instant | None) -> TypeGuard[Instant]:
    """Whether an event time is valid, so that it may move the watermark."""
    return time is not None and START_OF_TIME <= time < END_OF_TIME


@dataclass(frozen=True, slots=True)
class Bundle:
    """The input of one batch: its clock, its rows, and the watermark that it moves to (None: unchanged).

    >>> from tidewheel.testing import Script
    >>> Script().add(at="00:00:01", v=1).watermark("00:00:02").bundles[0].rows
    ((1767225601000000, {'v': 1}),)
    """

    clock: Instant
    rows: tuple[tuple[Instant | None, Mapping[str, Any]], ...] = ()
    watermark: Instant | None = None


@dataclass(frozen=True, slots=True)
class Bundles:
    """Bundles in their order, and the types of columns that cannot be inferred from values."""

    columns: Mapping[str, Any] | None = None
    bundles: tuple[Bundle, ...] = ()
