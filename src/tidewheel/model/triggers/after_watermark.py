"""The trigger of the watermark, with panes before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Instant
from tidewheel.model.triggers.trigger import State, Trigger, all_inputs, check_trigger

__all__ = ["AfterWatermark"]


@dataclass(frozen=True, slots=True, repr=False)
class AfterWatermark(Trigger):
    """Fires when the watermark passes the window; `early` before that and `late` after it repeat by themselves."""

    stable_name: ClassVar[str] = "triggers.after_watermark/1"
    stored: ClassVar[StoredFields] = StoredFields("early", "late")

    early: Trigger | None = None
    late: Trigger | None = None

    def __post_init__(self) -> None:
        for what, trigger in (("early", self.early), ("late", self.late)):
            if trigger is not None:
                check_trigger(f"after_watermark: {what}", trigger)

    @property
    def fires_early(self) -> bool:
        """Whether there is an early trigger that can fire early."""
        return self.early is not None and self.early.fires_early

    @property
    def fires_on_time(self) -> bool:
        return True

    @property
    def fires_late(self) -> bool:
        """Whether there is a late trigger that can fire at all."""
        return self.late is not None and (self.late.fires_early or self.late.fires_late)

    @property
    def finishes(self) -> bool:
        """Whether it finishes with the pane for the watermark: only if there is no late trigger."""
        return self.late is None

    @property
    def may_finish(self) -> bool:
        """Whether it can finish before the watermark: never."""
        return False

    @property
    def inputs(self) -> tuple[str, ...]:
        return all_inputs((self.early, self.late))

    def start(self) -> State:
        """Return the state for a window that the watermark has not passed."""
        return self._phase(late=False)

    def restart(self, clock: Instant) -> State:
        """Return the state before the watermark, after a pane."""
        return {"late": False, "child": None if self.early is None else self.early.restart(clock)}

    def _phase(self, *, late: bool) -> State:
        child = self.late if late else self.early
        return {"late": late, "child": None if child is None else child.start()}

    def _child(self, state: State) -> Trigger | None:
        return self.late if state["late"] else self.early

    def on_elements(self, state: State, count: int, clock: Instant, expected: Mapping[str, int]) -> None:
        """Pass the elements on to the current phase's trigger."""
        child = self._child(state)
        if child is not None:
            child.on_elements(state["child"], count, clock, expected)

    def deadline(self, state: State) -> Instant | None:
        """The deadline of the current phase's trigger."""
        child = self._child(state)
        return None if child is None else child.deadline(state["child"])

    def should_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """Fire if the watermark has passed and there was no pane for that, or if the current phase's trigger fires."""
        if passed and not state["late"]:
            return True
        child = self._child(state)
        return child is not None and child.should_fire(state["child"], passed=passed, clock=clock, touched=touched)

    def on_fire(self, state: State, *, passed: bool, clock: Instant, touched: bool) -> bool:
        """The pane for the watermark ends the early phase; other panes let early or late begin again."""
        if passed and not state["late"]:
            state.update(self._phase(late=True))
            return self.late is None
        child = self._child(state)
        if child is not None and child.on_fire(state["child"], passed=passed, clock=clock, touched=touched):
            state["child"] = child.restart(clock)
        return False

    def merge(self, states: Sequence[State], *, passed: bool) -> State:
        """Late only if all were and the watermark has passed the new end too; only memories of that phase count."""
        late = passed and bool(states) and all(state["late"] for state in states)
        merged = self._phase(late=late)
        child = self._child(merged)
        if child is not None:
            same = [state["child"] for state in states if state["late"] == late]
            merged["child"] = child.merge(same, passed=passed)
        return merged

    def __repr__(self) -> str:
        options = [f"{name}={child!r}" for name, child in (("early", self.early), ("late", self.late)) if child]
        return f"after_watermark({', '.join(options)})"
