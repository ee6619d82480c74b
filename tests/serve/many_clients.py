"""Many clients in a process of their own, fast and slow readers: `Crowd` starts it and talks to it line by line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from bench.live_client import LiveClient, allow_files, join
from tests import ROOT

LAYER = "vehicles"
_SLOW_BUFFER = 16_384
_LOOK_SECONDS = 0.05

Items = dict[str, dict[str, Any]]


class Crowd:
    """The clients, as a test sees them. All see the vehicles; the fast ones only what the filters let through."""

    def __init__(self, url: str, *, fast: int, slow: int, filters: Mapping[str, Sequence[str]] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.many_clients", url, str(fast), str(slow), json.dumps(filters or {})],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=ROOT,
        )  # fmt: skip
        assert self._answer() == "all have their snapshot"

    def pause(self) -> None:
        """The slow ones stop reading."""
        self._ask("pause")

    def resume(self) -> None:
        """The slow ones read on."""
        self._ask("resume")

    def figures(self) -> dict[str, list[dict[str, int]]]:
        """What each of the `fast` and each of the `slow` ones was sent."""
        return self._ask("figures")

    def views(self, *, after: int) -> dict[str, list[dict[str, Any]]]:
        """What the `fast` and the `slow` ones show, and how many show the same, once all are past this moment (ms)."""
        return self._ask("views", after)

    def _ask(self, *words: object) -> Any:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the clients ended with exit code {self._process.wait()}"
        return json.loads(line)

    def wait(self) -> None:
        """Until the server has ended the connection of each."""
        out, _ = self._process.communicate(timeout=60)
        assert (out, self._process.returncode) == ("", 0)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def assert_at_most_ten_a_second(figures: Mapping[str, Sequence[Mapping[str, int]]]) -> None:
    """By the server's clock, which each frame tells; one more if the clock was read a bit late for the first."""
    assert max(each["most"] for each in (*figures["fast"], *figures["slow"])) <= 10 + 1


class Follower(LiveClient):
    """A client that counts what it was sent."""

    def __init__(self, filters: Mapping[str, Sequence[str]]) -> None:
        super().__init__({"id": 1, "layers": [LAYER], "filters": filters})
        self.shown: Items = {}
        self.as_of = 0
        """The server's time (ms) up to which all that happened is shown."""
        self.reported = {"frames": 0, "bytes": 0, "snapshots": 0, "updates": 0, "update_bytes": 0}
        self.reported |= {"first": 0, "last": 0, "most": 0}
        self._second: deque[int] = deque()
        self._status_at = 0
        self._resumed = 0

    def pause(self) -> None:
        self.transport.pause_reading()

    def resume(self) -> None:
        """From here on it counts what had been waiting for it, until the snapshot that brings it up to date."""
        self._resumed = time.time_ns() // 1_000_000
        self.reported |= {"stale_updates": 0, "stale_bytes": 0, "fresh_id": 0}
        self.transport.resume_reading()

    def received(self, content: bytes) -> None:
        kind, now, id, shown, gone = decoded(content)
        self.reported["frames"] += 1
        self.reported["bytes"] += len(content)
        if kind == "status":  # what had changed by the last one came right behind that
            self.as_of, self._status_at = max(self.as_of, self._status_at), now
        if self._resumed:
            if kind == "snapshot" and now >= self._resumed:
                self.reported["fresh_id"] = id
                self._resumed = 0
            else:
                self.reported["stale_bytes"] += len(content)
                self.reported["stale_updates"] += kind == "update"
        if kind not in ("snapshot", "update"):
            return
        self.reported[f"{kind}s"] += 1
        self.reported["first"] = self.reported["first"] or now
        self.reported["last"] = self.as_of = now
        self._second.append(now)
        while self._second[0] <= now - 1_000:
            self._second.popleft()
        self.reported["most"] = max(self.reported["most"], len(self._second))
        if kind == "snapshot":
            self.shown = dict(shown)
        else:
            self.reported["update_bytes"] += len(content)
            self.shown |= shown
            for key in gone:
                del self.shown[key]  # a key that is not shown cannot go


@lru_cache(maxsize=64)
def decoded(content: bytes) -> tuple[str, int, Any, Items, list[str]]:
    """Who sees the same is sent the same: once for all of them."""
    message = msgspec.json.decode(content)
    shown = message.get("changed" if message["type"] == "update" else "layers", {})
    items = shown.get(LAYER, []) if isinstance(shown, dict) else []
    gone = message["gone"].get(LAYER, []) if "gone" in message else []
    return message["type"], message.get("now", 0), message.get("id"), {item["k"]: item for item in items}, gone


def distinct(clients: Sequence[Follower]) -> list[dict[str, Any]]:
    """The views that there are, each once."""
    found: list[dict[str, Any]] = []
    for client in clients:
        same = (view for view in found if view["as_of"] == client.as_of and view["shown"] == client.shown)
        if (view := next(same, None)) is not None:
            view["clients"] += 1
        else:
            found.append({"clients": 1, "as_of": client.as_of, "shown": client.shown})
    return found


async def main(url: str, fast: int, slow: int, filters: Mapping[str, Sequence[str]]) -> None:
    loop = asyncio.get_running_loop()
    quick, idle = [Follower(filters) for _ in range(fast)], [Follower({}) for _ in range(slow)]
    everybody = [*quick, *idle]
    await join(url, quick)
    await join(url, idle, receive_buffer=_SLOW_BUFFER)
    answer: Any = "all have their snapshot"
    while True:
        print(json.dumps(answer), flush=True)
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if not line:
            break
        command, *words = line.split()
        answer = None
        if command == "pause":
            for each in idle:
                each.pause()
        elif command == "resume":
            for each in idle:
                each.resume()
        elif command == "figures":
            answer = {"fast": [each.reported for each in quick], "slow": [each.reported for each in idle]}
        elif command == "views":
            while min(each.as_of for each in everybody) <= int(words[0]):
                assert not any(each.gone.done() for each in everybody), "a client has lost its connection"
                await asyncio.sleep(_LOOK_SECONDS)
            answer = {"fast": distinct(quick), "slow": distinct(idle)}
    await asyncio.gather(*(each.gone for each in everybody))


if __name__ == "__main__":
    allow_files()
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])))
