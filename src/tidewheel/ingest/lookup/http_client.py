"""One HTTP request that can be cancelled at any moment, and leaves nothing open then.

Not done with httpx (0.28): that leaves the connection open if a request is cancelled in its TLS handshake, until the
garbage collector finds it. A service that hangs would be asked over more and more of them.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

from tidewheel.errors import DefinitionError

__all__ = ["HttpResponse", "check_url", "post"]

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Received:
    """What `http.client` takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


def check_url(url: str) -> SplitResult:
    """The parts of an address; `DefinitionError` if it is none that can be asked."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DefinitionError(f"expected an address like https://host/path, got {url!r}")
    return parts


@lru_cache(maxsize=1)
def _trust(process: int) -> ssl.SSLContext:
    """The certificates that a process trusts. To read them takes longer than a request: each would hold up all others.
    A process that was forked reads them itself, as the library's state is not made to be shared."""
    return ssl.create_default_context()


async def post(url: str, body: bytes, *, headers: Mapping[str, str], most: int = 1 << 20) -> HttpResponse:
    """Post a body; the answer may have at most so many bytes. Raises `OSError` if the server cannot be reached, and
    `http.client.HTTPException` if what it sends is no answer. The caller limits the time."""
    parts = check_url(url)
    secure = parts.scheme == "https"
    assert parts.hostname is not None
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        parts.port or (443 if secure else 80),
        ssl=_trust(os.getpid()) if secure else None,
    )
    try:
        lines = {
            "Host": parts.netloc.rpartition("@")[2],
            "Content-Length": str(len(body)),
            "Accept-Encoding": "identity",
            # The end of the connection is the end of the answer: nothing is left open when a question is given up.
            "Connection": "close",
            **headers,
        }
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = f"POST {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(head.encode("latin-1") + b"\r\n" + body)
        await writer.drain()
        received = b""
        while chunk := await reader.read(_CHUNK):
            received += chunk
            if len(received) > most:
                raise http.client.HTTPException(f"the answer is longer than {most:,} bytes")
    finally:
        writer.close()
    response = http.client.HTTPResponse(_Received(received))  # type: ignore[arg-type]  # all that it uses is there
    response.begin()
    return HttpResponse(response.status, dict(response.headers.items()), response.read())
