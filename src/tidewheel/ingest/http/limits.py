"""The limits for clients of the HTTP connector."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from tidewheel.errors import DefinitionError
from tidewheel.ingest.http.connections import ConnectionLimits
from tidewheel.ingest.http.framing import MAX_MESSAGES
from tidewheel.model.time import Duration, duration

__all__ = ["HttpLimits"]

_DURATIONS = ("producer_expiry", "header_timeout", "body_timeout", "unhealthy_after")


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """The limits of an HTTP connector.

    >>> HttpLimits(header_timeout="2 s").seconds("header_timeout")
    2.0
    >>> HttpLimits(waiting=0)
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: HTTP limits: waiting must be a whole number of at least 1, got 0
    """

    body: int = 16 << 20
    """Bytes that a request may have, also when decompressed."""
    message: int = 1 << 20
    """Bytes that a message may have."""
    messages: int = MAX_MESSAGES
    """Messages that a request may have: one request is one delivery."""
    waiting: int = 32
    """Requests that may wait for the log at a time."""
    producers: int = 1_000
    """Producers whose last request is remembered."""
    producer_expiry: str | timedelta = "7 d"
    """A producer that has not written for so long may make room for another."""
    connections: int = 1_000
    """Connections at a time; see `connections` for what becomes of more."""
    connections_per_address: int | None = None
    """Those of one address; half of all by default."""
    header_timeout: str | timedelta = "10 s"
    """Within which the headers of a request must have come."""
    body_timeout: str | timedelta = "30 s"
    """Within which its body must have come."""
    unhealthy_after: str | timedelta = "60 s"
    """`/healthz` is unhealthy when a delivery takes longer."""

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            if name in _DURATIONS:
                duration(value, what=name)
            elif name == "connections_per_address" and value is None:
                continue
            elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise DefinitionError(f"HTTP limits: {name} must be a whole number of at least 1, got {value!r}")

    def micros(self, name: str) -> Duration:
        """A duration in microseconds."""
        return duration(getattr(self, name), what=name)

    def seconds(self, name: str) -> float:
        """A duration in seconds."""
        return self.micros(name) / 1_000_000

    def of_connections(self) -> ConnectionLimits:
        """The limits that concern connections, not their content."""
        return ConnectionLimits(
            connections=self.connections,
            per_address=self.connections_per_address,
            header_seconds=self.seconds("header_timeout"),
            body_seconds=self.seconds("body_timeout"),
        )
