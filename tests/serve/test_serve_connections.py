"""Clients of the map that hold connections, or whose requests are strange: others are answered all the same."""

from __future__ import annotations

import threading
import time

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.raw_http import AMBIGUOUS, answer, connected, get, held, send
from tests.support.serve_support import eventually, vehicles, viewer
from tidewheel.ingest.http import server as http_server
from tidewheel.ingest.http.connections import ConnectionLimits, Connections
from tidewheel.ingest.http.server import HttpServer, listen
from tidewheel.serve import serve
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.transport.open_log import open_log

HANDSHAKE = (
    b"GET /api/live HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n%s\r\n"
)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    with open_log(tmp_path_factory.mktemp("connections") / "city.tw") as log:
        vehicles(log, (7, 24.9, 60.2))
        with serve(log, port=0, limits=ServeLimits(connections=60, connections_per_address=50)) as server:
            yield server


@pytest.mark.parametrize("content", [b"", b"GET /api/view HTTP/1.1\r\nHost: local"], ids=["silent", "half a header"])
def test_held_connections_shut_nobody_out(shared_server, content):
    with held(shared_server.port, 150, content):
        assert len(shared_server.connections) <= 60
        for _ in range(3):
            assert send(shared_server.port, get("/api/health"))[0] == 200
            assert httpx.get(f"{shared_server.url}/api/view", timeout=120).status_code == 200
            with viewer(shared_server) as page:
                page.subscribe("vehicles")
    eventually(lambda: len(shared_server.connections) == 0, "all have gone")


def test_those_who_look_on_are_never_asked_to_leave(log, start):
    vehicles(log, (7, 24.9, 60.2))
    server = start(limits=ServeLimits(connections=2))
    with viewer(server) as first, viewer(server) as second, held(server.port, 40, b""):
        assert send(server.port, get("/api/health"))[0] == 200
        refused = send(server.port, get("/api/view"))
        assert (refused[0], "connections from your address" in refused[1]["error"]) == (429, True)
        with pytest.raises(InvalidStatus) as reported:
            connect(f"{server.url.replace('http', 'ws')}/api/live")
        assert reported.value.response.status_code == 429
        for page in (first, second):
            page.subscribe("vehicles")
            assert set(page.layers["vehicles"]) == {"1/7"}
    eventually(lambda: len(server.connections) == 0, "all have gone")
    with viewer(server):
        assert len(server.connections) == 1


def test_a_handshake_may_bring_many_cookies_and_is_answered_whatever_it_brings(shared_server):
    with viewer(shared_server, additional_headers={"Cookie": f"a={'x' * 9_000}"}) as page:
        page.subscribe("vehicles")
        assert set(page.layers["vehicles"]) == {"1/7"}
    for header, status, word in (
        (b"X: " + b"y" * 9_000 + b"\r\n", 431, "a header of a WebSocket's handshake has at most"),
        (b"Cookie: " + b"y" * 40_000 + b"\r\n", 431, "the headers have more than 32768 bytes"),
        (b"X: y\r\n" * 120, 431, "more than 100 headers"),
    ):
        reported = send(shared_server.port, HANDSHAKE % header)
        assert (reported[0], word in reported[1]["error"]) == (status, True), reported
    reported = send(shared_server.port, HANDSHAKE.replace(b"/live ", b"/live?x=" + b"y" * 9_000 + b" ") % b"")
    assert (reported[0], "has at most" in reported[1]["error"]) == (414, True)
    with connected(shared_server.port) as raw:
        raw.sendall(HANDSHAKE.replace(b"Version: 13", b"Version: 7") % b"")
        assert raw.recv(65_536).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_a_request_that_others_might_read_otherwise_is_refused_and_the_connection_ended(shared_server, case):
    status, rest = AMBIGUOUS[case]
    reported = send(shared_server.port, b"GET /api/layers HTTP/1.1\r\n" + rest + get("/api/view"))
    assert reported[0] == status, reported
    assert reported[1]["error"].startswith("Invalid HTTP request received: ")


def test_another_version_of_http_is_refused_in_words(shared_server):
    reported = send(shared_server.port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert (reported[0], "HTTP/1.1" in reported[1]["error"]) == (505, True)


def test_a_body_that_nobody_wants_does_not_hold_the_connection(log, start, monkeypatch):
    monkeypatch.setattr("tidewheel.serve.http.web_server._BODY_SECONDS", 0.3)
    server = start()
    with connected(server.port) as raw:
        raw.sendall(b"GET /api/layers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
        assert answer(raw)[0] == 200  # which is to say that it has ended


async def lavish(scope, receive, send):
    """Answers everybody with more than a connection's buffers take."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": bytes(32 << 20)})
        await send({"type": "websocket.send", "bytes": b"the next one waits"})
        await receive()
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(32 << 20)})


@pytest.mark.parametrize("way", ["closes", "stays", "socket", "closing socket"])
def test_who_takes_a_little_of_an_answer_and_no_more_does_not_keep_the_connection(monkeypatch, way):
    monkeypatch.setattr(http_server, "_PONG_SECONDS", 0.3)
    connections = Connections(ConnectionLimits(stall_seconds=0.3))
    options = {"ws_ping_interval": 0.1} if way == "closing socket" else {}
    server = HttpServer(lavish, connections=connections, health="/health", websockets=True, lifespan="off", **options)
    listening = listen("127.0.0.1", 0, fix="")
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]))
    thread.start()
    try:
        asked = {"closes": get("/"), "stays": get("/").replace(b"Connection: close", b"X: y")}.get(way, HANDSHAKE % b"")
        with connected(listening.getsockname()[1]) as raw:
            raw.sendall(asked)
            eventually(lambda: len(connections) == 1, "it is let in")
            for _ in range(4):
                raw.recv(1 << 16)
                time.sleep(0.1)  # it takes its time, and then no more
            eventually(lambda: len(connections) == 0, "it is ended")
    finally:
        server.should_exit = True
        thread.join()


def test_a_stream_outlives_every_deadline_of_a_request(log, start, monkeypatch):
    monkeypatch.setattr("tidewheel.serve.http.web_server._BODY_SECONDS", 0.1)
    monkeypatch.setattr("tidewheel.serve.http.web_server._HEADER_SECONDS", 0.1)
    vehicles(log, (7, 24.9, 60.2))
    server = start()
    with viewer(server) as page, httpx.stream("GET", f"{server.url}/api/live/events", timeout=120) as stream:
        for _ in range(2):
            page.next("status")  # one a second
        page.subscribe("vehicles")
        events = (line for line in stream.iter_lines() if line.startswith("event: "))
        assert [next(events) for _ in range(5)].count("event: status") >= 2
