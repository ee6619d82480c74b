"""Clients of the live view in a process of their own: `python -m bench.serve_clients URL COUNT KIND EXPIRY`.

They subscribe to the vehicles: KIND `same` all to the same, `own` each to a region of its own. A line on standard
input begins the measurement, the next one ends it; then a line of JSON tells what was received. So that a thousand of
them fit beside the server, a frame is looked at no further than its first item: its expiry tells when it was appended.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Mapping
from typing import Any

from bench.figures import percentiles
from bench.live_client import LiveClient, allow_files, join

__all__ = ["Receiver", "main"]

_EXPIRES = re.compile(rb'"x":(\d+)')


class Receiver(LiveClient):
    """A client that only counts."""

    def __init__(self, subscription: Mapping[str, Any], *, expiry: int) -> None:
        super().__init__(subscription)
        self._expiry = expiry
        self.measuring = False
        self.frames = 0
        self.bytes = 0
        self.snapshots = 0
        self.latencies: list[float] = []

    def received(self, content: bytes) -> None:
        """Count it, and look how old it is."""
        if not self.measuring:
            return
        self.frames += 1
        self.bytes += len(content)
        self.snapshots += content.startswith(b'{"type":"snapshot"')
        if content.startswith(b'{"type":"update"') and (found := _EXPIRES.search(content)) is not None:
            self.latencies.append(time.time() * 1_000 - (int(found[1]) - self._expiry))


async def _run(url: str, count: int, kind: str, expiry: int) -> None:
    loop = asyncio.get_running_loop()
    clients: list[Receiver] = []
    for number in range(count):
        # Half of the vehicles, others for each.
        west = 24.0 + number / (4 * count) if kind == "own" else 0.0
        region = [west, 60.0, west + 0.25, 61.0] if kind == "own" else None
        clients.append(Receiver({"id": number, "layers": ["vehicles"], "region": region}, expiry=expiry))
    await join(url, clients)
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
    report = {
        "p50": p50,
        "p99": p99,
        "frames": sum(each.frames for each in clients) / count / seconds,
        "bytes": sum(each.bytes for each in clients) / count / seconds,
        "snapshots": sum(each.snapshots for each in clients),
        "cpu": 100 * (time.process_time() - cpu) / seconds,
    }
    print(json.dumps(report), flush=True)


def main(arguments: list[str]) -> None:
    """Connect, measure, tell."""
    allow_files()
    url, count, kind, expiry = arguments
    asyncio.run(_run(url, int(count), kind, int(expiry)))


if __name__ == "__main__":
    main(sys.argv[1:])
