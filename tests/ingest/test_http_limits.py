"""Clients that ask for too much, say nothing, or say it twice: others are answered all the same."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.ingest.test_http import MESSAGES, NDJSON, PROTOBUF, Gate, lines, served
from tests.support.ingest_support import NumberProcessor, dead_letters, eventually, numbers_in
from tests.support.raw_http import AMBIGUOUS, answer, connected, get, held, send
from tidewheel.errors import DefinitionError
from tidewheel.ingest.http.connector import HttpConnector
from tidewheel.ingest.http.limits import HttpLimits
from tidewheel.ingest.pipeline import Pipeline, read_reports
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log

GZIP = {"Content-Encoding": "gzip"}
POST = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
HALF_A_HEADER = POST + b"Content-"
HALF_A_BODY = POST + b"Content-Length: 99\r\n\r\n{"
LONG = {"header_timeout": "10 min", "body_timeout": "10 min"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "city.tw") as opened:
        yield opened


def port_of(client: httpx.Client) -> int:
    return client.base_url.port or 0


def test_a_body_of_many_gzip_members_takes_no_longer_than_its_length(log: Log) -> None:
    """What follows a member was copied for each of them: these took minutes."""
    members = gzip.compress(b"") * 400_000 + gzip.compress(lines(1))
    with served(Pipeline(log, NumberProcessor())) as client:
        assert client.post(MESSAGES, content=members, headers={**NDJSON, **GZIP}, timeout=60).status_code == 200
    assert numbers_in(log) == [1]


def test_a_small_request_cannot_hold_a_million_messages(log: Log) -> None:
    """In gzip a thousand empty messages take a byte."""
    with served(Pipeline(log, NumberProcessor())) as client:
        for size in (20_001, 16 << 20):
            bomb = gzip.compress(bytes(size))
            assert len(bomb) < 20_000
            refused = client.post(MESSAGES, content=bomb, headers={**PROTOBUF, **GZIP})
            assert refused.status_code == 413
            assert "more than 20000 messages; send fewer" in refused.json()["error"]
            refused = client.post(MESSAGES, content=gzip.compress(b"\n" * (size + 1)), headers={**NDJSON, **GZIP})
            assert refused.status_code in (400, 413)
        assert read_reports(log) == []
        taken = client.post(MESSAGES, content=bytes(1_000), headers=PROTOBUF)
        assert taken.json()["dead"] == {"no-number": 1_000}
    with served(Pipeline(log, NumberProcessor()), limits=HttpLimits(messages=2)) as client:
        assert client.post(MESSAGES, content=lines(1, 2) + b"\n", headers=NDJSON).status_code == 200
        refused = client.post(MESSAGES, content=lines(1, 2, 3), headers=NDJSON)
        assert (refused.status_code, "--max-messages" in refused.json()["error"]) == (413, True)
    assert numbers_in(log) == [1, 2]
    assert len(dead_letters(log)) == 1_000


def test_health_shows_how_old_the_delivery_at_hand_is() -> None:
    gate = Gate()
    with served(gate, limits=HttpLimits(unhealthy_after="300 ms")) as client:
        posting = threading.Thread(
            target=client.post, args=(MESSAGES,), kwargs={"content": lines(1), "headers": NDJSON}
        )
        posting.start()
        assert gate.entered.wait(30)
        ages = []

        def unhealthy() -> bool:
            health = client.get("/healthz")
            ages.append(health.json()["delivering_seconds"])
            return health.status_code == 503

        eventually(unhealthy, "it takes too long")
        reported = client.get("/healthz").json()
        assert ages == sorted(ages)
        assert reported["delivering_seconds"] >= ages[-1] > 0.3
        assert (reported["healthy"], reported["waiting"]) == (False, 1)
        assert reported["reasons"] == ["the delivery at hand has taken longer than 0.3 s"]
        gate.go.set()
        posting.join(60)
        assert client.get("/healthz").json()["healthy"]


@pytest.mark.parametrize("content", [b"", HALF_A_HEADER, HALF_A_BODY], ids=["silent", "half a header", "half a body"])
def test_held_connections_shut_nobody_out(log: Log, content: bytes) -> None:
    """More than it takes, of this very address, and none of them ends by itself."""
    with (
        served(Pipeline(log, NumberProcessor()), limits=HttpLimits(connections=60, **LONG)) as client,
        held(port_of(client), 150, content),
    ):
        assert client.get("/healthz").json()["connections"] <= 60
        for number in range(5):
            assert (
                httpx.post(str(client.base_url.join(MESSAGES)), content=lines(number), headers=NDJSON).status_code
                == 200
            )
            assert send(port_of(client), get("/healthz"))[0] == 200
    assert numbers_in(log) == [0, 1, 2, 3, 4]


def test_an_address_has_its_share_and_others_theirs(log: Log) -> None:
    with served(Pipeline(log, NumberProcessor()), limits=HttpLimits(connections=40, header_timeout="10 min")) as client:
        with held(port_of(client), 60, HALF_A_HEADER, source="127.0.0.2"):
            eventually(lambda: client.get("/healthz").json()["connections"] == 21, "20 of them, and this one")
            with held(port_of(client), 60, HALF_A_HEADER, source="127.0.0.3"):
                eventually(lambda: client.get("/healthz").json()["connections"] == 40, "as many as there may be")
                assert send(port_of(client), get("/v1/report"))[0] == 200
        eventually(lambda: client.get("/healthz").json()["connections"] == 1, "they have gone")


def test_when_all_connections_are_in_use_health_is_still_answered() -> None:
    """These are requests that are being answered: none of them can be asked to leave."""
    gate = Gate()
    whole = POST + b"Content-Length: %d\r\n\r\n%s" % (len(lines(1)), lines(1))
    with served(gate, limits=HttpLimits(connections=6, connections_per_address=3)) as client, ExitStack() as stack:
        port = port_of(client)
        posted = [*stack.enter_context(held(port, 3, whole, source="127.0.0.2"))]
        posted += stack.enter_context(held(port, 2, whole, source="127.0.0.3"))
        eventually(lambda: send(port, get("/healthz"))[1]["waiting"] == 5, "they wait for the log")
        posted += stack.enter_context(held(port, 1, whole, source="127.0.0.4"))
        # Who has as many as an address may have is in nobody's way.
        eventually(lambda: send(port, get("/healthz"), source="127.0.0.2")[1]["waiting"] == 6, "all wait for the log")
        for source, status, word in (("127.0.0.2", 429, "your address"), ("127.0.0.3", 503, "as it takes")):
            refused = send(port, get("/v1/report"), source=source)
            assert (refused[0], word in refused[1]["error"]) == (status, True)
            assert send(port, get("/healthz"), source=source)[0] == 200
        with held(port, 80, b""):  # the reserve, too, can be held, and does not stay so
            assert send(port, get("/healthz"))[0] == 200
        gate.go.set()
        for raw in posted:
            assert raw.recv(65_536).startswith(b"HTTP/1.1 200 ")
        eventually(lambda: send(port, get("/v1/report"))[0] == 200, "there is room again")


def test_headers_and_bodies_that_drip_are_given_up(log: Log) -> None:
    limits = HttpLimits(header_timeout="500 ms", body_timeout="500 ms")
    with served(Pipeline(log, NumberProcessor()), limits=limits) as client:
        for content, word in (
            (HALF_A_HEADER, "headers have not come within 0.5 s"),
            (HALF_A_BODY, "body has not come"),
        ):
            with connected(port_of(client)) as raw:
                raw.sendall(content)
                stop = threading.Event()

                def drip(raw=raw, stop=stop) -> None:  # type: ignore[no-untyped-def]
                    while not stop.wait(0.05):
                        try:
                            raw.send(b"x")
                        except OSError:
                            return

                dripping = threading.Thread(target=drip)
                dripping.start()
                try:
                    status, reported = answer(raw)
                finally:
                    stop.set()
                    dripping.join()
                assert (status, word in reported["error"]) == (408, True)
        with connected(port_of(client)) as silent:
            assert silent.recv(1) == b""  # nothing was asked, so nothing is answered
        with connected(port_of(client)) as raw:  # a further request on a connection has its deadline, too
            raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal")
            received = b"".join(iter(lambda: raw.recv(65_536), b""))
            assert received.startswith(b"HTTP/1.1 200 ")
            assert b"HTTP/1.1 408 " in received
    assert numbers_in(log) == []


def test_bodies_that_are_slow_to_come_make_room_for_those_that_come(log: Log) -> None:
    size = 100_000
    part = HALF_A_BODY.replace(b" 99\r\n", b" %d\r\n" % size) + b" " * (size - 10)
    with (
        served(Pipeline(log, NumberProcessor()), limits=HttpLimits(body=size, waiting=1, **LONG)) as client,
        held(port_of(client), 8, part) as slow,
    ):
        first = b""
        while not first.endswith(b"}"):
            first += slow[0].recv(65_536)
        assert first.startswith(b"HTTP/1.1 429 ")
        assert b"slow to come" in first
        assert client.post(MESSAGES, content=lines(7) + b" " * (size // 2), headers=NDJSON).status_code == 200
    assert numbers_in(log) == [7]


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_a_request_that_others_might_read_otherwise_is_refused_and_the_connection_ended(log: Log, case: str) -> None:
    status, rest = AMBIGUOUS[case]
    with served(Pipeline(log, NumberProcessor())) as client:
        head = b"POST /v1/messages HTTP/1.1\r\nContent-Type: application/x-ndjson\r\n"
        smuggled = b"GET /v1/report HTTP/1.1\r\nHost: localhost\r\n\r\n"
        reported = send(port_of(client), head + rest + smuggled)
        assert reported[0] == status, reported
        assert reported[1]["error"].startswith("Invalid HTTP request received: ")
    assert read_reports(log) == []


def test_chunks_are_read_strictly(log: Log) -> None:
    head = (
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    with served(Pipeline(log, NumberProcessor())) as client:
        content = lines(5)
        good = b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(content), content)
        assert send(port_of(client), head + good)[0] == 200
        for bad in (
            good.replace(b";a=b", b";a=\rb"),
            good.replace(b";a=b", b";a=\nb"),
            b"-" + good,
            b"0x" + good,
            good.replace(b"\r\n0\r\n", b"xx0\r\n"),
            good[:-2] + b"X: a\r\n b\r\n\r\n",
            good[:-2] + b"X: a\n\r\n",
        ):
            assert send(port_of(client), head + bad)[0] == 400, bad
    assert numbers_in(log) == [5]


def test_pages_of_other_sites_and_other_names_for_this_machine_are_refused(log: Log) -> None:
    allowed = "https://depot.example.org"
    with served(Pipeline(log, NumberProcessor()), allow_origins=[allowed]) as client:
        for headers, status in (
            ({"Host": "evil.example.org"}, 421),
            ({"Host": f"evil.example.org:{port_of(client)}"}, 421),
            ({"Origin": "https://evil.example.org"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"http://127.0.0.1:{port_of(client) + 1}"}, 403),
        ):
            refused = client.post(MESSAGES, content=lines(1), headers={**NDJSON, **headers})
            assert refused.status_code == status, headers
            assert "--allow-origin" in refused.json()["error"]
            assert client.get("/v1/report", headers=headers).status_code == status
        for headers in (
            {"Origin": str(client.base_url).rstrip("/")},
            {"Origin": allowed},
            {"Host": "depot.example.org"},
        ):
            assert client.post(MESSAGES, content=lines(2), headers={**NDJSON, **headers}).status_code == 200, headers
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        assert client.options(MESSAGES, headers={"Origin": allowed, **asked}).status_code == 200
        assert client.options(MESSAGES, headers={"Origin": "https://evil.example.org", **asked}).status_code == 400
    assert numbers_in(log) == [2, 2, 2]


def test_other_machines_are_let_in_only_with_a_token_or_when_told_so(log: Log) -> None:
    for host in ("0.0.0.0", "::", "", "192.0.2.1", "ingest.example.org", "127.example.org"):
        with pytest.raises(DefinitionError, match=r"could write to the log: give a token .*--without-token"):
            HttpConnector(host=host)
        assert HttpConnector(host=host, token="sesame").host == host
        assert HttpConnector(host=host, without_token=True).host == host
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.9"):
        assert HttpConnector(host=host).host == host
    with served(Pipeline(log, NumberProcessor()), host="0.0.0.0", token="sesame") as client:
        url = f"http://127.0.0.1:{port_of(client)}"
        named = {"Host": "ingest.example.org", **NDJSON}
        assert httpx.post(url + MESSAGES, content=lines(1), headers=named).status_code == 401
        named["Authorization"] = "Bearer sesame"
        assert httpx.post(url + MESSAGES, content=lines(1), headers=named).status_code == 200
        assert httpx.post(f"{url}{MESSAGES}?token=sesame", content=lines(1), headers=NDJSON).status_code == 401
    assert numbers_in(log) == [1]
