"""What came in, on the map: it needs no job, and is no measure of how jobs do."""

from __future__ import annotations

import httpx

from tests.support.serve_support import CELLS, counts, eventually, positions
from tidewheel.model.time import now
from tidewheel.serve.layers.layer import Layer, Point
from tidewheel.transport.topics.run_states import RUNNING, STARTING, RunState, RunStates

SECOND = 1_000_000


def shown(server) -> dict[str, dict]:
    if "vehicles" not in server.feed.layers:
        return {}
    answer = httpx.get(f"{server.url}/api/view", params={"layers": "vehicles"}).json()
    return {item["k"]: item for item in answer["layers"]["vehicles"]}


def test_vehicles_move_as_their_positions_come_in(log, start):
    server, at = start(), now()
    positions(log, (7, 24.0, 60.0), (8, 24.5, 60.5), time=at)
    eventually(lambda: len(shown(server)) == 2, "both are there")
    positions(log, (7, 24.1, 60.1), time=at + SECOND)
    eventually(lambda: shown(server)["1/7"]["p"] == [24.1, 60.1], "it has moved")
    positions(log, (7, 24.0, 60.0), time=at + SECOND // 2)  # late: it stays where it is
    positions(log, (7, None, None), (8, 24.6, 60.6), time=at + 2 * SECOND)
    eventually(lambda: shown(server)["1/8"]["p"] == [24.6, 60.6], "the other one has moved")
    assert shown(server)["1/7"]["p"] == [24.1, 60.1], "without a place it stays where it was seen last"


def test_only_the_fields_that_a_layer_names_are_sent_if_it_says_so(log, start):
    positions(log, (7, 24.0, 60.0), headsign="Airport", route="4", speed=2.5)
    wanted = {"mode": "bus", "operator": 1, "vehicle": 7, "lat": 60.0, "lon": 24.0, "route": "4", "speed": 2.5}
    assert shown(start())["1/7"]["f"] == wanted
    every = Layer(topic="input.vehicle-position", name="vehicles", key=["vehicle"], geometry=Point(), show="points")
    assert shown(start(layers=[every]))["7"]["f"]["headsign"] == "Airport"


def test_what_came_in_counts_as_no_result(log, start):
    server, at = start(), now()
    positions(log, (7, 24.0, 60.0), time=at)
    eventually(lambda: len(shown(server)) == 1, "it is there")
    eventually(lambda: server.feed.status.latest["event_time"] == at // 1_000, "it is looked at")
    status = server.feed.status.latest
    assert (status["topics"], status["watermark"], status["latency"]) == ({}, None, None)
    counts(log, {CELLS["here"]: 3}, end=at, watermark=at)
    eventually(lambda: server.feed.status.latest["watermark"] == at // 1_000, "the result's watermark is reported")
    assert set(server.feed.status.latest["topics"]) == {"analytics.vehicle-distribution"}


def test_the_status_shows_a_run_that_is_starting_until_it_runs(log, start):
    run, since = RunStates(log), now() - 8 * SECOND
    run.report("demo", RunState(STARTING, since))
    server = start()
    (reported,) = server.feed.status.latest["starting"]
    assert (reported["run"], reported["since"]) == ("demo", since // 1_000)
    assert reported["text"].startswith("Spark is starting: ")
    assert "15 to 40 s" in reported["text"], "however long that test takes"
    run.report("demo", RunState(RUNNING, since))
    eventually(lambda: server.feed.status.latest["starting"] == [], "it runs")
