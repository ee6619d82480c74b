"""The bodies of requests, within a memory budget for all that are being received or waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from tidewheel.ingest.http.framing import Gunzip
from tidewheel.ingest.http.producers import RefusedError

__all__ = ["Bodies", "Body", "decompress"]

_GZIP_STEP = 4 << 10
_BODIES = 4
"""All bodies that are read or wait take at most so many times the size of the largest."""


class Body:
    """The body of a request, from its first byte until the request is answered."""

    def __init__(self) -> None:
        self.task = asyncio.current_task()
        self.size = 0
        self.given_up = False


class Bodies:
    """The budget for bodies of at most `limit` bytes each. Used by the server's thread only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._on_their_way: dict[Body, None] = {}

    @contextmanager
    def room(self) -> Iterator[Body]:
        """Room for a body, until its request is answered."""
        body = Body()
        try:
            yield body
        finally:
            self._on_their_way.pop(body, None)
            self._held -= body.size

    async def read(self, request: Request, body: Body) -> bytes:
        """Read a body to its end."""
        announced = request.headers.get("content-length", "0")
        if int(announced) > self._limit:
            raise RefusedError(413, f"the body has {announced} bytes, at most {self._limit} are taken")
        self._on_their_way[body] = None
        try:
            content = await self._read(request, body)
        except ClientDisconnect:
            raise RefusedError(408, "the body has not come") from None
        except asyncio.CancelledError:
            if not body.given_up:
                raise
            raise RefusedError(429, "others need the room, and this body was slow to come", retry_after=1) from None
        del self._on_their_way[body]
        return content

    async def _read(self, request: Request, body: Body) -> bytes:
        parts = []
        async for chunk in request.stream():
            if body.size + len(chunk) > self._limit:
                raise RefusedError(413, f"the body has more than {self._limit} bytes")
            body.size += len(chunk)
            self._held += len(chunk)
            parts.append(chunk)
            self._make_room(body)
        return b"".join(parts)

    def _make_room(self, newest: Body) -> None:
        """Memory for this body: where it is not enough, the one that has been on its way for longest is given up."""
        most = _BODIES * self._limit
        excess = self._held - most
        for body in list(self._on_their_way):
            if excess <= 0:
                return
            if body is newest:
                continue
            if not body.given_up and body.task is not None:
                body.given_up = True
                body.task.cancel()
            excess -= body.size
        if excess > 0:
            raise RefusedError(429, f"requests of {most} bytes wait already", retry_after=1)


def decompress(body: bytes, *, limit: int) -> bytes:
    """Decompress a gzip body, up to a number of bytes."""
    opener = Gunzip(limit=limit)
    # In pieces: what follows a member is copied once for each, and a body may be made of a million of them.
    parts = [opener.feed(body[start : start + _GZIP_STEP]) for start in range(0, len(body), _GZIP_STEP)]
    opener.end()
    return b"".join(parts)
