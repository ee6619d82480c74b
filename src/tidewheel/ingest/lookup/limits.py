"""The limits of a lookup worker: concurrency, time and memory."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tidewheel.errors import DefinitionError
from tidewheel.model.time import Duration, duration, format_duration

__all__ = ["Limits"]

_DURATIONS = ("timeout", "attempt_timeout", "backoff", "cache_age", "retry_failed", "retry_unknown", "breaker_pause")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a lookup worker.

    >>> Limits(timeout="2 s", attempt_timeout="1 s").timeout
    2000000
    """

    concurrency: int = 50
    """The number of requests at a time."""
    waiting: int = 10_000
    """The number of requests that may be open; beyond it no more events are read until some are done."""
    timeout: Duration | str = "5 s"
    """From the first attempt of a request to its outcome, at most."""
    attempt_timeout: Duration | str = "2 s"
    """One attempt, at most."""
    attempts: int = 4
    """The number of attempts for one request, at most."""
    backoff: Duration | str = "100 ms"
    """Before the second attempt; doubled before each further one. Chance takes away up to half of it."""
    cache_size: int = 100_000
    """So many outcomes are remembered; those that were not asked for the longest are forgotten."""
    cache_age: Duration | str = "6 h"
    """An answer is asked for again after so long, by the clock or in event time. Jobs keep it longer than that."""
    retry_failed: Duration | str = "10 s"
    """A request that failed is made again after so long, when an event needs it."""
    retry_unknown: Duration | str = "10 min"
    """Likewise if the service said that there is no answer."""
    breaker_failures: int = 10
    """After so many failures in a row the service is left alone ..."""
    breaker_pause: Duration | str = "5 s"
    """... for so long, and for twice as long each time that a trial fails, up to twelve times this."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in _DURATIONS:
                value = duration(value, what=f"{each.name} of a lookup's limits", bare=True)
                object.__setattr__(self, each.name, value)
                if value <= 0:
                    raise DefinitionError(
                        f"lookup limits: {each.name} must be greater than 0, got {format_duration(value)}"
                    )
            elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DefinitionError(f"lookup limits: {each.name} must be a whole number from 1 on, got {value!r}")
        if self.waiting < self.concurrency:
            raise DefinitionError(
                f"lookup limits: waiting ({self.waiting}) must be at least concurrency ({self.concurrency})"
            )

    def seconds(self, name: str) -> float:
        """A duration in seconds, as asyncio takes it."""
        return float(getattr(self, name)) / 1_000_000
