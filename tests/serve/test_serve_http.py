"""The answers over HTTP, with the real server; and that nothing whatever breaks it."""

from __future__ import annotations

import socket
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.serve_support import CELLS, counts, eventually, hexadecimal, put, stop_of, vehicles, viewer
from tidewheel.errors import DefinitionError, SetupError
from tidewheel.model.time import now
from tidewheel.serve import Background, serve
from tidewheel.transport.open_log import open_log
from tidewheel_transit.lines import lines
from tidewheel_transit.transit_pb2 import CellFlow, Door

SECOND = 1_000_000


def get(server, path, **options):
    return httpx.get(f"{server.url}{path}", timeout=120, **options)


def items(answer, layer="vehicles"):
    assert answer.status_code == 200, answer.text
    return {item["k"]: item for item in answer.json()["layers"][layer]}


def test_the_view_can_be_asked_for_with_region_and_filters(log, start):
    vehicles(log, (7, 24.9, 60.2), (8, 25.9, 60.2), (9, 24.95, 60.2), mode=["bus", "bus", "tram"])
    server = start()
    assert set(items(get(server, "/api/view"))) == {"1/7", "1/8", "1/9"}
    assert set(items(get(server, "/api/view?layers=vehicles&region=24,60,25,61"))) == {"1/7", "1/9"}
    assert set(items(get(server, "/api/layers/vehicles/view?filter=mode:tram&filter=operator:1"))) == {"1/9"}
    assert items(get(server, "/api/layers/vehicles/view?filter=operator:2")) == {}
    assert set(items(get(server, "/api/view?filter=mode:bus,tram&filter=route:"))) == {"1/7", "1/8", "1/9"}


