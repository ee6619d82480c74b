"""The reference interpreter for count windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewheel.model.columns import TIME
from tidewheel.model.panes import END_OF_TIME, TOO_LATE, Element, Late, Pane, Timing, Window, key_order
from tidewheel.model.time import Instant
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Count

__all__ = ["CountWindows"]

Key = tuple[Any, ...]
Row = Mapping[str, Any]


@dataclass(slots=True)
class _Counted:
    """A key's elements: those that the watermark has not passed, and those that it has, in order of time."""

    coming: list[tuple[Instant, Row]] = field(default_factory=list)
    passed: list[tuple[Instant, Row]] = field(default_factory=list)
    next_window: int = 0


class CountWindows:
    """Elements wait until the watermark has passed them, so that they can be numbered in the order of their times."""

    def __init__(self, windowing: Windowing) -> None:
        assert isinstance(windowing.windows, Count)
        self._windows = windowing.windows
        self._aggregates = windowing.aggregates
        self._keys: dict[Key, _Counted] = {}

    def step(
        self, elements: list[Element], before: Instant | None, now: Instant | None, late: list[Late]
    ) -> list[Pane]:
        """Take elements and move the watermark."""
        for element in elements:
            assert element.time is not None
            if before is not None and element.time < before:
                late.append(Late(element, TOO_LATE, before - element.time))
            else:
                row = {**element.values, TIME: element.time}
                self._keys.setdefault(element.key, _Counted()).coming.append((element.time, row))
        panes: list[Pane] = []
        if now is not None:
            for key, counted in self._keys.items():
                panes += self._complete(key, counted, now)
        return sorted(panes, key=lambda pane: (pane.window.end, pane.window.start, key_order(pane.key)))

    def _complete(self, key: Key, counted: _Counted, now: Instant) -> list[Pane]:
        ready = [item for item in counted.coming if item[0] < now]
        counted.coming = [item for item in counted.coming if item[0] >= now]
        counted.passed += sorted(ready, key=lambda item: item[0])  # a stable sort: equal times keep their arrival
        panes: list[Pane] = []
        while True:
            first = counted.next_window * self._windows.every
            members = counted.passed[first : first + self._windows.size]
            if not members or (len(members) < self._windows.size and now < END_OF_TIME):
                return panes
            counted.next_window += 1
            panes.append(self._pane(key, members))

    def _pane(self, key: Key, members: list[tuple[Instant, Row]]) -> Pane:
        rows = [row for _, row in members]
        window = Window(members[0][0], members[-1][0] + 1)
        return Pane(
            key=key,
            window=window,
            values={name: aggregate.of(rows) for name, aggregate in self._aggregates.items()},
            index=0,
            timing=Timing.ON_TIME,
            first=True,
            last=True,
            event_time=window.end - 1,
        )
