"""Windows: where in event time elements are grouped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar

from tidewheel.errors import DefinitionError
from tidewheel.model.calendars import UNITS, boundaries, time_zone
from tidewheel.model.key_hash import hash_of
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME, Window
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant, duration, format_duration

__all__ = [
    "Calendar",
    "Count",
    "Custom",
    "Global",
    "Merges",
    "Session",
    "Sliding",
    "Windows",
    "calendar",
    "count",
    "custom",
    "tumbling",
    "global_",
    "session",
    "sliding",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports


Merges = list[tuple[Window, list[Window]]]
"""The windows after a merge, each with those that it was made of."""

Length = str | timedelta


def typed_back(value: Duration) -> str:
    """A duration as it is written in code.

    >>> typed_back(90_000_000), typed_back(1_234_567_891)
    ("'1 min 30 s'", "'1234567891 us'")
    """
    text = format_duration(value)
    return repr(text if duration(text) == value else f"{value} us")


class Windows:
    """A way to cut event time into windows.

    Windows end at `END_OF_TIME` at the latest, so that the end of the input closes all of them.
    """

    @property
    def merging(self) -> bool:
        """Whether windows of one key may become others when elements come."""
        return False

    def assign(self, time: Instant, key: tuple[Any, ...]) -> list[Window]:
        """Assign an element to its windows, in order."""
        raise NotImplementedError(f"{self!r} assigns no windows by time")

    def merge(self, windows: Iterable[Window]) -> Merges:
        """Merge the windows of a key: each result with the windows that it consists of; every window is part of exactly
        one."""
        return [(window, [window]) for window in sorted(set(windows))]

    def stamp(self, window: Window, time: Instant) -> Instant:
        """The event time of a pane whose earliest element is of this time (for timestamp="earliest")."""
        return time


@dataclass(frozen=True, slots=True, repr=False)
class Sliding(Windows):
    """Windows of one size that begin at regular times; `stagger`: each key's grid is shifted by its hash."""

    stable_name: ClassVar[str] = "windows.sliding/1"
    stored: ClassVar[StoredFields] = StoredFields(
        "size", "every", "offset", "stagger", micros=("size", "every", "offset")
    )

    size: Duration
    every: Duration
    offset: Duration = 0
    stagger: bool = False

    def __post_init__(self) -> None:
        _positive("window size", self.size)
        _positive("sliding window every", self.every)

    def assign(self, time: Instant, key: tuple[Any, ...]) -> list[Window]:
        """All windows of the grid that hold the time.

        >>> [(window.start, window.end) for window in sliding("10 us", every="5 us").assign(12, ())]
        [(5, 15), (10, 20)]
        """
        offset = self.shift(key)
        last = (time - offset) // self.every * self.every + offset
        starts = range(last, time - self.size, -self.every)
        return [Window(start, min(start + self.size, END_OF_TIME)) for start in reversed(starts)]

    def shift(self, key: tuple[Any, ...]) -> Duration:
        """The offset of a key's grid from 1970."""
        return self.offset + hash_of(key) % self.every if self.stagger else self.offset

    def staggered(self) -> Sliding:
        """The same windows, shifted for each key by its hash, so that not all keys have results at the same time.

        >>> tumbling("10 s").staggered()
        tumbling('10 s').staggered()
        """
        return replace(self, stagger=True)

    def __repr__(self) -> str:
        every = "" if self.every == self.size else f", every={typed_back(self.every)}"
        offset = f", offset={typed_back(self.offset)}" if self.offset else ""
        gaps = ", allow_gaps=True" if self.every > self.size else ""
        name = "sliding" if every else "tumbling"
        return f"{name}({typed_back(self.size)}{every}{offset}{gaps}){'.staggered()' if self.stagger else ''}"


