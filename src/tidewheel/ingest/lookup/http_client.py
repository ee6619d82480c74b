"""An HTTP client for lookup providers: one request at a time, bounded in size, that can be cancelled at any moment."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from tidewheel.errors import DefinitionError, SetupError
from tidewheel.ingest.lookup.provider import ProviderError

try:
    import httpx
except ImportError as error:
    raise SetupError("HTTP lookups need the package httpx; get it with: pip install 'tidewheel[lookup]'") from error

__all__ = ["HttpResponse", "check_url", "post"]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The answer of a server. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def check_url(url: str) -> None:
    """Refuse what is not the address of a web service."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DefinitionError(f"expected an address like https://host/path, got {url!r}")


@lru_cache(maxsize=1)
def _tls_context(process: int) -> ssl.SSLContext:
    """Load the system's trusted certificates, once per process: that takes longer than a request. A forked process
    loads its own, since OpenSSL's state must not be shared."""
    return ssl.create_default_context()


async def post(url: str, body: bytes, *, headers: Mapping[str, str], max_bytes: int = 1 << 20) -> HttpResponse:
    """Send a POST request and return the answer, whatever its status. The caller limits the time.

    Raises `ProviderError` if the server cannot be reached, breaks off, or sends more than `max_bytes`.
    """
    connections: list[Any] = []

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            connections.append(info["return_value"])

    context = _tls_context(os.getpid())
    given = {**headers, "Accept-Encoding": "identity", "Connection": "close"}
    try:
        async with (
            httpx.AsyncClient(verify=context, timeout=None) as client,
            client.stream("POST", url, content=body, headers=given, extensions={"trace": trace}) as response,
        ):
            received = bytearray()
            async for chunk in response.aiter_raw():
                received += chunk
                if len(received) > max_bytes:
                    raise ProviderError(f"the service's answer is longer than {max_bytes:,} bytes")
            return HttpResponse(response.status_code, dict(response.headers), bytes(received))
    except httpx.HTTPError as error:
        # The kind alone, without addresses, so that failures of one kind can be counted.
        raise ProviderError(f"the service cannot be reached: {type(_cause(error)).__name__}") from error
    finally:
        # httpx 0.28 leaves a connection open if the request is cancelled in the TLS handshake: a service that hangs
        # there would collect more and more of them.
        for connection in connections:
            await connection.aclose()


def _cause(error: BaseException) -> BaseException:
    """The error at the bottom of a chain: `ConnectionRefusedError` says more than httpx's `ConnectError`."""
    while (deeper := error.__cause__ or error.__context__) is not None:
        error = deeper
    return error
