"""Many clients in a process of their own: `many_clients.py URL FAST SLOW`.

Fast ones see one route and read at once; of the slow ones, which see everything, none reads until a line comes on
standard input. All read on until they have seen the vehicle 1/0 arrive in the north. Then each tells as a line of JSON
what it shows and how many snapshots it was given.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect

NORTH = 65.0


class Follower:
    """A client that keeps what it was told."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.shown: dict[str, Any] = {}
        self.snapshots = 0
        self.updates = 0

    async def follow(self) -> None:
        async for text in self._connection:
            message = msgspec.json.decode(text)
            if message["type"] == "snapshot":
                self.snapshots += 1
                self.shown = {item["k"]: item["p"] for item in message["layers"]["vehicles"]}
            elif message["type"] == "update":
                self.updates += 1
                self.shown |= {item["k"]: item["p"] for item in message["changed"].get("vehicles", ())}
                for key in message["gone"].get("vehicles", ()):
                    del self.shown[key]
            if self.shown.get("1/0", [0, 0])[1] == NORTH:
                return


async def join(address: str, *, route: str | None) -> Follower:
    parts = urlsplit(address)
    raw = socket.socket()
    if route is None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, (parts.hostname, parts.port))
    connection = await connect(address, sock=raw, max_size=None, max_queue=2, ping_interval=None)
    filters = {} if route is None else {"route": [route]}
    await connection.send(json.dumps({"type": "subscribe", "layers": ["vehicles"], "filters": filters}))
    return Follower(connection)


async def main(url: str, fast: int, slow: int) -> None:
    address = f"{url.replace('http', 'ws', 1)}/api/live"
    gate = asyncio.Semaphore(50)

    async def joined(route: str | None) -> Follower:
        async with gate:
            return await join(address, route=route)

    quick = await asyncio.gather(*(joined("7") for _ in range(fast)))
    following = [asyncio.create_task(each.follow()) for each in quick]
    idle = await asyncio.gather(*(joined(None) for _ in range(slow)))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await asyncio.gather(*following, *(each.follow() for each in idle))
    for kind, clients in (("fast", quick), ("slow", idle)):
        for each in clients:
            told = {"kind": kind, "shown": sorted(each.shown.items()), "snapshots": each.snapshots}
            print(json.dumps({**told, "updates": each.updates}), flush=True)


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