@dataclass(frozen=True, slots=True, repr=False)
class Session(Windows):
    """A key's elements that follow each other by less than the gap; the window ends a gap after the last."""

    stable_name: ClassVar[str] = "windows.session/1"
    stored: ClassVar[StoredFields] = StoredFields("gap", micros=("gap",))

    gap: Duration

    def __post_init__(self) -> None:
        _positive("session gap", self.gap)

    @property
    def merging(self) -> bool:
        """Sessions that overlap become one."""
        return True

    def assign(self, time: Instant, key: tuple[Any, ...]) -> list[Window]:
        """A session of this element alone."""
        return [Window(time, min(time + self.gap, END_OF_TIME))]

    def merge(self, windows: Iterable[Window]) -> Merges:
        """Overlapping windows become one; those that only touch do not."""
        merged: Merges = []
        for window in sorted(set(windows)):
            if merged and window.start < merged[-1][0].end:
                whole, parts = merged[-1]
                merged[-1] = (Window(whole.start, max(whole.end, window.end)), [*parts, window])
            else:
                merged.append((window, [window]))
        return merged

    def __repr__(self) -> str:
        return f"session(gap={typed_back(self.gap)})"


@dataclass(frozen=True, slots=True, repr=False)
class Global(Windows):
    """One window for all time: it ends when the input does."""

    stable_name: ClassVar[str] = "windows.global/1"

    def assign(self, time: Instant, key: tuple[Any, ...]) -> list[Window]:
        return [Window(START_OF_TIME, END_OF_TIME)]

    def __repr__(self) -> str:
        return "global_()"


