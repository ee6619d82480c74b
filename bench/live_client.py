"""Clients of the live stream that cost so little that a thousand of them fit into a process beside the server."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

__all__ = ["LiveClient", "allow_files", "join"]

_AT_ONCE = 50
_TEXT, _PING, _PONG = 1, 9, 10
_MASK = b"\0\0\0\0"
_HANDSHAKE = (
    "GET /api/live HTTP/1.1\r\nHost: {0}:{1}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class LiveClient(asyncio.Protocol):
    """A WebSocket that subscribes and hands every message to `received`, which says what to make of it."""

    transport: asyncio.Transport

    def __init__(self, subscription: Mapping[str, Any]) -> None:
        self._subscribe = json.dumps({"type": "subscribe", **subscription}).encode()
        self._buffer = bytearray()
        self._open = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the first snapshot is there."""
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection has ended."""

    def received(self, content: bytes) -> None:
        """A message has come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a WebSocket."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(_HANDSHAKE.format(*transport.get_extra_info("peername")).encode())

    def data_received(self, data: bytes) -> None:
        """Take frames apart."""
        self._buffer += data
        if not self._open:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            if b" 101 " not in self._buffer[:end]:
                self.ready.set_exception(RuntimeError(bytes(self._buffer[:end]).decode()))
                return
            del self._buffer[: end + 4]
            self._open = True
            self.transport.write(_masked(_TEXT, self._subscribe))
        while (frame := self._next()) is not None:
            kind, content = frame
            if kind == _PING:
                self.transport.write(_masked(_PONG, content))
            elif kind == _TEXT:
                if not self.ready.done() and content.startswith(b'{"type":"snapshot"'):
                    self.ready.set_result(None)
                self.received(content)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell whoever waits."""
        if not self.ready.done():
            self.ready.set_exception(error or ConnectionError("the server ended the connection"))
        self.gone.set_result(None)

    def _next(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, begin = buffer[1] & 0x7F, 2
        if size >= 126:
            begin = 4 if size == 126 else 10
            size = int.from_bytes(buffer[2:begin], "big") if len(buffer) >= begin else 1 << 60
        if len(buffer) < begin + size:
            return None
        kind, content = buffer[0] & 0x0F, bytes(buffer[begin : begin + size])
        del buffer[: begin + size]
        return kind, content


async def join(url: str, clients: Sequence[LiveClient], *, receive_buffer: int | None = None) -> None:
    """Connect them all, a few at a time, until each has its first snapshot."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    for first in range(0, len(clients), _AT_ONCE):
        some = clients[first : first + _AT_ONCE]
        for each in some:
            raw = socket.socket()
            if receive_buffer is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            raw.setblocking(False)
            await loop.sock_connect(raw, (str(parts.hostname), int(parts.port or 80)))
            await loop.create_connection(lambda each=each: each, sock=raw)  # type: ignore[misc]
        await asyncio.gather(*(each.ready for each in some))


def allow_files() -> None:
    """Every client is an open file: allow as many as the system does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _masked(kind: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2, "big")
    return bytes([0x80 | kind]) + length + _MASK + content