def test_a_filter_s_value_may_have_commas(log, start):
    routes = ["to Espoo, Leppävaara", "to Espoo", "\\"]
    vehicles(log, (7, 24.9, 60.2), (8, 24.9, 60.2), (9, 24.9, 60.2), route=routes)
    server = start()

    def shown(text):
        return set(items(get(server, "/api/view", params={"layers": "vehicles", "filter": f"route:{text}"})))

    assert shown(r"to Espoo\, Leppävaara") == {"1/7"}
    assert shown("to Espoo, Leppävaara") == {"1/8"}  # those are two
    assert shown(r"to Espoo\, Leppävaara,\\") == {"1/7", "1/9"}
    assert shown("\\") == {"1/9"}


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/api/view?layers=nothing", 404, "there is no layer 'nothing'; there are: vehicles"),
        ("/api/layers/nothing/view", 404, "no layer"),
        ("/api/layers/nothing/view.geojson", 404, "no layer"),
        ("/api/layers/nothing/history?key=1", 404, "no layer"),
        ("/api/layers/vehicles/history", 400, "parameter key is missing"),
        ("/api/layers/vehicles/history?key=1&since=yesterday", 400, "milliseconds"),
        ("/api/view?region=1,2,3", 400, "west, south, east, north"),
        ("/api/view?region=a,b,c,d", 400, "west,south,east,north"),
        ("/api/view?region=nan,0,1,1", 400, "region"),
        ("/api/view?filter=mode", 400, "mode:bus"),
        ("/api/view?at=1", 400, "last hour"),
        ("/api/view?at=99999999999999999", 400, "milliseconds"),
        ("/api/alerts?since=-1", 400, "milliseconds"),
        ("/api/live/events?region=0", 400, "region"),
        ("/api/nothing", 404, "nothing of that name"),
        ("/../../etc/passwd", 404, "nothing of that name"),
        ("/%2e%2e/%2e%2e/etc/passwd", 404, "nothing of that name"),
        ("/assets/%00", 404, "nothing of that name"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(shared_server, path, status, word):
    answer = get(shared_server, path)
    assert answer.status_code == status
    assert word in answer.json()["error"]


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    with open_log(tmp_path_factory.mktemp("http") / "city.tw") as log:
        vehicles(log, (7, 24.9, 60.2))
        with serve(log, port=0) as server:
            yield server


def test_geojson_has_points_cells_and_arrows(log, start):
    vehicles(log, (7, 24.9, 60.2), speed=3.0)
    counts(log, {CELLS["here"]: 3}, end=now() // SECOND * SECOND)
    columns = {"cell": [CELLS["here"]] * 2, "neighbour": [CELLS["there"], None], "crossings": [2, None]}
    put(log, CellFlow, "analytics.flow-direction", columns, keys=[b"1", b"2"], times=[1, 2])
    server = start()
    answer = get(server, "/api/layers/vehicles/view.geojson")
    assert answer.headers["content-type"] == "application/geo+json"
    (point,) = answer.json()["features"]
    assert point["geometry"] == {"type": "Point", "coordinates": [24.9, 60.2]}
    assert point["properties"]["key"] == "1/7"
    assert point["properties"]["value"] == "bus"
    assert point["properties"]["speed"] == 3.0
    (cell,) = get(server, "/api/layers/vehicle-distribution/view.geojson").json()["features"]
    (ring,) = cell["geometry"]["coordinates"]
    assert (len(ring), ring[0]) == (7, ring[-1])
    assert all(24 < lon < 26 and 60 < lat < 61 for lon, lat in ring)
    assert cell["properties"]["timing"] == "ON_TIME"
    (flow,) = get(server, "/api/layers/flow-direction/view.geojson").json()["features"]
    assert flow["geometry"] is None  # the latest has no neighbour: there is no arrow to draw
    put(log, CellFlow, "analytics.flow-direction", {name: column[:1] for name, column in columns.items()}, times=[3])

    def arrow():
        (feature,) = get(server, "/api/layers/flow-direction/view.geojson").json()["features"]
        return feature["geometry"]

    assert len(eventually(arrow, "an arrow")["coordinates"]) == 2


def test_the_history_of_a_key_has_also_what_came_before_the_server(log, start, tmp_path):
    at = now()
    for ago in (50, 40):
        vehicles(log, (7, 24.0, 60.0), (8, 24.0, 60.0), time=at - ago * SECOND, speed=float(ago))
    server = start()
    server.feed.caught_up.wait(20)
    vehicles(log, (7, 24.0, 60.0), time=at - 30 * SECOND, speed=30.0)
    vehicles(log, (7, 24.0, 60.0), time=at - 40 * SECOND, speed=41.0)  # of the same time: the last counts

    def points(query=""):
        answer = get(server, f"/api/layers/vehicles/history?key=1/7{query}").json()
        assert (answer["layer"], answer["key"]) == ("vehicles", "1/7")
        return [(point["t"], point["f"]["speed"]) for point in answer["points"]]

    millis = at // 1_000
    wanted = [(millis - 50_000, 50.0), (millis - 40_000, 41.0), (millis - 30_000, 30.0)]
    eventually(lambda: points() == wanted, "all of them, in order")
    assert points(f"&since={millis - 45_000}&until={millis - 35_000}") == [(millis - 40_000, 41.0)]
    vehicles(log, (7, 24.0, 60.0), time=millis * 1_000 + 456, speed=0.0)
    eventually(lambda: points(f"&since={millis}&until={millis}") == [(millis, 0.0)], "all of a millisecond is in it")
    assert get(server, "/api/layers/vehicles/history?key=nobody").json()["points"] == []


def test_a_history_is_asked_for_by_event_time_whatever_the_clocks_tell(log, start):
    years_ago = now() - 5 * 365 * 86_400 * SECOND
    for step in range(3):
        vehicles(log, (7, 24.0, 60.0), time=years_ago + step * 60 * SECOND, speed=float(step))
    server = start()
    (item,) = eventually(lambda: items(get(server, "/api/view")).values(), "it is shown")
    query = f"/api/layers/vehicles/history?key=1/7&since={item['t'] - 60_000}&until={item['t']}"
    assert [point["f"]["speed"] for point in get(server, query).json()["points"]] == [1.0, 2.0]
    parameters = get(server, "/api/openapi.json").json()["paths"]["/api/layers/{name}/history"]["get"]["parameters"]
    reported = {each["name"]: each.get("description", "") for each in parameters}
    assert all("event time" in reported[name] for name in ("since", "until"))


def test_the_view_can_be_rewound_to_a_moment_of_the_last_hour(tmp_path):
    clock = [now() - 1_000 * SECOND]
    end = clock[0] // SECOND * SECOND
    with open_log(tmp_path / "past.tw", clock=lambda: clock[0]) as log:
        begin = clock[0]
        vehicles(log, (7, 24.1, 60.0), time=1)
        counts(log, {CELLS["here"]: 1}, end=end, watermark=end)
        clock[0] += 4 * SECOND
        vehicles(log, (7, 24.2, 60.0), (8, 24.0, 60.0), time=2)
        counts(log, {CELLS["here"]: 1}, end=end, retraction=True)
        counts(log, {CELLS["here"]: 9}, end=end + 50 * SECOND, watermark=end, pane_timing="EARLY")
        clock[0] += 8 * SECOND
        vehicles(log, (8, 24.3, 60.0), time=3)
        clock[0] += 3 * SECOND
        put(log, Door, "input.door", {"vehicle": [3]}, times=end)
        with serve(log, port=0) as server:

            def at(seconds, layer="vehicles"):
                millis = (begin + round(seconds * SECOND)) // 1_000
                found = items(get(server, f"/api/view?at={millis + 1}"), layer)
                return {key: item.get("p", item["v"]) for key, item in found.items()}

            assert at(-1) == {}
            assert at(0) == {"1/7": [24.1, 60.0]}
            assert at(5) == {"1/7": [24.2, 60.0], "1/8": [24.0, 60.0]}
            assert at(12.5) == {"1/7": [24.2, 60.0], "1/8": [24.3, 60.0]}
            assert at(14.5) == {"1/7": [24.2, 60.0], "1/8": [24.3, 60.0]}, "nothing came: nothing got older"
            assert at(15) == at(900) == {"1/8": [24.3, 60.0]}, "and it came to rest there"
            assert at(0, "vehicle-distribution") == {hexadecimal(CELLS["here"]): 1}
            assert at(5, "vehicle-distribution") == {}
            assert get(server, f"/api/view?at={(now() + 60 * SECOND) // 1_000}").status_code == 400


def test_alerts_are_newest_first_and_outlive_their_place_on_the_map(log, start):
    at = now()
    for vehicle, ago in ((1, 300), (2, 100), (1, 200)):
        stop_of(log, vehicle, time=at - ago * SECOND)
    server = start(speed=1_000.0)

    def gone():
        put(log, Door, "input.door", {"vehicle": [3]})  # results expire while something comes
        return items(get(server, "/api/view"), "emergency-stop") == {}

    eventually(gone, "they have expired")
    alerts = get(server, "/api/alerts").json()["alerts"]
    assert [(alert["layer"], alert["k"]) for alert in alerts] == [
        ("emergency-stop", "1/2"),
        ("emergency-stop", "1/1"),
        ("emergency-stop", "1/1"),
    ]
    assert alerts[0]["p"] == [24.9, 60.2]
    since = (at - 150 * SECOND) // 1_000
    assert [alert["k"] for alert in get(server, f"/api/alerts?since={since}").json()["alerts"]] == ["1/2"]


def test_topics_health_metrics_and_the_description(log, start):
    vehicles(log, (7, 24.9, 60.2))
    server = start()
    (topic,) = get(server, "/api/topics").json()["topics"]
    assert (topic["name"], topic["count"], topic["next_offsets"]) == ("analytics.vehicle-cell", 1, [1])
    health = get(server, "/api/health")
    assert (health.status_code, health.json()["healthy"], health.json()["reasons"]) == (200, True, [])
    metrics = get(server, "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'tidewheel_serve_items{layer="vehicles"} 1\n' in metrics.text
    assert "tidewheel_serve_clients_behind 0\n" in metrics.text
    described = get(server, "/api/openapi.json").json()
    assert described["openapi"].startswith("3.")
    for path in described["paths"]:
        assert get_status(server, path.replace("{name}", "vehicles")) != 404, path


def get_status(server, path):
    with httpx.stream("GET", f"{server.url}{path}", timeout=120) as answer:
        return answer.status_code


def test_a_log_that_cannot_be_read_is_reported_and_the_view_stays(log, start):
    vehicles(log, (7, 24.9, 60.2))
    server = start()
    log.close()
    answer = eventually(lambda: (found := get(server, "/api/health")).status_code == 503 and found, "it is reported")
    assert answer.json()["healthy"] is False
    assert answer.json()["reasons"][0]
    assert get(server, "/api/view").status_code == 200
    refused = get(server, "/api/topics")
    assert refused.status_code == 503  # it is not the client's mistake, and the log's place is none of its business
    assert refused.json() == {"error": "the log cannot be read now; /api/health and this server's own log tell why"}
    assert get(server, "/api/view?region=1").status_code == 400


def test_the_background_is_what_was_given(log, start):
    server = start(background=Background(lines=lines(), tiles="https://tile.example.org/{z}/{x}/{y}.png"))
    background = get(server, "/api/background").json()
    assert background["lines"]["type"] == "FeatureCollection"
    assert background["tiles"] == "https://tile.example.org/{z}/{x}/{y}.png"
    assert set(background["view"]) == {"lon", "lat", "zoom"}
    policy = get(server, "/").headers["content-security-policy"]
    assert "img-src 'self' data: blob: https://tile.example.org;" in policy
    with pytest.raises(DefinitionError, match="tiles is an address like"):
        Background(tiles="javascript:alert(1)")


def test_of_several_servers_of_tiles_the_page_may_ask_the_one_that_it_does_ask(log, start):
    server = start(background=Background(tiles="https://{s}.tile.example.org:8443/{z}/{x}/{y}.png"))
    policy = get(server, "/").headers["content-security-policy"]
    assert "img-src 'self' data: blob: https://a.tile.example.org:8443;" in policy
    assert policy.endswith("connect-src 'self' https://a.tile.example.org:8443")
    assert get(server, "/api/background").json()["attribution"].startswith("Tiles from tile.example.org ·")


def test_the_page_is_served_from_its_folder_and_nothing_else(log, start, tmp_path):
    assert "make web" in get(start(page=tmp_path / "not built"), "/").text
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>map</title>")
    (folder / "assets" / "index-abc.js").write_text("let x = 1;\n" * 500)
    (folder / ".secret").write_text("x")
    (tmp_path / "outside.txt").write_text("x")
    server = start(page=folder)
    page = get(server, "/")
    assert page.text == "<title>map</title>"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    assert get(server, "/", headers={"if-none-match": page.headers["etag"]}).status_code == 304
    script = get(server, "/assets/index-abc.js")
    assert script.headers["content-encoding"] == "gzip"
    assert script.headers["content-type"].startswith("text/javascript")
    assert "immutable" in script.headers["cache-control"]
    assert script.text.startswith("let x")
    for path in ("/.secret", "/outside.txt", "/../outside.txt", "/assets", "/assets/../../outside.txt"):
        assert get(server, path).status_code == 404, path
    assert get(server, "/").headers["x-content-type-options"] == "nosniff"
    assert httpx.post(f"{server.url}/").status_code == 405


def test_with_a_token_only_those_who_bring_it_are_answered(log, start):
    vehicles(log, (7, 24.9, 60.2))
    server = start(token="gehëim")
    for path in ("/api/layers", "/api/view", "/api/topics", "/metrics", "/api/live/events", "/api/nothing"):
        assert get(server, path).status_code == 401, path
        assert get(server, f"{path}?token=wrong").status_code == 401, path
    assert get(server, "/api/layers", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert get(server, "/api/layers", headers={"Authorization": "Bearer gehëim".encode()}).status_code == 200
    assert get(server, f"/api/layers?token={quote('gehëim')}").status_code == 200
    assert get(server, "/api/health").json() == {"healthy": True}
    assert get(server, "/").status_code == 200  # the page holds no results
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{server.url.replace('http', 'ws')}/api/live")
    assert refused.value.response.status_code == 401
    with viewer(server, f"?token={quote('gehëim')}") as page:
        page.subscribe("vehicles")
        assert set(page.layers["vehicles"]) == {"1/7"}
    with pytest.raises(DefinitionError, match="must not be empty"):
        start(token="")


def test_pages_of_other_sites_are_refused_unless_allowed(log, start):
    server = start(allow_origins=["https://map.example.org"])
    address = f"{server.url.replace('http', 'ws')}/api/live"
    for origin in ("https://evil.example.org", "null", "http://[", f"http://127.0.0.1:{server.port + 1}"):
        with pytest.raises(InvalidStatus) as refused:
            connect(address, origin=origin)
        assert refused.value.response.status_code == 403
        assert get(server, "/api/layers", headers={"Origin": origin}).status_code == 403
    for origin in (server.url, "https://map.example.org"):
        with viewer(server, origin=origin) as page:
            assert page.hello
    allowed = get(server, "/api/layers", headers={"Origin": "https://map.example.org"})
    assert allowed.headers["access-control-allow-origin"] == "https://map.example.org"
    assert "access-control-allow-origin" not in get(server, "/api/layers").headers
    with pytest.raises(DefinitionError, match="an origin looks like"):
        start(allow_origins=["map.example.org/path"])


def test_an_allowed_page_may_bring_the_token_in_a_header(log, start):
    """A browser asks first whether it may: without the token, for that is what it asks about."""
    server = start(token="secret", allow_origins=["https://map.example.org"])
    asked = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    answer = httpx.options(f"{server.url}/api/layers", headers={"Origin": "https://map.example.org", **asked})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://map.example.org"
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()
    assert answer.headers["access-control-allow-methods"] == "GET"
    brought = {"Origin": "https://map.example.org", "Authorization": "Bearer secret"}
    assert get(server, "/api/layers", headers=brought).headers["access-control-allow-origin"] == brought["Origin"]
    wrong = get(server, "/api/layers", headers=brought | {"Authorization": "Bearer wrong"})
    assert (wrong.status_code, wrong.headers["access-control-allow-origin"]) == (401, brought["Origin"])
    refused = httpx.options(f"{server.url}/api/layers", headers={"Origin": "https://evil.example.org", **asked})
    assert refused.status_code == 400
    assert "access-control-allow-origin" not in refused.headers
    assert httpx.options(f"{server.url}/api/layers").status_code == 401  # that is no such question


def test_another_name_for_this_machine_is_refused_while_only_this_machine_is_served(log, start):
    server = start(allow_origins=["https://map.example.org"])
    assert get(server, "/api/layers", headers={"Host": f"evil.example.org:{server.port}"}).status_code == 421
    for host in (f"localhost:{server.port}", "map.example.org", f"[::1]:{server.port}"):
        assert get(server, "/api/layers", headers={"Host": host}).status_code == 200
    open_to_all = start(host="0.0.0.0")
    assert open_to_all.url.startswith("http://localhost:")
    assert get(open_to_all, "/api/layers", headers={"Host": "map.example.org"}).status_code == 200


def test_a_port_that_is_taken_is_reported(log, start):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SetupError, match="choose another with --port"):
        serve(log, port=taken.getsockname()[1])
    with pytest.raises(DefinitionError, match="port must be"):
        serve(log, port=70_000)
    with pytest.raises(DefinitionError, match="speed"):
        start(speed=0.0)


_PATHS = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from(["api", "layers", "view", "history", "live", "vehicles", "..", "", "\0", "%"]), max_size=6
    ).map("/".join),
    st.sampled_from(
        ["api/view", "api/layers/vehicles/view", "api/layers/vehicles/history", "api/alerts", "api/live", "metrics"]
    ),
)
_QUERIES = st.lists(
    st.tuples(
        st.sampled_from(["layers", "region", "filter", "at", "key", "since", "until", "token", "x"])
        | st.text(max_size=5),
        st.text(max_size=30)
        | st.lists(st.floats().map(str) | st.integers().map(str), max_size=5).map(",".join)
        | st.sampled_from(["vehicles", "mode:bus", ":", "mode:", "1e400,0,1,1", "9" * 400]),
    ),
    max_size=5,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=_PATHS, query=_QUERIES)
@example(path="///", query=[])
def test_no_path_and_no_query_breaks_it(shared_server, fuzzing, path, query):
    quoted = quote(path, safe="/%" if "%" not in path else "/", errors="surrogatepass")
    parts = "&".join(f"{quote(a, errors='surrogatepass')}={quote(b, errors='surrogatepass')}" for a, b in query)
    # The whole address: a client takes a path that begins with // for the name of a host.
    answer = fuzzing.get(f"{shared_server.url}/{quoted}?{parts}")
    assert answer.status_code < 500, answer.text


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60).filter(lambda path: not set(path) & set(b" \r\n")))
def test_no_bytes_of_a_request_break_it(shared_server, path):
    with socket.create_connection(("127.0.0.1", shared_server.port), timeout=120) as raw:
        raw.sendall(b"GET /" + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: raw.recv(65_536), b""))
    status = answer.split(b" ", 2)[1]
    assert status < b"500", answer


@pytest.fixture(scope="module")
def fuzzing(shared_server):
    with httpx.Client(base_url=shared_server.url, timeout=120) as client:
        yield client
    assert httpx.get(f"{shared_server.url}/api/health").status_code == 200
