"""A thousand clients of one server, slow readers among them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from many_clients import NORTH
from serve_support import eventually, vehicles

from tidewheel.serve.layer import Layer, Point

FAST, SLOW = 960, 40
FLEET = 700
ROUNDS = 30
LAYER = Layer(
    topic="analytics.vehicle-cell",
    name="vehicles",
    key=["operator", "vehicle"],
    geometry=Point(),
    show="vehicles",
    filters=["route"],
    expiry=3_600_000,
)


@pytest.mark.slow
def test_all_come_to_the_same_view_and_slow_ones_are_given_the_latest_state(log, start):
    routes = ["7", *(str(number % 50) for number in range(1, FLEET))]
    vehicles(log, *((number, 24.0, 60.0) for number in range(FLEET)), route=routes)
    server = start(layers=[LAYER])
    clients = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("many_clients.py"), server.url, str(FAST), str(SLOW)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert clients.stdout.readline() == "ready\n"
        eventually(lambda: len(server.hub) == FAST + SLOW, "all are in")
        for step in range(1, ROUNDS + 1):
            before = server.hub.frames_sent
            vehicles(log, *((number, 24.0 + step / 100, 60.0) for number in range(FLEET)), route=routes)
            eventually(lambda before=before: server.hub.frames_sent > before, "a tick")
        stuck = "the slow ones, which read nothing, cannot take more, and nobody else waits for them"
        eventually(lambda: sum(client.busy for client in server.hub.clients) == SLOW, stuck)
        lats = [NORTH, *([60.0] * (FLEET - 1))]
        vehicles(log, *((number, 25.0, lats[number]) for number in range(FLEET)), route=routes)
        out, _ = clients.communicate("go\n", timeout=120)
    finally:
        clients.kill()
        clients.wait()
    told = [json.loads(line) for line in out.splitlines()]
    assert len(told) == FAST + SLOW
    view = httpx.get(f"{server.url}/api/view", timeout=20).json()["layers"]["vehicles"]
    everything = sorted([item["k"], item["p"]] for item in view)
    assert len(everything) == FLEET
    route = sorted([item["k"], item["p"]] for item in view if item["f"]["route"] == "7")
    for each in told:
        assert each["shown"] == (route if each["kind"] == "fast" else everything)
    slow = [each for each in told if each["kind"] == "slow"]
    assert sum(each["snapshots"] >= 2 for each in slow) == len(slow)
    assert all(each["updates"] < ROUNDS for each in slow), "none was sent all that it had missed"
    eventually(lambda: len(server.hub) == 0, "all have gone")
