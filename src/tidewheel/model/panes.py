"""Elements, panes and late elements: the input and output of windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from tidewheel.model.time import Duration, Instant, format_duration, format_instant

__all__ = [
    "ABSURD_TIME",
    "END_OF_TIME",
    "FINISHED",
    "FROM_THE_FUTURE",
    "NO_TIME",
    "NO_WINDOW",
    "START_OF_TIME",
    "TOO_LATE",
    "Element",
    "Late",
    "Pane",
    "Timing",
    "Window",
    "key_order",
    "rejection",
]

START_OF_TIME: Instant = -62_135_596_800_000_000
"""The first instant of the year 1: no event is before it."""

END_OF_TIME: Instant = 253_402_300_800_000_000
"""The first instant after the year 9999: a watermark there says that the input has ended."""

TOO_LATE = "too late"
FINISHED = "trigger finished"
FROM_THE_FUTURE = "from the future"
NO_TIME = "no event time"
ABSURD_TIME = "absurd event time"
NO_WINDOW = "in no window"


class Timing(str, Enum):
    """The timing of a pane: before the watermark passed the window, the first at or after that, or later."""

    EARLY = "EARLY"
    ON_TIME = "ON_TIME"
    LATE = "LATE"

    def __repr__(self) -> str:
        return self.value


class Window(NamedTuple):
    """A stretch of event time, the end not included.

    >>> Window(0, 10_000_000)
    Window(1970-01-01T00:00:00.000000Z, 10 s)
    """

    start: Instant
    end: Instant

    def __repr__(self) -> str:
        if (self.start, self.end) == (START_OF_TIME, END_OF_TIME):
            return "Window(all time)"
        return f"Window({format_instant(self.start)}, {format_duration(self.end - self.start)})"


@dataclass(frozen=True, slots=True)
class Element:
    """An event as the model sees it."""

    time: Instant | None
    key: tuple[Any, ...]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pane:
    """A result of a window. `index` counts the panes of the window from 0; `last`: no other is to follow."""

    key: tuple[Any, ...]
    window: Window
    values: Mapping[str, Any]
    index: int
    timing: Timing
    first: bool
    last: bool
    event_time: Instant
    retraction: bool = False


@dataclass(frozen=True, slots=True)
class Late:
    """An element that is in no pane, why, and how far it was behind the watermark (or ahead of the clock)."""

    element: Element
    reason: str
    by: Duration | None


def rejection(
    time: Instant | None, before: Instant | None, *, lateness: Duration = 0
) -> tuple[str | None, Duration | None]:
    """Return why an event is rejected and how late it is; None and None if it is accepted."""
    if time is None:
        return NO_TIME, None
    if not START_OF_TIME <= time < END_OF_TIME:
        return ABSURD_TIME, None
    if before is not None and time < before - lateness:
        return TOO_LATE, before - time
    return None, None


def key_order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A sort key that sorts keys as columns are sorted: nulls first."""
    return tuple((value is not None, value) for value in key)
