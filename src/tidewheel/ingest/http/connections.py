"""The connections of an HTTP server: how many are allowed, and which are closed beyond that.

A connection that has not sent a whole request (silent, half a header, half a body, or idle between two requests) gives
way to a newcomer; one that is being answered never does. So whoever holds connections without asking anything cannot
keep others out. Where nobody can give way, a newcomer is refused, unless it asks for the server's health: for that
there is a reserve.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass

from tidewheel.errors import DefinitionError

__all__ = ["ConnectionLimits", "Connections", "Ticket", "allow_files"]

_OTHER_FILES = 256
"""Open files of a process beside its connections: the log, libraries, standard streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits for clients of an HTTP server.

    >>> ConnectionLimits(connections=10).of_address
    5
    >>> ConnectionLimits(connections=0)
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: connections must be at least 1, got 0
    """

    connections: int = 1_000
    """At a time, in all."""
    per_address: int | None = None
    """At a time, of one address; half of all by default."""
    reserve: int = 32
    """Beyond these, for requests for the server's health."""
    header_seconds: float = 10.0
    """From the connection, or the first byte of a further request, to the end of its headers."""
    body_seconds: float = 30.0
    """From there to the end of the body."""
    stall_seconds: float = 30.0
    """Without taking anything of an answer."""
    header_bytes: int = 32 << 10
    """Of a request's line and headers together."""
    headers: int = 100
    """Of a request."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            least = 0.001 if name.endswith("seconds") else 1
            if value is not None and value < least:
                raise DefinitionError(f"{name} must be at least {least}, got {value!r}")

    @property
    def of_address(self) -> int:
        """The limit for one address."""
        return max(1, self.connections // 2) if self.per_address is None else self.per_address


class Ticket:
    """One connection in `Connections`."""

    __slots__ = ("address", "drop", "refusal")

    def __init__(self, address: str, drop: Callable[[], object]) -> None:
        self.address = address
        self.drop = drop
        self.refusal: tuple[int, str] | None = None
        """Why it is answered nothing but the server's health: status and reason."""


class Connections:
    """The connections of one server. It is used by the thread of its event loop only.

    >>> connections = Connections(ConnectionLimits(connections=2, per_address=2))
    >>> gone = []
    >>> first, second = (connections.admit("10.0.0.1", lambda name=name: gone.append(name)) for name in "ab")
    >>> connections.asked(first)
    >>> third = connections.admit("10.0.0.1", lambda: gone.append("c"))
    >>> gone, third.refusal, len(connections)
    (['b'], None, 2)
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.most = max(1, min(limits.connections, allow_files(limits.connections + limits.reserve) - limits.reserve))
        """How many there may be: fewer than the limit where the system does not allow so many open files."""
        self.dropped = 0
        """How many had to give way, ever."""
        self.refused = 0
        """How many were answered that there are too many, or not at all, ever."""
        self._open: dict[str, dict[Ticket, None]] = {}
        self._waiting: dict[str, dict[Ticket, None]] = {}
        """Those that have not sent a whole request, by address, the oldest first."""
        self._reserve: dict[Ticket, None] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, address: str, drop: Callable[[], object]) -> Ticket:
        """Admit a new connection; `drop` ends it at once."""
        ticket = Ticket(address, drop)
        most = min(self.limits.of_address, self.most)
        if len(self._open.get(address, ())) >= most and not self._make_room(address):
            ticket.refusal = (429, f"there are {most} connections from your address already; use them, or end some")
        elif self._count >= self.most and not self._make_room():
            ticket.refusal = (503, "this server has as many connections as it takes; try again later")
        if ticket.refusal is None:
            self._open.setdefault(address, {})[ticket] = None
            self._waiting.setdefault(address, {})[ticket] = None
            self._count += 1
            return ticket
        self.refused += 1
        if len(self._reserve) >= self.limits.reserve:
            self._give_way(next(iter(self._reserve)))
        self._reserve[ticket] = None
        return ticket

    def asked(self, ticket: Ticket) -> None:
        """Note that a connection has sent a whole request."""
        _take(self._waiting, ticket)

    def waits(self, ticket: Ticket) -> None:
        """Note that a connection may send another request."""
        if ticket in self._open.get(ticket.address, ()):
            self._waiting.setdefault(ticket.address, {}).setdefault(ticket)

    def release(self, ticket: Ticket) -> None:
        """Note that a connection has ended."""
        self._reserve.pop(ticket, None)
        _take(self._waiting, ticket)
        self._count -= _take(self._open, ticket)

    def _make_room(self, address: str | None = None) -> bool:
        """Close one connection: the oldest of those that wait, of this address, or of the one that has most of them."""
        if address is None:
            address = max(self._waiting, key=lambda each: len(self._waiting[each]), default="")
        waiting = self._waiting.get(address)
        if not waiting:
            return False
        self._give_way(next(iter(waiting)))
        return True

    def _give_way(self, ticket: Ticket) -> None:
        self.dropped += 1
        self.release(ticket)
        ticket.drop()


def _take(tickets: dict[str, dict[Ticket, None]], ticket: Ticket) -> bool:
    """Remove a ticket, if it is among these; returns whether it was."""
    some = tickets.get(ticket.address, {})
    if ticket not in some:
        return False
    del some[ticket]
    if not some:
        del tickets[ticket.address]
    return True


def allow_files(connections: int) -> int:
    """The number of connections that the limit for open files allows; the limit is raised if possible, since every
    connection is an open file and many systems allow only 1,024 by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        soft = max(soft, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    return max(2, soft - _OTHER_FILES, soft // 2)
