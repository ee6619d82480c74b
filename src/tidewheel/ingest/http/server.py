"""Shared parts of the HTTP servers of ingestion and of the live map: listening and admission."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from tidewheel.errors import SetupError
from tidewheel.ingest.http.connections import Connections
from tidewheel.ingest.http.protocol import LiveSocket, http_protocol

__all__ = ["HttpServer", "listen"]

_BACKLOG = 4_096
_PONG_SECONDS = 90.0
_AT_ONCE = 64
"""Connections that are accepted before anything else is looked at: each is an open file until it is."""


class HttpServer(uvicorn.Server):
    """A server within the limits of `connections`; the path `health` is answered also when these are reached."""

    def __init__(
        self,
        app: Any,
        *,
        connections: Connections,
        health: str,
        websockets: bool = False,
        **options: Any,
    ) -> None:
        self.connections = connections
        super().__init__(
            uvicorn.Config(
                app,
                http=http_protocol(connections, health=health),
                ws=LiveSocket if websockets else "none",
                backlog=_AT_ONCE,
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                # Of a client that does not read, only the latest state is kept: a busy one may take its time.
                ws_ping_timeout=_PONG_SECONDS,
                **options,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(_BACKLOG)  # how many may wait in line does not bound how many are let in at once


def listen(host: str, port: int, *, fix: str) -> socket.socket:
    """A listening socket; `fix` completes the error message if it cannot be opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SetupError(f"cannot listen at {host} port {port}: {reason}; {fix}") from None
    # asyncio sets it only on sockets that name their protocol; without it every small answer takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