@dataclass(frozen=True, slots=True, repr=False)
class Count(Windows):
    """Windows of n elements of a key in event-time order; a window begins every `every` elements."""

    stable_name: ClassVar[str] = "windows.count/1"
    stored: ClassVar[StoredFields] = StoredFields("size", "every")

    size: int
    every: int

    def __post_init__(self) -> None:
        for what, number in (("size", self.size), ("every", self.every)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise DefinitionError(f"count window: {what} must be a whole number of elements from 1, got {number!r}")
        if self.every > self.size:
            raise DefinitionError(
                f"count window every {self.every} elements is longer than its size {self.size}, "
                f"so elements between windows would be lost. Use every <= size, or windows.count({self.every})."
            )

    def __repr__(self) -> str:
        return f"count({self.size})" if self.every == self.size else f"count({self.size}, every={self.every})"


@dataclass(frozen=True, slots=True, repr=False)
class Calendar(Windows):
    """The hours, days, weeks (from Monday), months or years of a time zone; a day may have 23 or 25 hours."""

    stable_name: ClassVar[str] = "windows.calendar/1"
    stored: ClassVar[StoredFields] = StoredFields("unit", "zone")

    unit: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise DefinitionError(f"calendar window: unit must be one of {', '.join(UNITS)}, got {self.unit!r}")
        time_zone(self.zone)

    def assign(self, time: Instant, key: tuple[Any, ...]) -> list[Window]:
        """The unit of the calendar that holds the time."""
        return [Window(*boundaries(time, self.unit, self.zone))]

    def __repr__(self) -> str:
        return f"calendar({self.unit!r})" if self.zone == "UTC" else f"calendar({self.unit!r}, zone={self.zone!r})"


Assign = Callable[[Instant], Iterable[tuple[Instant, Instant]]]
Merge = Callable[[list[Window]], Iterable[tuple[Window, list[Window]]]]
Stamp = Callable[[Window, Instant], Instant]


@dataclass(frozen=True, slots=True, repr=False)
class Custom(Windows):
    """Windows by functions of the user's."""

    stable_name: ClassVar[str] = "windows.custom/1"
    stored: ClassVar[StoredFields] = StoredFields("assigner", "merger", "stamper", "name")

    assigner: Assign
    merger: Merge | None = None
    stamper: Stamp | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for what, function in (("assign", self.assigner), ("merge", self.merger), ("timestamp", self.stamper)):
            if not callable(function) and (function is not None or what == "assign"):
                raise DefinitionError(f"custom window: {what} must be a function, got {function!r}")

    @property
    def merging(self) -> bool:
        """Whether there is a function that merges."""
        return self.merger is not None

    def assign(self, time: Instant, key: tuple[Any, ...]) -> list[Window]:
        windows = sorted({Window(start, min(end, END_OF_TIME)) for start, end in self.assigner(time)})
        for window in windows:
            self._check(window)
        return windows

    def merge(self, windows: Iterable[Window]) -> Merges:
        """Merge as the function says, checked: every window must be part of exactly one result."""
        if self.merger is None:
            return Windows.merge(self, windows)
        given = sorted(set(windows))
        merged = sorted((Window(*whole), sorted(parts)) for whole, parts in self.merger(list(given)))
        if sorted(part for _, parts in merged for part in parts) != given:
            raise DefinitionError(
                f"{self!r}: merge must give every window that it gets back in exactly one group: "
                f"got {given}, gave {merged}"
            )
        if len({whole for whole, _ in merged}) != len(merged):
            raise DefinitionError(f"{self!r}: merge must give each result once, gave {merged}")
        for whole, _ in merged:
            self._check(whole)
        return merged

    def stamp(self, window: Window, time: Instant) -> Instant:
        """The time that the function gives, or the time itself."""
        return time if self.stamper is None else self.stamper(window, time)

    def _check(self, window: Window) -> None:
        if window.start >= window.end:
            raise DefinitionError(f"{self!r}: a window must end after its start, got ({window.start}, {window.end})")

    def __repr__(self) -> str:
        return f"custom({self.name or getattr(self.assigner, '__qualname__', repr(self.assigner))})"


def tumbling(size: Length, *, offset: Length = "0 s") -> Sliding:
    """Windows of equal length, side by side.

    >>> tumbling("10 s", offset="1 s")
    tumbling('10 s', offset='1 s')
    """
    length = duration(size, what="window size")
    return Sliding(length, length, duration(offset, what="window offset"))


def sliding(size: Length, every: Length, *, offset: Length = "0 s", allow_gaps: bool = False) -> Sliding:
    """Windows that overlap: one begins every `every`.

    >>> sliding("5 min", every="5 s")
    sliding('5 min', every='5 s')
    >>> sliding("5 min", "5 s") == sliding("5 min", every="5 s")
    True
    """
    length, period = duration(size, what="window size"), duration(every, what="sliding window every")
    if period > length > 0 and not allow_gaps:
        raise DefinitionError(
            f"sliding window every {format_duration(period)} is longer than its size {format_duration(length)}, "
            f"so events between windows would be lost. Use every <= size, or windows.tumbling({typed_back(period)}), "
            "or pass allow_gaps=True."
        )
    return Sliding(length, period, duration(offset, what="window offset"))


def session(gap: Length) -> Session:
    """Bursts of activity: a session ends when a key was silent for the gap.

    >>> session("30 min")
    session(gap='30 min')
    """
    return Session(duration(gap, what="session gap"))


def global_() -> Global:
    """One window for all time.

    >>> global_().assign(5, ())
    [Window(all time)]
    """
    return Global()


def count(size: int, *, every: int | None = None) -> Count:
    """Cut each key's events into windows of n elements, in event-time order.

    >>> count(10), count(10, every=2)
    (count(10), count(10, every=2))
    """
    return Count(size, size if every is None else every)


def calendar(unit: str, *, zone: str = "UTC") -> Calendar:
    """The hours, days, weeks, months or years of a time zone.

    >>> calendar("day", zone="Europe/Helsinki")
    calendar('day', zone='Europe/Helsinki')
    """
    return Calendar(unit, zone)


def custom(
    assign: Assign, *, merge: Merge | None = None, timestamp: Stamp | None = None, name: str | None = None
) -> Custom:
    """Windows by functions: `assign(time)` gives (start, end) pairs, `merge(windows)` gives (result, parts) pairs.

    >>> custom(lambda time: [(time, time + 10)], name="ten").assign(5, ())[0].end
    15
    """
    return Custom(assign, merge, timestamp, name)


def _positive(what: str, value: Duration) -> None:
    if value <= 0:
        raise DefinitionError(f'{what} must be longer than nothing, like "10 s", got {format_duration(value)}')
