"""The interface of what answers lookups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tidewheel.model.process.lookup import Key

__all__ = ["Provider", "ProviderError"]


class ProviderError(Exception):
    """A request could not be answered this time; the text is the reason that is written down.

    `again`: is another attempt worth it? `after`: not before so many seconds, as the service asks. `healthy`: the fault
    is the request's, not the service's, so it does not count against it.
    """

    def __init__(self, reason: str, *, again: bool = True, after: float = 0.0, healthy: bool = False) -> None:
        super().__init__(reason)
        self.again = again
        self.after = after
        self.healthy = healthy


class Provider(Protocol):
    """Answers requests, many at a time: a service, files, a table."""

    async def ask(self, key: Key) -> Mapping[str, Any] | None:
        """Return the columns of the answer; None if there is none. Anything raised is a failure of this attempt. The
        call may be cancelled at any time."""
