"""The reference interpreter: what windowing means, element by element; slow and obviously right.

A step takes a bundle of elements together with the watermark and the clock that it moves time to. Elements are judged
by the watermark before the step, panes by the one after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidewheel.model.aggregates.retractable import WEIGHT
from tidewheel.model.columns import TIME
from tidewheel.model.panes import (
    FINISHED,
    NO_WINDOW,
    TOO_LATE,
    Element,
    Late,
    Pane,
    Timing,
    Window,
    key_order,
    rejection,
)
from tidewheel.model.reference.counts import CountWindows
from tidewheel.model.time import Instant
from tidewheel.model.triggers import State
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Count

__all__ = ["Live", "Output", "Reference"]

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a step."""

    panes: list[Pane]
    late: list[Late]


@dataclass(frozen=True, slots=True)
class Live:
    """A window that is remembered, with the aggregates of all that it accepted."""

    key: Key
    window: Window
    values: Mapping[str, Any]
    finished: bool


@dataclass(slots=True)
class _Held:
    """An element in a window. `arrival` numbers all elements; `behind`: the watermark had passed it when it came."""

    arrival: int
    time: Instant
    behind: bool
    row: Mapping[str, Any]


@dataclass(slots=True)
class _Live:
    """The state of a window."""

    trigger: State
    elements: list[_Held] = field(default_factory=list)
    fresh: list[_Held] = field(default_factory=list)  # those in no pane yet
    panes: int = 0
    past_end: bool = False  # there was a pane at or past the window's end
    finished: bool = False
    shown: Pane | None = None
    waiting: list[Pane] = field(default_factory=list)  # panes of windows that became this one, not yet retracted


