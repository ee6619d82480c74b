"""The live stream, with the real server and real clients."""

from __future__ import annotations

import json
import sqlite3
import threading
from itertools import islice

import httpx
import pyarrow as pa
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.support.serve_support import CELLS, counts, eventually, hexadecimal, put, stop_of, vehicles, viewer
from tidewheel.cli.commands.serve import _until_stopped
from tidewheel.cli.progress import Stop
from tidewheel.errors import JobError
from tidewheel.model.time import duration, now
from tidewheel.model.watermark_hold import Holder
from tidewheel.serve import Layer, serve
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.layers.layer import Point
from tidewheel.topic_names import TYPES_TOPIC
from tidewheel.transport.events import codec
from tidewheel.transport.events.converter import Converter
from tidewheel.transport.events.event_pb2 import Event, TypeDefinition
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.aliases import Aliases
from tidewheel.transport.topics.held_watermarks import HeldWatermarks
from tidewheel.transport.topics.types import publish_types
from tidewheel_transit.transit_pb2 import Bunching, VehicleCell

SECOND = 1_000_000


def test_a_client_gets_what_there_is_then_what_is_shown_then_what_changes(log, start):
    vehicles(log, (7, 24.9, 60.2), speed=12.5, route="55")
    with viewer(start()) as page:
        assert page.hello["protocol"] == 1
        assert [layer["name"] for layer in page.hello["layers"]] == ["vehicles"]
        assert page.hello["limits"]["message"] == 65_536
        page.subscribe("vehicles", id="first")
        item = page.layers["vehicles"]["1/7"]
        assert item["p"] == [24.9, 60.2]
        assert item["v"] == "bus"
        assert item["f"]["speed"] == 12.5
        assert item["f"]["route"] == "55"
        assert "timing" not in item
        vehicles(log, (7, 24.91, 60.21), (8, 24.8, 60.1))
        page.until(lambda: len(page.layers["vehicles"]) == 2, "the other vehicle")
        assert page.layers["vehicles"]["1/7"]["p"] == [24.91, 60.21]
        assert page.snapshots == ["first"]


def test_an_older_result_is_ignored_and_one_of_the_same_time_replaces(log, start):
    at = now()
    vehicles(log, (7, 24.9, 60.2), time=at)
    with viewer(start()) as page:
        page.subscribe("vehicles")
        vehicles(log, (7, 1.0, 1.0), time=at - 1)
        vehicles(log, (7, 24.8, 60.1), time=at)
        page.until(lambda: page.layers["vehicles"]["1/7"]["p"] != [24.9, 60.2], "the same time")
        assert page.layers["vehicles"]["1/7"]["p"] == [24.8, 60.1]


def test_results_expire_and_faster_the_faster_the_replay_is(log, start):
    vehicles(log, (7, 24.9, 60.2))
    with viewer(start(speed=20.0)) as page:  # 10 s become half a second
        page.subscribe("vehicles")
        vehicles(log, (8, 24.9, 60.2))
        page.until(lambda: "1/8" in page.layers["vehicles"], "it is shown")
        assert page.hello["speed"] == 20.0
        item = page.layers["vehicles"]["1/8"]
        page.until(lambda: "1/8" not in page.layers["vehicles"], "it has expired")
        assert page.receive()  # the stream goes on
        assert item["x"] - item["t"] <= 1_000


def test_a_region_and_filters_choose_what_a_client_gets_and_what_leaves_them_is_gone(log, start):
    vehicles(log, (7, 24.9, 60.2), (8, 25.9, 60.2), (9, 24.95, 60.21), mode=["bus", "bus", "tram"])
    with viewer(start()) as page, viewer(start()) as other:
        page.subscribe("vehicles", region=[24.0, 60.0, 25.0, 61.0], filters={"mode": ["bus"], "unknown": ["x"]})
        other.subscribe("vehicles", filters={"mode": ["tram", "metro"], "operator": [], "route": [""]})
        assert set(page.layers["vehicles"]) == {"1/7"}
        assert set(other.layers["vehicles"]) == {"1/9"}
        vehicles(log, (7, 25.5, 60.2), (8, 24.5, 60.2))
        page.until(lambda: set(page.layers["vehicles"]) == {"1/8"}, "one has left, one has come")
        vehicles(log, (9, 24.95, 60.21), mode="metro")
        other.until(lambda: other.layers["vehicles"]["1/9"]["v"] == "metro", "another mode that is allowed")
        vehicles(log, (9, 24.95, 60.21), mode="bus")
        other.until(lambda: other.layers["vehicles"] == {}, "no longer one of them")
        assert set(page.layers["vehicles"]) <= {"1/8", "1/9"}


