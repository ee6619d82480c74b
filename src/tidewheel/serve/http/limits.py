"""The limits of a server: no client can make it grow without bounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from tidewheel.errors import DefinitionError

__all__ = ["ServeLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimits:
    """The bounds of a server.

    >>> ServeLimits(clients=0)
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: the limit clients must be a whole number of at least 1, got 0
    """

    clients: int = 5_000
    """Connected to the live stream at a time."""
    connections: int = 6_000
    """Connections at a time, those of clients included."""
    connections_per_address: int = 3_000
    """Connections of one address at a time."""
    subscriptions: int = 2_000
    """Different ones at a time, over all clients; equal ones are one."""
    keys: int = 50_000
    """Results shown of a layer at a time, one for each key."""
    message: int = 65_536
    """Bytes of a client's message."""
    layers: int = 64
    """Layers in a subscription."""
    filters: int = 16
    """Fields that a subscription filters by."""
    values: int = 256
    """Values that a filter allows."""
    errors: int = 20
    """Messages of a client that make no sense before it is cut off."""
    history_bytes: int = 256 << 20
    """What the last hour of results may take in memory; the oldest leave first."""
    points: int = 10_000
    """Points of a history, and alerts of a list, in one answer."""
    answer_bytes: int = 256 << 20
    """Of answers that are made or on their way, together."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise DefinitionError(f"the limit {each.name} must be a whole number of at least 1, got {value!r}")

    def for_clients(self) -> dict[str, int]:
        """The limits that are sent to clients."""
        own = ("history_bytes", "answer_bytes", "connections", "connections_per_address")
        return {name: value for name, value in asdict(self).items() if name not in own}
