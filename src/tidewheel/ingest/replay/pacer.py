"""Do things at their time, faster or slower than it passes, with a clock that tests can control."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidewheel.errors import DefinitionError
from tidewheel.model.time import Duration, Instant, now

__all__ = ["Pacer"]


class Pacer:
    """Makes instants of a story (a recording, a simulation) come true against a clock.

    The clock's time at the first `wait_for` (or `begin`) is when it starts. Behind its time it does not wait, and so
    catches up by itself.

    Args:
        origin: The instant at which the story starts.
        speed: How many times as fast as the clock it runs; None: as fast as possible.
        stop: Ends every wait.
        clock: The time, in microseconds; by default that of the machine.
        wait: Waits at most so many seconds and says whether to stop.
    """

    def __init__(
        self,
        origin: Instant,
        *,
        speed: float | None = 1.0,
        stop: threading.Event | None = None,
        clock: Callable[[], Instant] = now,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        if speed is not None and not speed > 0:
            raise DefinitionError(f"speed must be above 0, or None for as fast as possible, got {speed!r}")
        self.origin = origin
        self.speed = speed
        self._stop = stop if stop is not None else threading.Event()
        self._clock = clock
        self._wait = wait if wait is not None else self._stop.wait
        self._began: Instant | None = None

    def begin(self) -> None:
        """Start the story now; without it the first `wait_for` does."""
        self._began = self._clock()

    @property
    def stopped(self) -> bool:
        """Whether the stop event is set."""
        return self._stop.is_set()

    def due(self, moment: Instant) -> Instant:
        """Return when, by the clock, an instant of the story is due; as fast as possible: when the story began."""
        if self._began is None:
            self.begin()
        assert self._began is not None
        return self._began if self.speed is None else self._began + round((moment - self.origin) / self.speed)

    def behind(self, moment: Instant) -> Duration:
        """Return how far the story is behind at this instant, by the clock; 0 if it is not yet due."""
        return 0 if self.speed is None else max(0, self._clock() - self.due(moment))

    def wait_for(self, moment: Instant) -> bool:
        """Wait until an instant of the story is due; returns False if it was stopped meanwhile."""
        due = self.due(moment)
        while not self.stopped:
            ahead = due - self._clock()
            if self.speed is None or ahead <= 0:
                return True
            if self._wait(ahead / 1_000_000):
                return False
        return False