def test_a_pair_passes_a_filter_with_either_of_its_vehicles(log, start):
    pairs = {"route": ["550"] * 3, "vehicle": [1, 2, 3], "other_vehicle": [4, 5, 6], "change": ["start"] * 3}
    put(log, Bunching, "analytics.bunching", {**pairs, "operator": [18, 6, 40], "other_operator": [6, 18, 40]})
    with viewer(start()) as page:
        page.subscribe("bunching", filters={"operator": ["18"]})
        assert {item["f"]["vehicle"] for item in page.layers["bunching"].values()} == {1, 2}
        page.subscribe("bunching", filters={"operator": ["18", "40"], "route": ["550"]}, id=2)
        assert {item["f"]["vehicle"] for item in page.layers["bunching"].values()} == {1, 2, 3}
        page.subscribe("bunching", filters={"operator": ["18"], "route": ["1"]}, id=3)
        assert page.layers["bunching"] == {}


def test_a_region_does_not_touch_alerts_whose_list_shows_all_places(log, start):
    vehicles(log, (7, 24.9, 60.2))
    stop_of(log, 7)
    with viewer(start()) as page:
        page.subscribe("vehicles", "emergency-stop", region=[10.0, 50.0, 11.0, 51.0])
        assert (set(page.layers["vehicles"]), set(page.layers["emergency-stop"])) == (set(), {"1/7"})
        stop_of(log, 8)
        page.until(lambda: set(page.layers["emergency-stop"]) == {"1/7", "1/8"}, "another has come")


def test_cells_are_chosen_by_their_middle(log, start):
    counts(log, {CELLS["here"]: 3, CELLS["there"]: 4}, end=now())
    server = start()
    feature = httpx.get(f"{server.url}/api/layers/vehicle-distribution/view.geojson").json()["features"][0]
    lons, lats = zip(*feature["geometry"]["coordinates"][0][:-1], strict=True)
    lon, lat = sum(lons) / len(lons), sum(lats) / len(lats)
    with viewer(server) as page:
        page.subscribe("vehicle-distribution", region=[lon - 1e-4, lat - 1e-4, lon + 1e-4, lat + 1e-4])
        assert set(page.layers["vehicle-distribution"]) == {feature["id"]}


def test_a_subscription_replaces_the_one_before(log, start):
    vehicles(log, (7, 24.9, 60.2))
    stop_of(log, 7)
    with viewer(start()) as page:
        page.subscribe("vehicles", id=1)
        page.subscribe("emergency-stop", id=2)
        assert set(page.layers) == {"emergency-stop"}
        vehicles(log, (8, 24.9, 60.2))
        stop_of(log, 8)
        page.until(lambda: "1/8" in page.layers["emergency-stop"], "the stop")
        assert set(page.layers) == {"emergency-stop"}


def test_early_panes_are_marked_and_those_of_far_windows_left_out(log, start):
    end = now() // SECOND * SECOND + 5 * SECOND
    here, there = CELLS["here"], CELLS["there"]
    mark = end - 5 * SECOND
    counts(log, {here: 3}, end=end, watermark=mark, pane_timing="EARLY")
    counts(log, {here: 1, there: 1}, end=end + 5 * SECOND, watermark=mark, pane_timing="EARLY")
    with viewer(start()) as page:
        page.subscribe("vehicle-distribution")
        shown = page.layers["vehicle-distribution"]
        assert {key: (item["v"], item["timing"]) for key, item in shown.items()} == {hexadecimal(here): (3, "EARLY")}
        counts(log, {here: 4}, end=end, watermark=end)
        page.until(lambda: page.layers["vehicle-distribution"][hexadecimal(here)]["timing"] == "ON_TIME", "firm")


