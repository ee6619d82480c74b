"""Clients of the live view in a process of their own: `python -m tidewheel.bench.serve_clients URL COUNT KIND EXPIRY`.

They subscribe to the vehicles: KIND `same` all to the same, `own` each to a region of its own. A line on standard
input begins the measurement, the next one ends it; then a line of JSON tells what was received. So that a thousand of
them fit beside the server, a frame is looked at no further than its first item: its expiry tells when it was appended.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import sys
import time
from urllib.parse import urlsplit

from tidewheel.bench.figures import percentiles

__all__ = ["Receiver", "main"]

_EXPIRES = re.compile(rb'"x":(\d+)')
_MASK = b"\0\0\0\0"
_HANDSHAKE = (
    "GET /api/live HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Receiver(asyncio.Protocol):
    """A client that only counts."""

    def __init__(self, host: str, subscribe: bytes, expiry: int) -> None:
        self._host = host
        self._subscribe = subscribe
        self._expiry = expiry
        self._buffer = bytearray()
        self._open = False
        self.ready = asyncio.get_running_loop().create_future()
        self.measuring = False
        self.frames = 0
        self.bytes = 0
        self.snapshots = 0
        self.latencies: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a WebSocket, and subscribe without waiting for the answer."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(_HANDSHAKE.format(host=self._host).encode())

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
            size = len(self._subscribe)
            self.transport.write(bytes([0x81, 0x80 | 126]) + size.to_bytes(2, "big") + _MASK + self._subscribe)
        while (frame := self._next()) is not None:
            self._look(frame)

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

    def _look(self, frame: tuple[int, bytes]) -> None:
        kind, content = frame
        if kind == 9:
            self.transport.write(bytes([0x8A, 0x80 | len(content)]) + _MASK + content)
        if content.startswith(b'{"type":"snapshot"'):
            if not self.ready.done():
                self.ready.set_result(None)
            self.snapshots += self.measuring
        if not self.measuring:
            return
        self.frames += 1
        self.bytes += len(content)
        if content.startswith(b'{"type":"update"') and (found := _EXPIRES.search(content)) is not None:
            self.latencies.append(time.time() * 1_000 - (int(found[1]) - self._expiry))


async def _run(url: str, count: int, kind: str, expiry: int) -> None:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    clients: list[Receiver] = []
    for number in range(count):
        # Half of the vehicles, others for each.
        west = 24.0 + number / (4 * count) if kind == "own" else 0.0
        region = [west, 60.0, west + 0.25, 61.0] if kind == "own" else None
        message = {"type": "subscribe", "id": number, "layers": ["vehicles"], "region": region, "padding": " " * 126}
        _, client = await loop.create_connection(
            lambda message=message: Receiver(parts.netloc, json.dumps(message).encode(), expiry),  # type: ignore[misc]
            str(parts.hostname),
            int(parts.port or 80),
        )
        clients.append(client)
        if number % 50 == 49:
            await asyncio.gather(*(each.ready for each in clients[-50:]))
    await asyncio.gather(*(each.ready for each in clients))
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    began, cpu = time.monotonic(), time.process_time()
    for each in clients:
        each.measuring = True
    await loop.run_in_executor(None, sys.stdin.readline)
    for each in clients:
        each.measuring = False
    seconds = time.monotonic() - began
    latencies = [latency for each in clients for latency in each.latencies]
    p50, p99 = percentiles(latencies)
    told = {
        "p50": p50,
        "p99": p99,
        "frames": sum(each.frames for each in clients) / count / seconds,
        "bytes": sum(each.bytes for each in clients) / count / seconds,
        "snapshots": sum(each.snapshots for each in clients),
        "cpu": 100 * (time.process_time() - cpu) / seconds,
    }
    print(json.dumps(told), flush=True)


def main(arguments: list[str]) -> None:
    """Connect, measure, tell."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    url, count, kind, expiry = arguments
    asyncio.run(_run(url, int(count), kind, int(expiry)))


if __name__ == "__main__":
    main(sys.argv[1:])
