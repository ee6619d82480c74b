"""Triggers that are made of others: repeated, together, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tidewheel.errors import DefinitionError
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Instant
from tidewheel.model.triggers.after_watermark import AfterWatermark
from tidewheel.model.triggers.trigger import State, Trigger, all_inputs, check_trigger, least

__all__ = ["AllOf", "AnyOf", "InOrder", "OrFinally", "Repeatedly"]


@dataclass(frozen=True, slots=True, repr=False)
class Repeatedly(Trigger):
    """Its trigger begins again when it finishes; never finishes itself."""

    stable_name: ClassVar[str] = "triggers.repeatedly/1"
    stored: ClassVar[StoredFields] = StoredFields("trigger")

    trigger: Trigger

    def __post_init__(self) -> None:
        check_trigger("repeatedly: its argument", self.trigger)

    @property
    def fires_early(self) -> bool:
        return self.trigger.fires_early

    @property
    def fires_on_time(self) -> bool:
        return self.trigger.fires_on_time

    @property
    def fires_late(self) -> bool:
        """Whether its trigger finishes, and so begins again, or fires late by itself."""
        return self.trigger.finishes or self.trigger.fires_late

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.trigger.inputs

    def start(self) -> State:
        return self.trigger.start()

    def restart(self, clock: Instant) -> State:
        return self.trigger.restart(clock)

    def on_elements(self, state: State, count: int, clock: Instant, expected: Mapping[str, int]) -> None:
        self.trigger.on_elements(state, count, clock, expected)

    def deadline(self, state: State) -> Instant | None:
        return self.trigger.deadline(state)

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        return self.trigger.should_fire(state, passed=passed, clock=clock, touched=touched)

    def on_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """Begin again with its trigger if that has finished."""
        if self.trigger.on_fire(state, passed=passed, clock=clock, touched=touched):
            again = self.trigger.restart(clock)
            state.clear()
            state.update(again)
        return False

    def merge(self, states: Sequence[State], *, passed: bool) -> State:
        return self.trigger.merge(states, passed=passed)

    def __repr__(self) -> str:
        return "default()" if self == _DEFAULT else f"repeatedly({self.trigger!r})"


_DEFAULT = Repeatedly(AfterWatermark())


@dataclass(frozen=True, slots=True, repr=False)
class _Parallel(Trigger):
    """Several triggers that all see all elements; finished when it fires."""

    stored: ClassVar[StoredFields] = StoredFields("triggers")
    function: ClassVar[str]
    """What users write to make it."""

    triggers: tuple[Trigger, ...]

    def __post_init__(self) -> None:
        _check_all(self.function, self.triggers)

    @property
    def finishes(self) -> bool:
        """Whether it can finish: it does when it fires."""
        return True

    @property
    def inputs(self) -> tuple[str, ...]:
        return all_inputs(self.triggers)

    def start(self) -> State:
        return {"children": [trigger.start() for trigger in self.triggers]}

    def restart(self, clock: Instant) -> State:
        return {"children": [trigger.restart(clock) for trigger in self.triggers]}

    def on_elements(self, state: State, count: int, clock: Instant, expected: Mapping[str, int]) -> None:
        for trigger, child in zip(self.triggers, state["children"], strict=True):
            trigger.on_elements(child, count, clock, expected)

    def deadline(self, state: State) -> Instant | None:
        """The earliest deadline of its triggers."""
        return least(t.deadline(child) for t, child in zip(self.triggers, state["children"], strict=True))

    def _answers(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> list[bool]:
        pairs = zip(self.triggers, state["children"], strict=True)
        return [t.should_fire(child, passed=passed, clock=clock, touched=touched) for t, child in pairs]

    def on_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """Finish with the first pane."""
        return True

    def merge(self, states: Sequence[State], *, passed: bool) -> State:
        merged = [
            trigger.merge([state["children"][place] for state in states], passed=passed)
            for place, trigger in enumerate(self.triggers)
        ]
        return {"children": merged}

    def __repr__(self) -> str:
        return f"{self.function}({', '.join(map(repr, self.triggers))})"


@dataclass(frozen=True, slots=True, repr=False)
class AnyOf(_Parallel):
    """Fires when one of its triggers does."""

    stable_name: ClassVar[str] = "triggers.any_of/1"
    function: ClassVar[str] = "any_of"

    @property
    def fires_early(self) -> bool:
        return any(trigger.fires_early for trigger in self.triggers)

    @property
    def fires_on_time(self) -> bool:
        return any(trigger.fires_on_time for trigger in self.triggers)

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        return any(self._answers(state, passed=passed, clock=clock, touched=touched))


@dataclass(frozen=True, slots=True, repr=False)
class AllOf(_Parallel):
    """Fires when all of its triggers would."""

    stable_name: ClassVar[str] = "triggers.all_of/1"
    function: ClassVar[str] = "all_of"

    @property
    def fires_early(self) -> bool:
        return all(trigger.fires_early for trigger in self.triggers)

    @property
    def fires_on_time(self) -> bool:
        return all(trigger.fires_on_time for trigger in self.triggers)

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        return all(self._answers(state, passed=passed, clock=clock, touched=touched))


@dataclass(frozen=True, slots=True, repr=False)
class InOrder(Trigger):
    """One trigger after the other: elements count only for the active one."""

    stable_name: ClassVar[str] = "triggers.in_order/1"
    stored: ClassVar[StoredFields] = StoredFields("triggers")

    triggers: tuple[Trigger, ...]

    def __post_init__(self) -> None:
        _check_all("in_order", self.triggers)

    @property
    def fires_early(self) -> bool:
        """Whether the first trigger can fire early."""
        return self.triggers[0].fires_early

    @property
    def fires_on_time(self) -> bool:
        """Whether all of its triggers fire on time."""
        return all(trigger.fires_on_time for trigger in self.triggers)

    @property
    def fires_late(self) -> bool:
        """Whether one can fire late, or follows one that fires for the watermark."""
        return len(self.triggers) > 1 or self.triggers[0].fires_late

    @property
    def finishes(self) -> bool:
        """Whether all its triggers finish."""
        return all(trigger.finishes for trigger in self.triggers)

    @property
    def may_finish(self) -> bool:
        """Whether all its triggers may finish early."""
        return all(trigger.may_finish for trigger in self.triggers)

    @property
    def inputs(self) -> tuple[str, ...]:
        return all_inputs(self.triggers)

    def start(self) -> State:
        """Begin with the first trigger."""
        return self._turn(0)

    def restart(self, clock: Instant) -> State:
        """Begin again with the first trigger."""
        return {"turn": 0, "child": self.triggers[0].restart(clock)}

    def _turn(self, turn: int) -> State:
        return {"turn": turn, "child": self.triggers[turn].start()}

    def on_elements(self, state: State, count: int, clock: Instant, expected: Mapping[str, int]) -> None:
        """Pass the elements on to the active trigger."""
        self.triggers[state["turn"]].on_elements(state["child"], count, clock, expected)

    def deadline(self, state: State) -> Instant | None:
        """The deadline of the active trigger."""
        return self.triggers[state["turn"]].deadline(state["child"])

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """Fire when the active trigger fires."""
        child = self.triggers[state["turn"]]
        return child.should_fire(state["child"], passed=passed, clock=clock, touched=touched)

    def on_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """When the active trigger finishes, the next one becomes active; with the last one it finishes itself."""
        child = self.triggers[state["turn"]]
        if child.on_fire(state["child"], passed=passed, clock=clock, touched=touched):
            if state["turn"] + 1 == len(self.triggers):
                return True
            state.update(self._turn(state["turn"] + 1))
        return False

    def merge(self, states: Sequence[State], *, passed: bool) -> State:
        """Go on with the furthest trigger; memories of earlier ones do not count."""
        turn = max((state["turn"] for state in states), default=0)
        same = [state["child"] for state in states if state["turn"] == turn]
        return {"turn": turn, "child": self.triggers[turn].merge(same, passed=passed)}

    def __repr__(self) -> str:
        return f"in_order({', '.join(map(repr, self.triggers))})"


@dataclass(frozen=True, slots=True, repr=False)
class OrFinally(Trigger):
    """`main` repeats until `last` fires; that is the end."""

    stable_name: ClassVar[str] = "triggers.or_finally/1"
    stored: ClassVar[StoredFields] = StoredFields("main", "last")

    main: Trigger
    last: Trigger

    def __post_init__(self) -> None:
        check_trigger("or_finally: main", self.main)
        check_trigger("or_finally: last", self.last)

    @property
    def fires_early(self) -> bool:
        return self.main.fires_early or self.last.fires_early

    @property
    def fires_on_time(self) -> bool:
        return self.main.fires_on_time or self.last.fires_on_time

    @property
    def fires_late(self) -> bool:
        return self.main.finishes or self.main.fires_late

    @property
    def finishes(self) -> bool:
        """Whether it can finish: it does when `last` fires."""
        return True

    @property
    def may_finish(self) -> bool:
        return self.last.fires_early

    @property
    def inputs(self) -> tuple[str, ...]:
        return all_inputs((self.main, self.last))

    def start(self) -> State:
        return {"main": self.main.start(), "last": self.last.start()}

    def restart(self, clock: Instant) -> State:
        return {"main": self.main.restart(clock), "last": self.last.restart(clock)}

    def on_elements(self, state: State, count: int, clock: Instant, expected: Mapping[str, int]) -> None:
        self.main.on_elements(state["main"], count, clock, expected)
        self.last.on_elements(state["last"], count, clock, expected)

    def deadline(self, state: State) -> Instant | None:
        return least((self.main.deadline(state["main"]), self.last.deadline(state["last"])))

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        return self.main.should_fire(
            state["main"], passed=passed, clock=clock, touched=touched
        ) or self.last.should_fire(state["last"], passed=passed, clock=clock, touched=touched)

    def on_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """Finish if `last` fires; otherwise `main` begins again if it has finished."""
        if self.last.should_fire(state["last"], passed=passed, clock=clock, touched=touched):
            return True
        if self.main.on_fire(state["main"], passed=passed, clock=clock, touched=touched):
            state["main"] = self.main.restart(clock)
        return False

    def merge(self, states: Sequence[State], *, passed: bool) -> State:
        return {
            "main": self.main.merge([state["main"] for state in states], passed=passed),
            "last": self.last.merge([state["last"] for state in states], passed=passed),
        }

    def __repr__(self) -> str:
        return f"or_finally({self.main!r}, {self.last!r})"


def _check_all(what: str, triggers: tuple[Trigger, ...]) -> None:
    if not triggers:
        raise DefinitionError(f"{what} needs at least one trigger, got none")
    for place, trigger in enumerate(triggers, start=1):
        check_trigger(f"{what}: argument {place}", trigger)