def test_a_large_append_is_several_blocks_whose_watermark_comes_last(log, start):
    end = now() // SECOND * SECOND
    counts(log, {CELLS["here"]: 1}, end=end - 60 * SECOND, watermark=end - 60 * SECOND)
    server = start()
    many = {CELLS["here"] + number: 1 for number in range(25_000)}  # most are no cells, but all are keys
    for timing, until in (("ON_TIME", end), ("EARLY", end + 5 * SECOND)):
        counts(log, many, end=until, watermark=end, pane_timing=timing)
        assert len(log.blocks("analytics.vehicle-distribution", 0, 0)) > 3
        eventually(lambda until=until: _all_end_at(server.feed, until, len(many)), timing)


def _all_end_at(feed, end, count):
    with feed.lock:
        items = list(feed.view["vehicle-distribution"].items.values())
    return len(items) == count and all(item.window[1] == end for item in items)


def test_a_retraction_removes_what_it_takes_back_and_no_more(log, start):
    end = now() // SECOND * SECOND
    here, there = CELLS["here"], CELLS["there"]
    counts(log, {here: 3, there: 2}, end=end)
    with viewer(start()) as page:
        page.subscribe("vehicle-distribution")
        counts(log, {here: 3}, end=end - 5 * SECOND, retraction=True)  # of a window that is no longer shown
        counts(log, {there: 2}, end=end, retraction=True)
        page.until(lambda: set(page.layers["vehicle-distribution"]) == {hexadecimal(here)}, "one is retracted")
        counts(log, {here: 0}, end=end, pane_timing="LATE")
        page.until(lambda: page.layers["vehicle-distribution"][hexadecimal(here)]["v"] == 0, "a count of 0 is one")


