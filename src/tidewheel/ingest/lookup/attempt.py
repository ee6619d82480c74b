"""One request, from its first attempt to its outcome."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidewheel.errors import MalformedError, panics_as_errors
from tidewheel.ingest.lookup.breaker import Breaker
from tidewheel.ingest.lookup.cache import Kind
from tidewheel.ingest.lookup.limits import Limits
from tidewheel.ingest.lookup.provider import Provider, ProviderError
from tidewheel.model.process.lookup import Key, Lookup
from tidewheel.model.time import format_duration

__all__ = ["BREAKER_OPEN", "UNKNOWN", "Outcome", "LookupAttempts"]

UNKNOWN = "the service knows no answer"
BREAKER_OPEN = "the circuit breaker is open: the service failed too often"
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a lookup: an answer (as text), or the reason why there is none."""

    key: Key
    kind: Kind
    answer: str = ""
    reason: str = ""
    attempts: int = 0


class LookupAttempts:
    """Asks a provider: again after a failure, with growing pauses, but never for longer than the timeout, and not at
    all while the breaker is open. It never raises: whatever happens is an outcome."""

    def __init__(
        self,
        lookup: Lookup,
        provider: Provider,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._lookup = lookup
        self._provider = provider
        self._limits = limits
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self.breaker = Breaker(limits, clock=clock)

    async def ask(self, key: Key) -> Outcome:
        """Ask until there is an outcome."""
        limits = self._limits
        deadline = self._clock() + limits.seconds("timeout")
        pause, attempts, reason = limits.seconds("backoff"), 0, ""
        while attempts < limits.attempts:
            if not self.breaker.allows():
                reason = f"{BREAKER_OPEN} ({reason})" if reason else BREAKER_OPEN
                break
            left = min(deadline - self._clock(), limits.seconds("attempt_timeout"))
            if left <= 0:
                break
            attempts += 1
            wait = pause * (1 - self._chance() / 2)
            try:
                with panics_as_errors():
                    answer = await asyncio.wait_for(self._provider.ask(key), left)
                text = None if answer is None else self._text(answer)
            except asyncio.TimeoutError:
                reason = f"no answer within {format_duration(round(left * 1_000_000))}"
                self.breaker.failed()
            except ProviderError as error:
                reason = str(error)
                self.breaker.worked() if error.healthy else self.breaker.failed()
                if not error.again:
                    break
                wait = max(wait, error.after)
            except Exception as error:  # a fault of the provider's code, which must not stop the other requests
                reason = f"{type(error).__name__}: {error}"
                self.breaker.failed()
            else:
                self.breaker.worked()
                if text is None:
                    return Outcome(key, "unknown", reason=UNKNOWN, attempts=attempts)
                return Outcome(key, "answer", answer=text, attempts=attempts)
            if attempts < limits.attempts:
                if self._clock() + wait >= deadline:
                    break
                await self._sleep(wait)
                pause *= 2
        return Outcome(key, "failed", reason=reason[:_LONGEST_REASON] or "no attempt was made", attempts=attempts)

    def _text(self, answer: Mapping[str, Any]) -> str:
        try:
            return self._lookup.answer_text(answer)
        except MalformedError as error:
            raise ProviderError(str(error), again=False, healthy=True) from None
