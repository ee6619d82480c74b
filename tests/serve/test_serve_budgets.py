"""What many different subscriptions, many keys and large answers may take; the event loop goes on meanwhile."""

from __future__ import annotations

import threading

import httpx

from tests.support.raw_http import connected
from tests.support.serve_support import eventually, vehicles, viewer
from tidewheel.serve import Layer
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.layers.layer import Point
from tidewheel.serve.view.view import View

LASTING = Layer(
    topic="analytics.vehicle-cell",
    name="vehicles",
    key=["operator", "vehicle"],
    geometry=Point(),
    show="moving",
    filters=["route"],
    expiry=3_600_000,
)


def fleet(log, count, *, first=0, lon=24.0, **more):
    vehicles(log, *((number, lon, 60.0) for number in range(first, first + count)), **more)


def test_different_subscriptions_are_limited_equal_ones_are_not(log, start):
    vehicles(log, (1, 24.9, 60.2), (2, 24.9, 60.2), (3, 24.9, 60.2), route=["1", "2", "3"])
    server = start(limits=ServeLimits(subscriptions=2), layers=[LASTING])
    with viewer(server) as one, viewer(server) as two, viewer(server) as three:
        one.subscribe("vehicles", filters={"route": ["1"]})
        two.subscribe("vehicles", filters={"route": ["2"]})
        three.subscribe("vehicles", filters={"route": ["2"]})
        for _ in range(30):  # it is not the client's mistake: it is never cut off for that
            three.send({"type": "subscribe", "id": 9, "layers": ["vehicles"], "filters": {"route": ["3"]}})
            refused = three.next("error")["message"]
        assert "at most 2 different choices of layers, region and filters at a time" in refused
        vehicles(log, (2, 25.0, 60.2), route="2")
        three.until(lambda: three.layers["vehicles"]["1/2"]["p"] == [25.0, 60.2], "it goes on with what it had")
        answer = httpx.get(f"{server.url}/api/live/events?layers=vehicles&filter=route:3")
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        assert "different choices" in answer.json()["error"]
        metrics = httpx.get(f"{server.url}/metrics").text
        assert "tidewheel_serve_subscriptions 2\n" in metrics
        assert "tidewheel_serve_subscriptions_refused_total 31\n" in metrics
        one.subscribe("vehicles", filters={"route": ["3"]}, id=2)  # in place of its own there is room
        assert set(one.layers["vehicles"]) == {"1/3"}
    eventually(lambda: server.hub.subscriptions == 0, "all have gone")


def test_a_layer_shows_so_many_keys_and_says_how_many_there_are(log, start):
    fleet(log, 5)
    server = start(limits=ServeLimits(keys=3), layers=[LASTING])
    with viewer(server) as page:
        page.subscribe("vehicles")
        shown = set(page.layers["vehicles"])
        assert len(shown) == 3
        page.until(lambda: page.status.get("partial") == {"vehicles": {"shown": 3, "keys": 5}}, "it is reported")
        fleet(log, 7, lon=25.0)
        page.until(lambda: all(item["p"] == [25.0, 60.0] for item in page.layers["vehicles"].values()), "those move on")
        assert set(page.layers["vehicles"]) == shown
        page.until(lambda: page.status["partial"]["vehicles"]["keys"] == 7, "more are hidden")
    view = httpx.get(f"{server.url}/api/view").json()
    assert (len(view["layers"]["vehicles"]), view["partial"]) == (3, {"vehicles": {"shown": 3, "keys": 7}})
    past = httpx.get(f"{server.url}/api/view?at={view['now']}").json()
    assert (len(past["layers"]["vehicles"]), past["partial"]) == (3, {"vehicles": {"shown": 3, "keys": 7}})
    assert httpx.get(f"{server.url}/api/health").json()["warnings"] == ["layer vehicles shows 3 of 7 keys"]
    assert server.status()["partial"] == {"vehicles": {"shown": 3, "keys": 7}}
    assert 'tidewheel_serve_keys{layer="vehicles"} 7\n' in httpx.get(f"{server.url}/metrics").text


def test_what_is_hidden_comes_when_there_is_room_and_what_is_counted_is_bounded(log):
    clock = [0]
    view = View(most=2)
    layer = view.add(LASTING)
    rows = _rows(log)
    layer.apply(rows(range(100)), now=clock[0])
    assert (len(layer.items), layer.keys) == (2, 2 + 4 * 2)  # of the hidden, four times as many as may be shown
    layer.expire(10**17)
    assert (len(layer.items), layer.keys, view.partial()) == (0, 0, {})
    layer.apply(rows([5, 6]), now=clock[0])
    layer.apply(rows([5, 6, 7]), now=clock[0])
    assert (set(layer.items), layer.keys) == ({"1/5", "1/6"}, 3)
    layer.apply(rows([6], back=True), now=clock[0])
    layer.apply(rows([7]), now=clock[0])
    assert (set(layer.items), layer.keys, view.partial()) == ({"1/5", "1/7"}, 2, {})
    layer.apply(rows([6]), now=clock[0])
    layer.apply(rows([6], back=True), now=clock[0])
    assert layer.keys == 2


def _rows(log):
    """Makes prepared rows of vehicles, all of the same time."""
    from tidewheel.serve.view.decode import Decoder, prepared
    from tidewheel.transport.events.registry import types

    def rows(numbers, *, back=False):
        before = log.position("analytics.vehicle-cell", 0, "latest") if log.topics() else 0
        vehicles(log, *((number, 24.0, 60.0) for number in numbers), time=1)
        (batch,) = log.read("analytics.vehicle-cell", 0, before)
        (frame,) = Decoder(types)(batch).frames
        found = prepared(LASTING, frame)
        return found.with_columns(found["@back"] | back)

    return rows


def test_the_event_loop_does_not_wait_for_the_reader_of_the_log(log, start):
    """Who holds the lock of the view holds up frames and views, and nothing else."""
    fleet(log, 3)
    server = start(layers=[LASTING])
    with viewer(server) as page:
        page.subscribe("vehicles")
        with server.feed.lock:
            waiting = [
                threading.Thread(target=httpx.get, args=(f"{server.url}{path}",), kwargs={"timeout": 60})
                for path in ("/api/view", "/api/layers/vehicles/view.geojson", "/metrics")
            ]
            for each in waiting:
                each.start()
            for _ in range(10):
                assert httpx.get(f"{server.url}/api/health", timeout=120).status_code == 200
                page.send({"type": "ping", "id": 3})
                assert page.next("pong")["id"] == 3
            assert all(each.is_alive() for each in waiting)
        for each in waiting:
            each.join(20)
            assert not each.is_alive()


def test_large_answers_are_sent_bit_by_bit_within_a_budget(log, start):
    """A client that asks for much and does not take it holds up to the budget, and no more."""
    fleet(log, 5_000, route="x" * 500)
    server = start(layers=[LASTING], limits=ServeLimits(answer_bytes=1))
    whole = httpx.get(f"{server.url}/api/view", timeout=120)
    assert len(whole.json()["layers"]["vehicles"]) == 5_000
    assert int(whole.headers["content-length"]) == len(whole.content) > 2_000_000
    with connected(server.port) as idle:
        idle.sendall(b"GET /api/view HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 200 ")
        refused = httpx.get(f"{server.url}/api/view", timeout=120)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    eventually(lambda: httpx.get(f"{server.url}/api/view", timeout=120).status_code == 200, "there is room again")