def test_the_status_comes_by_itself(log, start):
    log.append("dead.hfp", records([b"x", b"y"]))
    log.append("late.vehicle-distribution", records([b"x"]))
    end = now() // SECOND * SECOND
    counts(log, {CELLS["here"]: 3}, end=end, watermark=end)
    with viewer(start()) as page:
        page.until(lambda: page.status.get("watermark"), "a status")
        assert page.status["clients"] == 1
        assert page.status["late"] == 1
        assert page.status["dead"] == 2
        assert page.status["watermark"] == end // 1_000
        topic = page.status["topics"]["analytics.vehicle-distribution"]
        assert (topic["count"], topic["watermark"]) == (1, end // 1_000)


def test_what_cannot_be_decoded_is_counted_and_the_rest_is_shown(log, start):
    vehicles(log, (7, 24.9, 60.2))
    server = start()
    with viewer(server) as page:
        page.subscribe("vehicles")
        log.append("analytics.vehicle-cell", records([b"\xff\xff", b"{not json", b""]))
        vehicles(log, (8, 24.9, 60.2))
        page.until(lambda: "1/8" in page.layers["vehicles"], "the one behind them")
        page.until(lambda: page.status.get("bad"), "they are reported")
        assert page.status["bad"] == 3
    assert httpx.get(f"{server.url}/api/health").json()["healthy"]


def test_a_type_that_cannot_be_loaded_is_reported_and_holds_up_nothing_until_it_is_fixed(log, start):
    registry = TypeRegistry()
    name = define_message(registry, "sales", pa.schema({"shop": pa.string(), "total": pa.float64()}))
    kind = registry.message_class(name)
    vehicles(log, (7, 24.9, 60.2))
    broken = codec.pack(TypeDefinition(name=name, file_descriptor_set=b"\xff"), event_time=1)
    log.create_topic(TYPES_TOPIC, compact=True)
    log.append(TYPES_TOPIC, records([codec.encode(broken)], keys=[name.encode()]))

    def sale(shop):
        values = [codec.encode(codec.pack(kind(shop=shop, total=1.5), event_time=now()))]
        log.append("analytics.sales", records(values, keys=[shop.encode()]))

    sale("early")
    server = start()
    with viewer(server) as page:
        page.subscribe("vehicles", "sales")
        vehicles(log, (8, 24.9, 60.2))
        page.until(lambda: set(page.layers["vehicles"]) == {"1/7", "1/8"}, "the others go on")
        page.until(lambda: page.status.get("bad"), "its results are counted")
        assert page.layers["sales"] == {}
        health = httpx.get(f"{server.url}/api/health").json()
        assert (health["healthy"], health["reasons"]) == (True, [])
        assert [f"message type {name!r} cannot be loaded" in text for text in health["warnings"]] == [True]
        assert "tidewheel_serve_broken_types 1\n" in httpx.get(f"{server.url}/metrics").text
        publish_types(log, registry, [name])
        eventually(lambda: server.status()["warnings"] == [], "it is fixed")
        sale("late")
        page.until(lambda: "late" in page.layers["sales"], "what comes from there on is shown")


def test_a_damaged_block_is_reported_and_the_rest_is_shown(log, start):
    vehicles(log, (7, 24.9, 60.2))
    vehicles(log, (8, 24.9, 60.2))
    connection = sqlite3.connect(log.address)
    connection.execute("UPDATE payload SET data = zeroblob(length(data)) WHERE id = (SELECT max(id) FROM payload)")
    connection.commit()
    connection.close()
    vehicles(log, (9, 24.9, 60.2))
    server = start()
    with viewer(server) as page:
        page.subscribe("vehicles")
        page.until(lambda: set(page.layers["vehicles"]) == {"1/7", "1/9"}, "what can be read is shown")
    health = httpx.get(f"{server.url}/api/health").json()
    assert health["healthy"]
    (warning,) = health["warnings"]
    assert "partition 0: the block of offsets 1 to 1 is damaged" in warning
    rewound = httpx.get(f"{server.url}/api/view", params={"layers": "vehicles", "at": health["now"]}).json()
    assert len(rewound["layers"]["vehicles"]) == 2, "in the past, too"


def test_health_warns_of_a_watermark_that_is_held(log, start):
    at = now()
    job = HeldWatermarks(log)
    job.report("final-stops", [Holder("input.door", 2, at - duration("5 min"), None, at - duration("5 min"))], now=at)
    server = start()
    eventually(lambda: server.status()["warnings"], "it is reported")
    health = httpx.get(f"{server.url}/api/health").json()
    assert health["healthy"], "the map itself is well"
    assert [text.partition(" for ")[0] for text in health["warnings"]] == ["job final-stops: held by input.door/2"]


def test_a_topic_that_appears_gets_its_layer_without_a_restart(log, start):
    with viewer(start()) as page:
        assert page.hello["layers"] == []
        page.subscribe("vehicles")
        assert "there is no layer vehicles yet" in page.errors[0]
        vehicles(log, (7, 24.9, 60.2))
        page.until(lambda: "1/7" in page.layers.get("vehicles", {}), "the layer that was asked for is there")
        page.until(lambda: page.hello["layers"], "the layers are sent again")
        assert [layer["name"] for layer in page.hello["layers"]] == ["vehicles"]


@pytest.mark.parametrize("way", ["socket", "events"])
def test_a_layer_that_appears_while_a_client_is_greeted_is_reported_too(log, start, monkeypatch, way):
    server = start()
    hello = server.hub.hello

    def slow_hello():
        frame = hello()
        if not server.feed.layers:
            before = server.feed.version
            vehicles(log, (7, 24.9, 60.2))
            eventually(lambda: server.feed.version > before, "the layer appears")
        return frame

    monkeypatch.setattr(server.hub, "hello", slow_hello)
    if way == "socket":
        with viewer(server) as page:
            assert page.hello["layers"] == []
            assert [layer["name"] for layer in page.next("hello")["layers"]] == ["vehicles"]
    else:
        with httpx.stream("GET", f"{server.url}/api/live/events", timeout=120) as stream:
            hellos = (content for kind, content in islice(_events(stream), 30) if kind == "hello")
            assert next(hellos)["layers"] == []
            assert [layer["name"] for layer in next(hellos)["layers"]] == ["vehicles"]


def test_how_it_is_doing_is_reported_between_two_steps_of_the_reader_not_during_one(log, start):
    vehicles(log, (7, 24.9, 60.2))
    server = start()
    reported = []
    asking = threading.Thread(target=lambda: reported.append(server.status()))
    with server.feed.lock:  # as the reader does while it adds a layer
        asking.start()
        asking.join(0.3)
        assert not reported
    asking.join(20)
    assert reported[0]["shown"] == 1


def test_a_switched_name_is_followed(log, start):
    vehicles(log, (7, 24.9, 60.2))
    with viewer(start()) as page:
        page.subscribe("vehicles")
        columns = {"operator": [1], "vehicle": [9], "lon": [24.9], "lat": [60.2]}
        put(log, VehicleCell, "analytics.vehicle-cell.v2", columns)
        Aliases(log).switch("analytics.vehicle-cell", "analytics.vehicle-cell.v2")
        page.until(lambda: set(page.layers["vehicles"]) == {"1/9"}, "only what the new topic holds")
        Aliases(log).switch("analytics.vehicle-cell", "analytics.vehicle-cell")
        page.until(lambda: set(page.layers["vehicles"]) == {"1/7"}, "and back again")


def test_a_layer_that_is_described_anew_is_shown_anew(log, start):
    """Here the second window tells the period: what was shown for as long as a window is too old by that measure."""
    at, later = now() // SECOND * SECOND, [0]
    with viewer(start(clock=lambda: now() + later[0])) as page:
        page.subscribe("counts")
        counts(log, {CELLS["here"]: 1}, end=at, topic="analytics.counts")
        page.until(lambda: len(page.layers.get("counts", {})) == 1, "the first window")
        assert page.hello["layers"][0]["expiry"] == 35_000
        later[0] = 20 * SECOND
        counts(log, {CELLS["there"]: 1}, end=at + 5 * SECOND, topic="analytics.counts")
        page.until(lambda: page.hello["layers"][0]["expiry"] == 10_000, "the new description")
        page.until(lambda: page.layers["counts"] == {}, "the first window is gone")


def test_a_user_s_own_layer_goes_before_the_installed_one(log, start):
    vehicles(log, (7, 24.9, 60.2))
    own = Layer(topic="analytics.vehicle-cell", name="mine", key=["vehicle"], geometry=Point(), show="points")
    with viewer(start(layers=[own])) as page:
        assert [layer["name"] for layer in page.hello["layers"]] == ["mine"]
        page.subscribe("mine")
        assert set(page.layers["mine"]) == {"7"}


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "null",
        "[]",
        '"subscribe"',
        "{}",
        '{"type":"shout"}',
        '{"type":"subscribe"}',
        '{"type":"subscribe","layers":"all"}',
        '{"type":"subscribe","layers":[1]}',
        '{"type":"subscribe","layers":[],"region":[1,2,3]}',
        '{"type":"subscribe","layers":[],"region":[2,0,1,1]}',
        '{"type":"subscribe","layers":[],"region":[1e999,0,1,1]}',
        '{"type":"subscribe","layers":[],"filters":{"mode":"bus"}}',
        '{"type":"subscribe","layers":[],"id":{}}',
        "[" * 50_000,
        b"\x00\x01",
        json.dumps({"type": "subscribe", "layers": [str(n) for n in range(65)]}),
        json.dumps({"type": "subscribe", "layers": [], "filters": {str(n): ["x"] for n in range(17)}}),
        json.dumps({"type": "subscribe", "layers": [], "filters": {"a": [str(n) for n in range(257)]}}),
    ],
)
def test_a_message_that_makes_no_sense_is_answered_and_the_connection_stays(message, shared_server):
    with viewer(shared_server) as page:
        page.send(message)
        assert page.next("error")["message"]
        page.send({"type": "ping", "id": 5})
        assert page.next("pong")["id"] == 5
        page.subscribe("vehicles")


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    with open_log(tmp_path_factory.mktemp("live") / "city.tw") as log, serve(log, port=0) as server:
        vehicles(log, (7, 24.9, 60.2))
        eventually(lambda: "vehicles" in server.feed.layers, "the layer")
        yield server


