"""The last request of each HTTP client, so that a repeated request is not taken twice.

It is kept in the log, in the same transaction as the messages. As many producers are remembered as `most` says. One
that has written nothing for longer than `expiry` may be forgotten when a new one needs its place, and that is counted;
where there is no such one, the new one is refused: to forget another instead would let its repeats in.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidewheel.ingest.ingest_pb2 import HttpState
from tidewheel.model.time import Duration, Instant
from tidewheel.model.time import now as wall_clock

__all__ = ["Producers", "RefusedError", "Turn", "parse_turn"]

_logger = logging.getLogger(__name__)
_NAME = re.compile(r"[\x21-\x7e]{1,100}")
_FIRST = 2**62
_JUMP = 2**56
"""No number is so far from the last that none would be left after a few such jumps; a clock in nanoseconds, which some
producers number by, takes two years to come so far."""
_HIGHEST = 2**63 - 1


class RefusedError(Exception):
    """A request that is answered without being delivered."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None, **more: Any) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after
        self.more = more


@dataclass(frozen=True, slots=True)
class Turn:
    """A request of a producer."""

    name: str
    sequence: int
    digest: bytes

    @classmethod
    def of(cls, name: str, sequence: int, body: bytes, content_type: str) -> Turn:
        """Make it with the digest of the request's content."""
        return cls(name, sequence, hashlib.blake2b(body, digest_size=16, key=content_type.encode()).digest())


def parse_turn(headers: Mapping[str, str]) -> tuple[str, int] | None:
    """Name and sequence number that a request brings, if any."""
    name, sequence = headers.get("tidewheel-producer"), headers.get("tidewheel-sequence")
    if name is None and sequence is None:
        return None
    if name is None or sequence is None:
        raise RefusedError(400, "Tidewheel-Producer and Tidewheel-Sequence belong together; send both or none")
    if not _NAME.fullmatch(name):
        raise RefusedError(400, "Tidewheel-Producer must be 1 to 100 visible ASCII characters without spaces")
    if not re.fullmatch(r"[0-9]{1,19}", sequence) or int(sequence) > _HIGHEST:
        raise RefusedError(400, f"Tidewheel-Sequence must be a number from 0 to {_HIGHEST}, got {sequence!r:.100}")
    return name, int(sequence)


class Producers:
    """The producers of one source.

    >>> producers = Producers(most=1, expiry=1_000, clock=lambda: 5)
    >>> producers.load(b"")
    >>> state = producers.note(Turn("bus", 7, b"digest"), HttpState.Outcome(accepted=2))
    >>> producers.is_repeated(Turn("bus", 7, b"digest")), producers.is_repeated(Turn("bus", 8, b"digest"))
    (True, False)
    >>> producers.outcome("bus").accepted
    2
    """

    def __init__(self, *, most: int, expiry: Duration, clock: Callable[[], Instant] = wall_clock) -> None:
        self._most = most
        self._expiry = expiry
        self._clock = clock
        self._clients: dict[str, HttpState.Client] = {}
        """The one that wrote last at the end."""
        self.known = False
        """Whether it is known what the log has."""
        self._forgotten = 0
        self._refused = 0

    def load(self, state: bytes) -> None:
        """Load what the log has."""
        now = self._clock()
        self._clients = {}
        for client in HttpState.FromString(state).clients:
            if not client.written_at:
                client.written_at = now
            self._clients[client.name] = client
        self.known = True

    def forget(self) -> None:
        """Mark the contents of the log as unknown."""
        self.known = False

    def counts(self) -> dict[str, int]:
        """Count the producers that are remembered, and those that were refused or forgotten since the start."""
        return {"remembered": len(self._clients), "refused": self._refused, "forgotten": self._forgotten}

    def is_repeated(self, turn: Turn) -> bool:
        """Whether the log has this request already; `RefusedError` if it cannot be taken at all."""
        last = self._clients.get(turn.name)
        if last is None:
            if turn.sequence > _FIRST:
                raise RefusedError(400, f"a producer's first sequence number is at most {_FIRST}, got {turn.sequence}")
            self._check_room(turn.name)
            return False
        if turn.sequence > last.sequence + _JUMP:
            raise RefusedError(
                400,
                f"producer {turn.name} has used {last.sequence} last, and {turn.sequence} is more than {_JUMP} above "
                "that: go on from there, or use another name",
                last_sequence=last.sequence,
            )
        if turn.sequence > last.sequence:
            return False
        if turn.sequence == last.sequence and turn.digest == last.digest:
            return True
        raise RefusedError(
            409,
            f"producer {turn.name} has used sequence number {last.sequence} already, and this is not that request "
            "again; send one request at a time, with rising numbers",
            last_sequence=last.sequence,
        )

    def outcome(self, name: str) -> HttpState.Outcome | None:
        """The outcome of a producer's last request; None if it was not recorded."""
        last = self._clients.get(name)
        return last.outcome if last is not None and last.HasField("outcome") else None

    def note(self, turn: Turn, outcome: HttpState.Outcome) -> bytes:
        """Return the state for the log once it has this request, with its outcome."""
        if turn.name not in self._clients and len(self._clients) >= self._most:  # as `is_repeated` has allowed
            oldest = next(iter(self._clients))
            del self._clients[oldest]
            self._forgotten += 1
            _logger.warning("producer %s has not written for long, and is forgotten for %s", oldest, turn.name)
        self._clients.pop(turn.name, None)
        self._clients[turn.name] = HttpState.Client(
            name=turn.name, sequence=turn.sequence, digest=turn.digest, written_at=self._clock(), outcome=outcome
        )
        return HttpState(clients=self._clients.values()).SerializeToString()

    def _check_room(self, name: str) -> None:
        oldest = next(iter(self._clients.values()), None)
        if len(self._clients) < self._most or oldest is None:
            return
        if self._clock() - oldest.written_at > self._expiry:
            return
        self._refused += 1
        if self._refused == 1:
            _logger.warning("producer %s is refused: %d are remembered, and none may be forgotten", name, self._most)
        raise RefusedError(
            429,
            f"{len(self._clients)} producers are remembered here, and all have written in the last "
            f"{self._expiry // 3_600_000_000} h: use one of their names, send without a producer's name, or let the "
            "server remember more (--max-producers)",
            retry_after=3_600,
        )
