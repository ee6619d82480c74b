"""A circuit breaker: a service that fails all the time is circuit breaker is open."""

from __future__ import annotations

from collections.abc import Callable

from tidewheel.ingest.lookup.limits import Limits

__all__ = ["Breaker"]

_LONGEST = 12


class Breaker:
    """A circuit breaker. While it is closed, every request is allowed. After too many failures in a row it opens for a
    pause. Then one request may try: if it works the breaker closes, if not the next pause is twice as long.

    >>> time = [0.0]
    >>> breaker = Breaker(Limits(breaker_failures=2, breaker_pause="5 s"), clock=lambda: time[0])
    >>> breaker.failed(); breaker.failed(); breaker.allows()
    False
    >>> time[0] = 5.0
    >>> breaker.allows(), breaker.allows()
    (True, False)
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float]) -> None:
        self._limit = limits.breaker_failures
        self._pause = limits.seconds("breaker_pause")
        self._clock = clock
        self._failures = 0
        self._pauses = 0
        self._until: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the service is left alone."""
        return self._until is not None

    def allows(self) -> bool:
        """Whether the service may be asked now; after each pause one trial may."""
        if self._until is None:
            return True
        if self._clock() < self._until:
            return False
        # Taken for a failure until it works: whoever tries may be cancelled and never report.
        self._pauses += 1
        self._until = self._clock() + self._length()
        return True

    def worked(self) -> None:
        """Note that the service answered."""
        self._failures, self._pauses, self._until = 0, 0, None

    def failed(self) -> None:
        """Note that the service did not answer, or with a fault of its own."""
        if self._until is not None:
            return  # what was under way when the breaker opened says nothing new
        self._failures += 1
        if self._failures >= self._limit:
            self._failures = 0
            self._until = self._clock() + self._length()

    def _length(self) -> float:
        return self._pause * min(float(2**self._pauses), float(_LONGEST))