def test_who_makes_no_sense_too_often_is_cut_off(start):
    server = start(limits=ServeLimits(errors=3))
    with viewer(server) as page:
        for _ in range(3):
            page.send("?")
        with pytest.raises(ConnectionClosed) as closed:
            page.until(lambda: False, "the end")
        assert closed.value.rcvd.code == 1008
        assert len(page.errors) == 4
    eventually(lambda: len(server.hub) == 0, "it is gone")


@pytest.mark.parametrize("size", [70_000, 1_000_000])
def test_an_oversized_message_ends_the_connection(size, shared_server):
    with viewer(shared_server) as page:
        page.send(json.dumps({"type": "ping", "id": "x" * size}))
        with pytest.raises(ConnectionClosed) as closed:
            page.until(lambda: False, "the end")
        assert closed.value.rcvd.code == 1009
        assert all("at most 65536 bytes" in error for error in page.errors)


def test_no_more_clients_than_allowed_get_in(log, start):
    server = start(limits=ServeLimits(clients=1))
    with viewer(server):
        eventually(lambda: len(server.hub) == 1, "the first is in")
        with pytest.raises(InvalidStatus) as refused:
            connect(f"{server.url.replace('http', 'ws')}/api/live")
        assert refused.value.response.status_code == 503
        assert httpx.get(f"{server.url}/api/live/events").status_code == 503
    eventually(lambda: len(server.hub) == 0, "it is gone")
    with viewer(server):
        pass