class Reference:
    """Runs a windowing over bundles of elements, all keys in one."""

    def __init__(self, windowing: Windowing) -> None:
        self.windowing = windowing
        self._watermark: Instant | None = None
        self._clock: Instant | None = None
        self._arrivals = 0
        self._keys: dict[Key, dict[Window, _Live]] = {}
        self._counts = CountWindows(windowing) if isinstance(windowing.windows, Count) else None

    def step(self, elements: Iterable[Element], *, watermark: Instant | None, clock: Instant) -> Output:
        """Take a bundle and move time; neither the watermark nor the clock ever falls."""
        before = self._watermark
        self._watermark = _later(before, watermark)
        self._clock = clock if self._clock is None else max(self._clock, clock)
        late: list[Late] = []
        sound = [element for element in elements if self._is_sound(element, late)]
        if self._counts is not None:
            return Output(self._counts.step(sound, before, self._watermark, late), late)
        touched = self._take(sound, before, late)
        return Output(self._fire(before, self._clock, touched), late)

    def live_windows(self) -> list[Live]:
        """The windows that have state, including those whose trigger has finished."""
        return [
            Live(key, window, self._aggregate(live.elements), live.finished) for window, key, live in self._ordered()
        ]

    # Elements come in -----------------------------------------------------------------------------------------------

    @staticmethod
    def _is_sound(element: Element, late: list[Late]) -> bool:
        reason, _ = rejection(element.time, None)
        if reason is not None:
            late.append(Late(element, reason, None))
        return reason is None

    def _take(self, elements: list[Element], before: Instant | None, late: list[Late]) -> set[tuple[Key, Window]]:
        """Put the elements into their windows; returns the windows that got any."""
        accepted: dict[Key, list[tuple[Element, list[Window]]]] = {}
        for element in elements:
            assert element.time is not None
            assigned = self.windowing.windows.assign(element.time, element.key)
            windows = [window for window in assigned if before is None or before < self.windowing.closes_at(window)]
            if windows:
                accepted.setdefault(element.key, []).append((element, windows))
            elif assigned:
                assert before is not None
                late.append(Late(element, TOO_LATE, before - element.time))
            else:
                late.append(Late(element, NO_WINDOW, None))
        touched = set()
        for key, bundle in accepted.items():
            became = self._merge(key, {window for _, windows in bundle for window in windows}, before)
            arrivals: dict[Window, list[_Held]] = {}
            for element, windows in bundle:
                assert element.time is not None
                behind = before is not None and element.time < before
                held = _Held(self._arrivals, element.time, behind, {**element.values, TIME: element.time})
                self._arrivals += 1
                open_windows = [
                    window
                    for window in sorted({became[window] for window in windows})
                    if not self._keys[key][window].finished
                ]
                for window in open_windows:
                    arrivals.setdefault(window, []).append(held)
                if not open_windows:
                    late.append(Late(element, FINISHED, 0 if before is None else max(before - element.time, 0)))
            for window, came in arrivals.items():
                self._add(self._keys[key][window], came)
                touched.add((key, window))
        return touched

    def _add(self, live: _Live, came: list[_Held]) -> None:
        live.elements.extend(came)
        live.fresh.extend(came)
        trigger = self.windowing.trigger
        columns = {name: [held.row[name] for held in live.elements] for name in trigger.inputs}
        expected = {
            name: max(value for value in values if value is not None)
            for name, values in columns.items()
            if any(value is not None for value in values)
        }
        assert self._clock is not None
        trigger.on_elements(live.trigger, len(came), self._clock, expected)

    def _merge(self, key: Key, new: set[Window], before: Instant | None) -> dict[Window, Window]:
        """Merge the new windows with the key's; returns what each new one became."""
        old = self._keys.get(key, {})
        if not self.windowing.windows.merging:
            for window in new - old.keys():
                old[window] = _Live(self.windowing.trigger.start())
            self._keys[key] = old
            return {window: window for window in new}
        became: dict[Window, Window] = {}
        merged: dict[Window, _Live] = {}
        for result, parts in self.windowing.windows.merge([*old, *new]):
            became |= dict.fromkeys(parts, result)
            merged[result] = self._merged(result, [part for part in parts if part in old], old, before)
        self._keys[key] = merged
        return became

    def _merged(self, result: Window, parts: list[Window], old: dict[Window, _Live], before: Instant | None) -> _Live:
        """The state of a window that was merged from others."""
        lives = [old[part] for part in parts]
        passed = before is not None and before >= result.end
        live = _Live(
            trigger=self.windowing.trigger.merge([part.trigger for part in lives], passed=passed),
            elements=sorted((held for part in lives for held in part.elements), key=lambda held: held.arrival),
            fresh=sorted((held for part in lives for held in part.fresh), key=lambda held: held.arrival),
            finished=bool(lives) and all(part.finished for part in lives),
            waiting=[pane for part in lives for pane in part.waiting],
        )
        for window, part in zip(parts, lives, strict=True):
            if window == result:
                live.panes, live.past_end, live.shown = part.panes, part.past_end, part.shown
            elif part.shown is not None:
                live.waiting.append(part.shown)
        live.waiting.sort(key=lambda pane: (pane.window.end, pane.window.start))
        return live

    # Panes come out -------------------------------------------------------------------------------------------------

    def _fire(self, before: Instant | None, clock: Instant, touched: set[tuple[Key, Window]]) -> list[Pane]:
        now = self._watermark
        panes: list[Pane] = []
        gone: set[tuple[Key, Window]] = set()
        ordered = self._ordered()
        next_end = self._next_ends(now)
        for window, key, live in ordered:
            if live.finished:
                continue
            passed = now is not None and now >= window.end
            closing = now is not None and now >= self.windowing.closes_at(window)
            is_touched = (key, window) in touched
            deadline = self.windowing.trigger.deadline(live.trigger)
            asked = (
                is_touched
                or (passed and (before is None or before < window.end))
                or (deadline is not None and deadline <= clock)
            )
            fires = asked and self.windowing.trigger.should_fire(
                live.trigger, passed=passed, clock=clock, touched=is_touched
            )
            if self.windowing.early_windows == "next" and not passed and window.end != next_end[key]:
                fires = False
            if fires or (closing and (live.fresh or live.waiting)):
                if self._is_void(live) and not live.panes and not live.waiting:
                    gone.add((key, window))  # nobody has seen anything of it
                    continue
                live.finished = self.windowing.trigger.on_fire(
                    live.trigger, passed=passed, clock=clock, touched=is_touched
                )
                panes += self._pane(key, window, live, passed=passed, last=live.finished or closing)
                if live.finished:
                    live.trigger = self.windowing.trigger.start()  # what a finished one has counted is over
        over = {
            (key, window) for window, key, _ in ordered if now is not None and now >= self.windowing.closes_at(window)
        }
        for key, window in over | gone:
            del self._keys[key][window]
            if not self._keys[key]:
                del self._keys[key]
        return panes

    def _next_ends(self, now: Instant | None) -> dict[Key, Instant]:
        """For each key the first end of its open windows."""
        found: dict[Key, Instant] = {}
        for window, key, live in self._ordered():
            if not live.finished and (now is None or window.end > now):
                found.setdefault(key, window.end)
        return found

    def _pane(self, key: Key, window: Window, live: _Live, *, passed: bool, last: bool) -> list[Pane]:
        """The pane, after what it retracts; only that, if nothing is left in the window."""
        mode = self.windowing.mode
        old = [*live.waiting, *([] if live.shown is None else [live.shown])]
        retracted = [replace(pane, retraction=True, last=False) for pane in old]
        live.waiting, live.shown = [], None
        if self._is_void(live):
            live.fresh = []
            return retracted
        shown = live.fresh if mode == "delta" else live.elements
        timing = Timing.EARLY if not passed else Timing.LATE if live.past_end else Timing.ON_TIME
        pane = Pane(
            key=key,
            window=window,
            values=self._aggregate(shown),
            index=live.panes,
            timing=timing,
            first=live.panes == 0,
            last=last,
            event_time=self._event_time(window, shown),
        )
        live.panes += 1
        live.past_end |= passed
        live.fresh = []
        if self.windowing.retracts:
            live.shown = pane
        return [*(retracted if mode == "retracting" else []), pane]

    def _is_void(self, live: _Live) -> bool:
        """Whether all of it was retracted. In delta mode, only as long as there was no pane."""
        if not self.windowing.weighted or (self.windowing.mode == "delta" and len(live.fresh) < len(live.elements)):
            return False
        left: int = sum(held.row[WEIGHT] for held in live.elements)
        return left <= 0

    def _event_time(self, window: Window, shown: list[_Held]) -> Instant:
        if self.windowing.timestamp == "latest" and shown:
            return max(held.time for held in shown)
        held_back = [held.time for held in shown if not held.behind]
        if self.windowing.timestamp == "earliest" and held_back:
            return self.windowing.windows.stamp(window, min(held_back))
        return window.end - 1

    def _aggregate(self, elements: list[_Held]) -> dict[str, Any]:
        rows = [held.row for held in elements]
        return {name: aggregate.of(rows) for name, aggregate in self.windowing.aggregates.items()}

    def _ordered(self) -> list[tuple[Window, Key, _Live]]:
        found = [(window, key, live) for key, windows in self._keys.items() for window, live in windows.items()]
        return sorted(found, key=lambda item: (item[0].end, item[0].start, key_order(item[1])))


def _later(before: Instant | None, after: Instant | None) -> Instant | None:
    return before if after is None else after if before is None else max(before, after)
