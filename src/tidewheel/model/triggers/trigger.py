"""The interface of a trigger, and the elementary triggers.

A trigger is a description that never changes. What it must remember of a window is a small dict that can be written as
JSON: `start()` makes it, the trigger's methods read and change it. A bundle of elements is given to the trigger at
once, then the trigger is asked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidewheel.errors import DefinitionError
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant, format_duration
from tidewheel.model.windows import typed_back

__all__ = [
    "AfterCount",
    "AfterProcessingTime",
    "Completeness",
    "EachBatch",
    "Never",
    "State",
    "Trigger",
    "all_inputs",
    "check_trigger",
    "least",
]

State = dict[str, Any]
"""What a trigger remembers of a window: numbers, None, and such dicts and lists of its children."""


class Trigger:
    """The interface of a trigger. A stateless trigger that never fires needs no more than this."""

    @property
    def fires_early(self) -> bool:
        """Whether it can fire before the watermark has passed the window."""
        return False

    @property
    def fires_on_time(self) -> bool:
        """Whether it fires, unless it has finished, when the watermark passes the window, whatever came before."""
        return False

    @property
    def fires_late(self) -> bool:
        """Whether it can fire again after it has fired for the watermark."""
        return False

    @property
    def finishes(self) -> bool:
        """Whether it can finish at all; elements that come to the window after that are not shown."""
        return False

    @property
    def may_finish(self) -> bool:
        """Whether it can finish before the watermark has passed the window."""
        return self.finishes and self.fires_early

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns whose highest values it needs."""
        return ()

    def start(self) -> State:
        """Return the state for a new window."""
        return {}

    def restart(self, clock: Instant) -> State:
        """Return the state for a window that begins again because it has fired."""
        return self.start()

    def on_elements(self, state: State, count: int, clock: Instant, expected: Mapping[str, int]) -> None:
        """Note that elements came to the window together.

        `expected` has for each of `inputs` the highest value that the window has seen, these elements included.
        """

    def deadline(self, state: State) -> Instant | None:
        """The clock at which it wants to be asked even if nothing came."""
        return None

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """Whether it fires; passed: the watermark has reached the window's end; touched: elements came just now."""
        return False

    def on_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """The window has given a pane. Returns whether the trigger is finished."""
        return False

    def merge(self, states: Sequence[State], *, passed: bool) -> State:
        """Return the state of a window that others became; passed: the watermark has reached its end already."""
        return self.start()


@dataclass(frozen=True, slots=True, repr=False)
class Never(Trigger):
    """Never fires; what a window holds comes out when the window closes."""

    stable_name: ClassVar[str] = "triggers.never/1"

    def __repr__(self) -> str:
        return "never()"


@dataclass(frozen=True, slots=True, repr=False)
class EachBatch(Trigger):
    """Fires in each step that brought elements."""

    stable_name: ClassVar[str] = "triggers.each_batch/1"

    @property
    def fires_early(self) -> bool:
        return True

    @property
    def fires_late(self) -> bool:
        return True

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        return touched

    def __repr__(self) -> str:
        return "each_batch()"


class _Once(Trigger):
    """Fires once, at any time, and is finished then."""

    __slots__ = ()

    @property
    def fires_early(self) -> bool:
        return True

    @property
    def finishes(self) -> bool:
        """Whether it can finish: it does when it fires."""
        return True

    def on_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """Finish with the first pane."""
        return True


@dataclass(frozen=True, slots=True, repr=False)
class AfterCount(_Once):
    """Fires when n elements have come."""

    stable_name: ClassVar[str] = "triggers.after_count/1"
    stored: ClassVar[StoredFields] = StoredFields("count")

    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 1:
            raise DefinitionError(f"after_count: the count must be a whole number from 1, got {self.count!r}")

    def start(self) -> State:
        return {"count": 0}

    def on_elements(self, state: State, count: int, clock: Instant, expected: Mapping[str, int]) -> None:
        state["count"] += count

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        return bool(state["count"] >= self.count)

    def merge(self, states: Sequence[State], *, passed: bool) -> State:
        return {"count": sum(state["count"] for state in states)}

    def __repr__(self) -> str:
        return f"after_count({self.count})"