def test_the_same_stream_as_server_sent_events(log, start):
    vehicles(log, (7, 24.9, 60.2), (8, 24.9, 60.2), mode=["bus", "tram"])
    server = start()
    query = {"layers": "vehicles", "region": "24,60,25,61", "filter": "mode:bus,metro"}
    with httpx.stream("GET", f"{server.url}/api/live/events", params=query, timeout=120) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = _events(stream)
        assert next(events)[0] == "hello"
        kind, snapshot = next(event for event in events if event[0] != "status")
        assert kind == "snapshot"
        assert [item["k"] for item in snapshot["layers"]["vehicles"]] == ["1/7"]
        vehicles(log, (9, 24.9, 60.2), mode="metro")
        update = next(content for kind, content in events if kind == "update")
        assert [item["k"] for item in update["changed"]["vehicles"]] == ["1/9"]
    eventually(lambda: len(server.hub) == 0, "it is gone")


def _events(stream):
    lines = (line for line in stream.iter_lines() if line and not line.startswith(":"))
    for line in lines:
        kind, data = line.removeprefix("event: "), next(lines).removeprefix("data: ")
        content = json.loads(data)
        assert content["type"] == kind
        yield kind, content


def test_a_layer_that_cannot_show_its_results_does_not_hold_up_the_others(log, start):
    vehicles(log, (7, 24.9, 60.2), route="55")
    own = Layer(topic="analytics.vehicle-cell", name="odd", key=["mode"], geometry=Point(lat="route", lon="mode"))
    with viewer(start(layers=[own])) as page:
        page.subscribe("odd", "vehicles")
        assert "p" not in page.layers["odd"]["bus"]  # text is no place
        stop_of(log, 3)
        page.subscribe("odd", "emergency-stop")
        page.until(lambda: "1/3" in page.layers.get("emergency-stop", {}), "others are shown")


def test_a_block_that_a_layer_cannot_take_is_counted_and_the_feed_goes_on(log, start):
    registry = TypeRegistry()
    kind = define_message(registry, "tagged", pa.schema({"tags": pa.list_(pa.string())}))
    publish_types(log, registry, [kind])
    frame = pa.RecordBatch.from_pydict({"tags": [["a"], ["b"]]}, pa.schema({"tags": pa.list_(pa.string())}))
    values = codec.encode_columns(kind, frame, event_time=pa.array([now()] * 2), registry=registry)
    server = start(layers=[Layer(topic="analytics.tagged", key=["tags"])])
    log.append("analytics.tagged", records(values))  # a list cannot be a key
    vehicles(log, (7, 24.9, 60.2))
    with viewer(server) as page:
        page.subscribe("vehicles", "tagged")
        page.until(lambda: "1/7" in page.layers.get("vehicles", {}), "others are shown")
        page.until(lambda: page.status.get("bad") == 2, "they are counted")
    assert server.feed.health() == []


