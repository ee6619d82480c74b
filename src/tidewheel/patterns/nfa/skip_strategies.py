"""Which other partial and held matches a match ends, by its pattern's policy."""

from __future__ import annotations

from tidewheel.errors import PatternError
from tidewheel.patterns.compile.bound_program import BoundProgram
from tidewheel.patterns.nfa.partial_match import Match, Path, events_of, steps_of

__all__ = ["SkipStrategy"]


class SkipStrategy:
    """Decides which partial matches a match ends, from their start and path."""

    def __init__(self, bound: BoundProgram, match: Match) -> None:
        policy = bound.program.policy
        steps = steps_of(match.path)
        self._start = match.start
        self._same_start = policy.select != "each"
        self._events = set() if policy.reuse else {event for event, _ in steps}
        self._before: float = -1
        if policy.after_match == "skip to next":
            self._before = match.start + 0.5
        elif policy.after_match == "skip past last":
            self._before = steps[-1][0] + 0.5
        elif policy.stage is not None:
            events = [event for event, position in steps if bound.stages[position] == policy.stage]
            goes_nowhere = bool(events) and policy.after_match == "skip to first" and events[0] == match.start
            if policy.missing == "fail" and (not events or goes_nowhere):
                why = "begins with" if events else "has no event of"
                raise PatternError(
                    f"after_match: {policy.after_match} of stage {policy.stage!r}, but a match {why} it. "
                    'Use missing="ignore", or another stage, or "skip to next".'
                )
            if events:
                self._before = events[0] if policy.after_match == "skip to first" else events[-1]

    def __call__(self, start: int, path: Path) -> bool:
        """Whether the match ends what began there and has taken this path."""
        if start < self._before or (self._same_start and start == self._start):
            return True
        return bool(self._events) and not self._events.isdisjoint(events_of(path))
