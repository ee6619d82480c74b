"""A thousand clients of one server, slow readers among them."""

from __future__ import annotations

import httpx
import pytest

from tests.serve.many_clients import Crowd, assert_at_most_ten_a_second
from tests.support.serve_support import eventually, vehicles
from tidewheel.serve.layers.layer import Layer, Point

pytestmark = pytest.mark.long

FAST, SLOW = 960, 40
FLEET = 700
ROUNDS = 30
NORTH = 65.0
LAYER = Layer(
    topic="analytics.vehicle-cell",
    name="vehicles",
    key=["operator", "vehicle"],
    geometry=Point(),
    show="moving",
    filters=["route"],
    expiry=3_600_000,
)


@pytest.mark.slow
def test_all_come_to_the_same_view_and_slow_ones_are_given_the_latest_state(log, start):
    routes = ["7", *(str(number % 50) for number in range(1, FLEET))]
    vehicles(log, *((number, 24.0, 60.0) for number in range(FLEET)), route=routes)
    server = start(layers=[LAYER])
    with Crowd(server.url, fast=FAST, slow=SLOW, filters={"route": ["7"]}) as crowd:
        assert len(server.hub) == FAST + SLOW
        crowd.pause()
        for step in range(1, ROUNDS + 1):
            before = server.hub.frames_sent
            vehicles(log, *((number, 24.0 + step / 100, 60.0) for number in range(FLEET)), route=routes)
            eventually(lambda before=before: server.hub.frames_sent > before, "a tick")
        stuck = "the slow ones, which read nothing, cannot take more, and nobody else waits for them"
        eventually(lambda: server.hub.behind == SLOW, stuck)
        lats = [NORTH, *([60.0] * (FLEET - 1))]
        vehicles(log, *((number, 25.0, lats[number]) for number in range(FLEET)), route=routes)
        eventually(lambda: north(server.url) == {"1/0": [25.0, NORTH]}, "the last change has been read")
        crowd.resume()
        view = httpx.get(f"{server.url}/api/view", timeout=120).json()
        everything = {item["k"]: item for item in view["layers"]["vehicles"]}
        assert len(everything) == FLEET
        route = {key: item for key, item in everything.items() if item["f"]["route"] == "7"}
        views = crowd.views(after=view["now"])
        figures = crowd.figures()
    for kind, expected in (("fast", route), ("slow", everything)):
        assert [each["shown"] for each in views[kind]] == [expected] * len(views[kind])
    assert_at_most_ten_a_second(figures)
    assert sum(each["snapshots"] >= 2 for each in figures["slow"]) == SLOW
    assert all(each["updates"] < ROUNDS for each in figures["slow"]), "none was sent all that it had missed"
    eventually(lambda: len(server.hub) == 0, "all have gone")


def north(url: str) -> dict[str, list[float]]:
    view = httpx.get(f"{url}/api/view?region=20,64,30,66", timeout=120).json()["layers"]["vehicles"]
    return {item["k"]: item["p"] for item in view}