def test_results_are_counted_that_nobody_can_decode_and_shown_once_somebody_can(log, start):
    log.append("analytics.strange", records([b"\xff", b"{}"]))
    server = start()
    with viewer(server) as page:
        page.until(lambda: page.status.get("bad") == 2, "they are counted")
        assert [(layer["name"], layer["show"], layer["figures"]) for layer in page.hello["layers"]] == [
            ("strange", "table", [])
        ]
        counts(log, {CELLS["here"]: 3}, end=now(), topic="analytics.strange")
        page.subscribe("strange")
        page.until(lambda: [item["v"] for item in page.layers["strange"].values()] == [3], "a result")
        assert page.status["bad"] == 2


def test_the_server_ends_at_once_though_clients_look_on(log, start):
    vehicles(log, (7, 24.9, 60.2))
    server = start()
    with viewer(server) as page, httpx.stream("GET", f"{server.url}/api/live/events", timeout=120) as stream:
        events = _events(stream)
        assert next(events)[0] == "hello"
        server.close()
        assert {kind for kind, _ in events} <= {"snapshot", "status"}  # and then it ends
        with pytest.raises(ConnectionClosed):
            page.until(lambda: False, "the end")
    assert not server.running


def test_after_a_restart_the_view_is_what_it_was(log, start):
    at = now()
    vehicles(log, (7, 24.9, 60.2), (8, 24.8, 60.1), time=at)
    stop_of(log, 7, time=at)
    first = start()
    with viewer(first) as page:
        page.subscribe("vehicles", "emergency-stop")
        before = page.layers
        first.close()
        with pytest.raises(ConnectionClosed) as closed:
            page.until(lambda: False, "the end")
        assert closed.value.rcvd.code in (1001, 1012)
    with viewer(start()) as page:
        page.subscribe("vehicles", "emergency-stop")
        assert page.layers == before
        assert set(before["vehicles"]) == {"1/7", "1/8"}


def test_events_that_the_decoder_does_not_bear_are_counted_and_the_others_shown(log, start):
    vehicles(log, (7, 24.9, 60.2))
    server = start()
    with viewer(server) as page:
        page.subscribe("vehicles")
        # Details of 2^64 - 1 bytes, and groups within groups.
        log.append("analytics.vehicle-cell", records([bytes.fromhex("1affffffffffffffffff01"), b"\x0b" * 10**6]))
        vehicles(log, (8, 24.9, 60.2))
        page.until(lambda: page.layers["vehicles"].keys() == {"1/7", "1/8"}, "the next one is shown")
    eventually(lambda: server.status()["bad"] == 2, "both are counted")
    assert httpx.get(f"{server.url}/api/health").status_code == 200
    assert server.running


def test_a_reader_that_died_is_reported_and_ends_the_server(log, start, monkeypatch):
    server = start()
    assert server.running

    def ended(**_):
        raise SystemExit(0)

    monkeypatch.setattr(server.feed, "_step", ended)
    eventually(lambda: not server.running, "it is noticed")
    assert "the reader of the log ended: SystemExit: 0" in str(server.failure)
    health = httpx.get(f"{server.url}/api/health")
    assert health.status_code == 503
    assert any("SystemExit" in reason for reason in server.status()["trouble"])
    with pytest.raises(JobError, match=r"the live map has ended by itself: .*SystemExit"):
        _until_stopped(server, Stop())


def test_a_reader_that_panics_goes_on(log, start, monkeypatch):
    server = start()
    step, panics = server.feed._step, []

    def panicking(**options):
        if not panics:
            panics.append(True)
            converter = Converter(Event.DESCRIPTOR)
            converter._handler.array_to_record_batch(pa.array([bytes.fromhex("1affffffffffffffffff01")]))
        step(**options)

    monkeypatch.setattr(server.feed, "_step", panicking)
    eventually(lambda: panics, "it panics")
    vehicles(log, (7, 24.9, 60.2))
    eventually(lambda: server.status()["shown"] == 1, "it reads on")
    eventually(lambda: not server.status()["trouble"], "and is well")