@dataclass(frozen=True, slots=True, repr=False)
class AfterProcessingTime(_Once):
    """Fires at a clock that the first element of a pane decides: its own, or the next of a grid, plus the delay."""

    stable_name: ClassVar[str] = "triggers.after_processing_time/1"
    stored: ClassVar[StoredFields] = StoredFields(
        "delay", "period", "offset", "unchanged", micros=("delay", "period", "offset")
    )

    delay: Duration = 0
    period: Duration | None = None
    offset: Duration = 0
    unchanged: bool = False

    def __post_init__(self) -> None:
        if self.delay < 0:
            raise DefinitionError(
                f"after_processing_time: the delay must not be negative, got {format_duration(self.delay)}"
            )
        if self.period is not None and self.period <= 0:
            raise DefinitionError(
                f"after_processing_time: the period must be longer than nothing, got {format_duration(self.period)}"
            )
        if self.offset and self.period is None:
            raise DefinitionError(
                f"after_processing_time: offset {format_duration(self.offset)} has no grid to shift; pass a period too"
            )
        if self.unchanged and self.period is None and self.delay == 0:
            raise DefinitionError(
                "after_processing_time: unchanged=True without a delay or a period would fire without end; pass one"
            )

    def start(self) -> State:
        return {"deadline": None}

    def restart(self, clock: Instant) -> State:
        """Arm it at once if panes are wanted without new elements, too."""
        return {"deadline": self.deadline_of(clock) if self.unchanged else None}

    def deadline_of(self, clock: Instant) -> Instant:
        """The clock at which it fires if it is armed at this one.

        >>> AfterProcessingTime(period=60, offset=5, delay=1).deadline_of(125)
        186
        """
        if self.period is None:
            return clock + self.delay
        return ((clock - self.offset) // self.period + 1) * self.period + self.offset + self.delay

    def on_elements(self, state: State, count: int, clock: Instant, expected: Mapping[str, int]) -> None:
        """Arm it with the first element of a pane."""
        if state["deadline"] is None:
            state["deadline"] = self.deadline_of(clock)

    def deadline(self, state: State) -> Instant | None:
        """The clock at which it fires, once an element has come."""
        found: Instant | None = state["deadline"]
        return found

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        return state["deadline"] is not None and state["deadline"] <= clock

    def merge(self, states: Sequence[State], *, passed: bool) -> State:
        return {"deadline": least(state["deadline"] for state in states)}

    def __repr__(self) -> str:
        options = [f"delay={typed_back(self.delay)}"] if self.delay or self.period is None else []
        options += [] if self.period is None else [f"period={typed_back(self.period)}"]
        options += [f"offset={typed_back(self.offset)}"] if self.offset else []
        options += ["unchanged=True"] if self.unchanged else []
        return f"after_processing_time({', '.join(options)})"


@dataclass(frozen=True, slots=True, repr=False)
class Completeness(_Once):
    """Fires when a part of the expected number of elements has come."""

    stable_name: ClassVar[str] = "triggers.completeness/1"
    stored: ClassVar[StoredFields] = StoredFields("percent", "expected")

    percent: float
    expected: int | str

    def __post_init__(self) -> None:
        number = isinstance(self.percent, (int, float)) and not isinstance(self.percent, bool)
        if not number or not 0 < self.percent <= 100:
            raise DefinitionError(f"completeness: percent must be above 0 and at most 100, got {self.percent!r}")
        if isinstance(self.expected, bool) or not isinstance(self.expected, (int, str)):
            raise DefinitionError(
                f"completeness: expected must be a number of elements or the name of a column, got {self.expected!r}"
            )
        if isinstance(self.expected, int) and self.expected < 1:
            raise DefinitionError(f"completeness: at least 1 element must be expected, got {self.expected}")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The column with the expected number, if there is one."""
        return (self.expected,) if isinstance(self.expected, str) else ()

    def start(self) -> State:
        return {"count": 0, "expected": self.expected if isinstance(self.expected, int) else None}

    def on_elements(self, state: State, count: int, clock: Instant, expected: Mapping[str, int]) -> None:
        """Count the elements, and keep the highest expectation."""
        state["count"] += count
        highest = expected.get(self.expected) if isinstance(self.expected, str) else None
        if highest is not None and (state["expected"] is None or highest > state["expected"]):
            state["expected"] = highest

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """Fire if enough of the expected elements have come."""
        return state["expected"] is not None and bool(state["count"] * 100 >= self.percent * state["expected"])

    def merge(self, states: Sequence[State], *, passed: bool) -> State:
        """Counts add up; the highest expectation counts."""
        known = [state["expected"] for state in states if state["expected"] is not None]
        start = self.start()
        return {"count": sum(state["count"] for state in states), "expected": max(known, default=start["expected"])}

    def __repr__(self) -> str:
        return f"completeness({self.percent!r}, expected={self.expected!r})"


def least(deadlines: Iterable[Instant | None]) -> Instant | None:
    """The earliest of the deadlines; None if there is none."""
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


def check_trigger(what: str, trigger: object) -> None:
    """Refuse anything but a trigger."""
    if not isinstance(trigger, Trigger):
        raise DefinitionError(f"{what} must be a trigger like after_count(10), got {trigger!r}")


def all_inputs(triggers: Iterable[Trigger | None]) -> tuple[str, ...]:
    """The inputs of all these triggers."""
    return tuple(sorted({name for trigger in triggers if trigger is not None for name in trigger.inputs}))
