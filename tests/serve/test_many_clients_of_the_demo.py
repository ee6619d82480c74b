"""Many clients look on while the demo runs: simulator, Spark, log, and one server for all of them.

Four hundred, since tests share two cores; TIDEWHEEL_TEST_CLIENTS=1000 for a thousand, as `make bench` has them.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from statistics import median
from typing import Any

import httpx
import pytest

from tests.serve.many_clients import Crowd, assert_at_most_ten_a_second
from tests.support.command import Running, eventually, map_address

pytestmark = pytest.mark.long

SLOW = 40
FAST = int(os.environ.get("TIDEWHEEL_TEST_CLIENTS", "400")) - SLOW
DEMO = ["demo", "--job", "vehicle-cell", "--port", 0, "--no-open"]
QUEUE = 1 << 20
"""More bytes than the sockets hold for a client that does not read, and the one frame that may wait behind them."""


@pytest.mark.slow
def test_all_keep_up_with_the_demo_and_slow_ones_are_given_the_latest_state(tmp_path):
    with Running(*DEMO, "--log", tmp_path / "demo.tw") as demo:
        url = map_address(demo)
        eventually(lambda: len(view(url)["shown"]) > 100, "the first results are shown")
        with Crowd(url, fast=FAST, slow=SLOW) as crowd:
            assert metric(url, "clients") == FAST + SLOW
            eventually(lambda: least("updates", *crowd.figures().values()) > 0, "all have got an update")
            crowd.pause()
            before, resident = crowd.figures()["fast"], metric(url, "resident_bytes")
            more = least("update_bytes", before) + QUEUE
            eventually(lambda: least("update_bytes", crowd.figures()["fast"]) > more, "the fast ones are sent more")
            after, grown = crowd.figures()["fast"], metric(url, "resident_bytes") - resident
            assert metric(url, "clients_behind") >= SLOW
            crowd.resume()
            earlier = view(url)
            views = crowd.views(after=earlier["now"])
            later = view(url)
            figures = crowd.figures()
            demo.end(signal.SIGINT)
            crowd.wait()
        eventually(lambda: not demo.processes(), "no process is left behind", timeout=60)

    for kind, clients in figures.items():
        print(f"{len(clients)} {kind} clients: {summed_up(clients)}")
    print(f"memory of the server while the slow ones did not read: {grown / 1e6:+.1f} MB, of {resident / 1e6:.0f} MB")
    print(f"left for a slow one to read: at most {max(each['stale_bytes'] for each in figures['slow']) / 1e3:.0f} kB")

    assert sum(each["clients"] for shown in views.values() for each in shown) == FAST + SLOW
    same = [key for key, item in earlier["shown"].items() if later["shown"].get(key) == item]
    print(f"{len(same)} of {len(earlier['shown'])} vehicles had no news while all views were looked at")
    for each in (*views["fast"], *views["slow"]):
        assert {key: each["shown"].get(key) for key in same} == {key: earlier["shown"][key] for key in same}
        assert_between(each, earlier, later)
    assert_at_most_ten_a_second(figures)
    assert grown < SLOW * QUEUE, "what the slow ones have missed is kept for them"
    missed = min(now["updates"] - then["updates"] for now, then in zip(after, before, strict=True))
    for each in figures["slow"]:
        assert each["fresh_id"] is None, "the latest state came without being asked for"
        assert each["stale_bytes"] < QUEUE
        assert each["stale_updates"] < missed


def assert_between(client: dict[str, Any], earlier: dict[str, Any], later: dict[str, Any]) -> None:
    """What a client shows is not older than what the server said before, and not newer than what it said after."""
    shown = client["shown"]
    for key, item in earlier["shown"].items():
        assert item["x"] <= client["as_of"] or shown[key]["t"] >= item["t"], f"{key} is older than the server's"
    for key, item in shown.items():
        assert item["x"] <= later["now"] or later["shown"][key]["t"] >= item["t"], f"{key} is not the server's"


def view(url: str) -> dict[str, Any]:
    """What the server shows over HTTP; nothing as long as there is no layer."""
    reported = httpx.get(f"{url}/api/view", timeout=60).json()
    return {"now": reported["now"], "shown": {item["k"]: item for item in reported["layers"].get("vehicles", ())}}


def metric(url: str, name: str) -> float:
    (value,) = re.findall(
        rf"^tidewheel_serve_{name} (\S+)$", httpx.get(f"{url}/metrics", timeout=60).text, re.MULTILINE
    )
    return float(value)


def least(name: str, *kinds: Sequence[dict[str, int]]) -> int:
    return min(each[name] for clients in kinds for each in clients)


def summed_up(clients: Sequence[dict[str, int]]) -> str:
    """Frames and bytes a client: the least, the median and the most."""
    reported = []
    for name in ("frames", "updates", "snapshots", "bytes"):
        numbers = [each[name] for each in clients]
        reported.append(f"{name} {min(numbers):,} – {median(numbers):,.0f} – {max(numbers):,}")
    seconds = [(each["last"] - each["first"]) / 1_000 for each in clients]
    frames = median(each["frames"] / length for each, length in zip(clients, seconds, strict=True))
    size = median(each["bytes"] / length for each, length in zip(clients, seconds, strict=True))
    reported.append(f"{frames:.1f} frames/s and {size / 1e3:.0f} kB/s over {median(seconds):.0f} s")
    return ", ".join(reported) + f", never more than {max(each['most'] for each in clients)} with news in a second"
