"""Messages over HTTP: answered for when the log has them, refused with a reason when it cannot."""

from __future__ import annotations

import gzip
import io
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf import proto
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.support.ingest_support import NumberProcessor, dead_letters, numbers_in
from tidewheel.errors import DefinitionError, FencedError, MalformedError, SetupError
from tidewheel.ingest.connector import Deliver, Delivered
from tidewheel.ingest.http.connector import HttpConnector
from tidewheel.ingest.http.framing import Gunzip, parse_json_lines, parse_protobuf
from tidewheel.ingest.http.limits import HttpLimits
from tidewheel.ingest.ingest_pb2 import HttpState, RawMessage
from tidewheel.ingest.message import Message
from tidewheel.ingest.pipeline import Pipeline, read_reports
from tidewheel.transport.events.event_pb2 import IngestReport
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Receipt
from tidewheel.transport.open_log import open_log

NDJSON = {"Content-Type": "application/x-ndjson"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
MESSAGES = "/v1/messages"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "city.tw") as opened:
        yield opened


@contextmanager
def served(deliver: Deliver, *, limits: HttpLimits | None = None, **options: Any) -> Iterator[httpx.Client]:
    """A client of a real server on a port of its own."""
    connector = HttpConnector(port=0, limits=limits, **options)
    stop = threading.Event()
    errors: list[Exception] = []

    def run() -> None:
        try:
            connector.run(deliver, stop)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert connector.ready.wait(30)
        with httpx.Client(base_url=connector.name, timeout=60) as client:
            yield client
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive(), "the connector does not stop"
    if errors:
        raise errors[0]


@pytest.fixture
def client(log: Log) -> Iterator[httpx.Client]:
    with served(Pipeline(log, NumberProcessor()), limits=HttpLimits(body=1_000_000, message=50_000)) as opened:
        yield opened


def lines(*numbers: int) -> bytes:
    return b"\n".join(json.dumps({"topic": "numbers/x", "payload": {"n": n}}).encode() for n in numbers)


def delimited(*messages: RawMessage) -> bytes:

    stream = io.BytesIO()
    for message in messages:
        proto.serialize_length_prefixed(message, stream)
    return stream.getvalue()


def numbered(producer: str, sequence: int) -> dict[str, str]:
    return {**NDJSON, "Tidewheel-Producer": producer, "Tidewheel-Sequence": str(sequence)}


def test_json_lines_are_in_the_log_when_they_are_answered(client: httpx.Client, log: Log) -> None:
    body = lines(1, 2, 3) + b'\n\n  \n{"topic": "t", "payload": {"skip": "rule"}}\n{"topic": "t", "payload": "?"}\n'
    answer = client.post(MESSAGES, content=body, headers=NDJSON)
    assert answer.status_code == 200
    assert numbers_in(log) == [1, 2, 3]
    (reason,) = answer.json()["reasons"]
    assert reason.startswith("no number: ")
    assert answer.json() == {
        "received": 5,
        "counts": {"accepted": 3, "filtered": 1, "dead": 1},
        "topics": {"input.odd": 2, "input.even": 1},
        "filtered": {"rule": 1},
        "dead": {"no-number": 1},
        "reasons": [reason],
        "duplicate": False,
    }
    assert [(letter.topic, letter.raw) for letter in dead_letters(log)] == [("t", b"?")]


def test_who_does_not_bring_the_token_is_refused(log: Log) -> None:
    with served(Pipeline(log, NumberProcessor()), token="sesame") as client:
        for given in ({}, {"Authorization": "Bearer sesam"}, {"Authorization": "sesame"}, {"Authorization": "Bearer"}):
            answer = client.post(MESSAGES, content=lines(1), headers={**NDJSON, **given})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer" in answer.json()["error"]
            assert client.get("/v1/report", headers=given).status_code == 401
        assert client.get("/healthz").status_code == 200
        known = {"Authorization": "Bearer sesame"}
        assert client.post(MESSAGES, content=lines(2), headers={**NDJSON, **known}).status_code == 200
        assert client.get("/v1/report", headers=known).json()["received"] == 1
    assert numbers_in(log) == [2]
    with pytest.raises(DefinitionError, match="token"):
        HttpConnector(token="")


def test_protobuf_is_taken_as_well(client: httpx.Client, log: Log) -> None:
    body = delimited(
        RawMessage(topic="numbers/x", payload=b'{"n": 1}'),
        RawMessage(),
        RawMessage(topic="numbers/x", payload=b"\xff\x00", received_at=1_000_000),
    )
    answer = client.post(MESSAGES, content=body, headers=PROTOBUF)
    assert answer.status_code == 200
    assert answer.json()["received"] == 3
    assert numbers_in(log) == [1]
    assert [letter.raw for letter in dead_letters(log)] == [b"", b"\xff\x00"]
    assert dead_letters(log)[1].received_at.ToMicroseconds() == 1_000_000


def test_an_empty_body_is_no_message(client: httpx.Client, log: Log) -> None:
    for headers in (NDJSON, PROTOBUF):
        answer = client.post(MESSAGES, content=b"", headers=headers)
        assert (answer.status_code, answer.json()["received"]) == (200, 0)
    assert read_reports(log) == []


def test_gzip_is_opened(client: httpx.Client, log: Log) -> None:
    packed = gzip.compress(lines(1) + b"\n") + gzip.compress(lines(2))
    answer = client.post(MESSAGES, content=packed, headers={**NDJSON, "Content-Encoding": "gzip"})
    assert answer.status_code == 200
    assert numbers_in(log) == [1, 2]


def test_a_content_type_may_have_parameters(client: httpx.Client) -> None:
    headers = {"Content-Type": "Application/X-NDJSON; charset=utf-8"}
    assert client.post(MESSAGES, content=lines(1), headers=headers).status_code == 200


REFUSED: dict[str, tuple[int, dict[str, str], Callable[[], bytes], str]] = {
    "not JSON": (400, NDJSON, lambda: lines(1) + b"\n\n{nonsense\n" + lines(2), "line 3"),
    "no topic": (400, NDJSON, lambda: b'{"payload": {}}', "line 1"),
    "no payload": (400, NDJSON, lambda: b'{"topic": "a"}', "line 1"),
    "cut protobuf": (400, PROTOBUF, lambda: delimited(RawMessage(topic="a"), RawMessage(topic="b"))[:-1], "message 2"),
    "no protobuf": (400, PROTOBUF, lambda: b"\x02\xff\xff", "message 1"),
    "endless length": (400, PROTOBUF, lambda: b"\xff" * 20, "message 1"),
    "absurd time": (400, PROTOBUF, lambda: delimited(RawMessage(received_at=2**62)), "received_at"),
    "not gzip": (400, {**NDJSON, "Content-Encoding": "gzip"}, lambda: lines(1), "not gzip"),
    "cut gzip": (400, {**NDJSON, "Content-Encoding": "gzip"}, lambda: gzip.compress(lines(1))[:-3], "cut off"),
    "no gzip at all": (400, {**NDJSON, "Content-Encoding": "gzip"}, lambda: b"", "cut off"),
    "large body": (413, NDJSON, lambda: lines(*range(40_000)), "at most 1000000"),
    "large line": (413, NDJSON, lambda: lines(1) + b"\n" + b"x" * 60_000, "line 2"),
    "large message": (413, PROTOBUF, lambda: delimited(RawMessage(payload=b"x" * 60_000)), "message 1"),
    "bomb": (413, {**NDJSON, "Content-Encoding": "gzip"}, lambda: gzip.compress(bytes(50_000_000)), "decompressed"),
    "no type": (415, {}, lambda: lines(1), "Content-Type"),
    "other type": (415, {"Content-Type": "application/json"}, lambda: lines(1), "application/json"),
    "other encoding": (415, {**NDJSON, "Content-Encoding": "br"}, lambda: lines(1), "br"),
    "half an identity": (400, {**NDJSON, "Tidewheel-Producer": "a"}, lambda: lines(1), "belong together"),
    "no name": (400, {**NDJSON, "Tidewheel-Producer": "a b", "Tidewheel-Sequence": "1"}, lambda: lines(1), "visible"),
    "no number": (
        400,
        {**NDJSON, "Tidewheel-Producer": "a", "Tidewheel-Sequence": "-1"},
        lambda: lines(1),
        "Tidewheel-Sequence",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_request_says_why_and_appends_nothing(client: httpx.Client, log: Log, case: str) -> None:
    status, headers, body, reason = REFUSED[case]
    answer = client.post(MESSAGES, content=body(), headers=headers)
    assert answer.status_code == status
    assert reason in answer.json()["error"]
    assert numbers_in(log) == []
    assert read_reports(log) == []
    assert client.post(MESSAGES, content=lines(9), headers=NDJSON).status_code == 200


def test_a_body_of_unknown_length_is_limited_too(client: httpx.Client, log: Log) -> None:
    def endless() -> Iterator[bytes]:
        for n in range(0, 100_000, 100):
            yield lines(*range(n, n + 100)) + b"\n"

    assert client.post(MESSAGES, content=endless(), headers=NDJSON).status_code == 413
    assert numbers_in(log) == []


def test_other_paths_and_methods_are_refused(client: httpx.Client) -> None:
    assert client.get(MESSAGES).status_code == 405
    assert client.get("/").status_code == 404


def test_report_and_health(client: httpx.Client) -> None:
    client.post(MESSAGES, content=lines(1, 2) + b'\n{"topic": "t", "payload": "?"}', headers=NDJSON)
    assert client.get("/healthz").json() == {
        "healthy": True,
        "reasons": [],
        "delivering_seconds": 0.0,
        "waiting": 0,
        "connections": 1,
    }
    assert client.get("/v1/report").json() == {
        "source": "numbers:main",
        "received": 3,
        "topics": {"input.odd": 1, "input.even": 1},
        "filtered": {},
        "dead": {"no-number": 1},
        "repeated": 0,
        "producers": {"remembered": 0, "refused": 0, "forgotten": 0},
    }


def test_a_repeated_request_is_answered_as_a_duplicate(client: httpx.Client, log: Log) -> None:
    for sequence in range(3):
        answers = [
            client.post(MESSAGES, content=lines(sequence, 100), headers=numbered("bus", sequence)) for _ in range(3)
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert [answer.json()["duplicate"] for answer in answers] == [False, True, True]
        assert [answer.json()["received"] for answer in answers] == [2, 2, 2]
        assert {answer.json()["counts"]["accepted"] for answer in answers} == {2}
    assert numbers_in(log) == [0, 1, 2, 100, 100, 100]
    assert client.get("/v1/report").json()["repeated"] == 2 * 2 * 3


def test_a_request_of_dead_letters_only_is_no_success_and_stays_none_when_it_is_repeated(log: Log) -> None:
    bad = b"\n".join(b'{"topic": "t", "payload": "%d?"}' % number for number in range(7))
    for repeated in (False, True, True):
        with served(Pipeline(log, NumberProcessor())) as client:  # also by the next process
            answer = client.post(MESSAGES, content=bad, headers=numbered("bus", 1))
        assert answer.status_code == 422
        reported = answer.json()
        assert (
            reported["counts"]
            == {"accepted": 0, "filtered": 0, "dead": reported["received"]}
            == {**reported["counts"], "dead": 7}
        )
        assert "none of 7 messages was accepted" in reported["error"]
        assert reported["duplicate"] is repeated
        assert len(reported["reasons"]) == (0 if repeated else 5), "the first ones"
    assert len(dead_letters(log)) == 7
    with served(Pipeline(log, NumberProcessor())) as client:
        for more in (b'{"topic": "t", "payload": {"skip": "rule"}}', lines(1)):
            assert client.post(MESSAGES, content=bad + b"\n" + more, headers=NDJSON).status_code == 200
        assert client.get("/v1/report").json()["dead"] == {"no-number": 21}


def test_a_repeat_of_what_an_older_version_noted_is_no_error(log: Log) -> None:
    """It did not note what became of a request."""
    with served(Pipeline(log, NumberProcessor())) as client:
        client.post(MESSAGES, content=lines(1), headers=numbered("bus", 1))
    pipeline = Pipeline(log, NumberProcessor())
    state = HttpState.FromString(pipeline.state)
    state.clients[0].ClearField("outcome")
    pipeline([], state=state.SerializeToString())
    with served(Pipeline(log, NumberProcessor())) as client:
        answer = client.post(MESSAGES, content=lines(1), headers=numbered("bus", 1))
        assert (answer.status_code, answer.json()["counts"], answer.json()["duplicate"]) == (200, None, True)


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (NDJSON, b'{"n": 1}\n\n{"n": 2}\r\n?\n  \n'),
        (JSON, b'[{"n": 1}, {"n":\n2}, "?"]'),
    ],
    ids=["lines", "array"],
)
def test_lines_are_messages_as_they_are(client: httpx.Client, log: Log, headers: dict[str, str], body: bytes) -> None:
    answer = client.post("/v1/lines/numbers/x", content=body, headers=headers)
    assert (answer.status_code, answer.json()["counts"]) == (200, {"accepted": 2, "filtered": 0, "dead": 1})
    assert numbers_in(log) == [1, 2]
    (letter,) = dead_letters(log)
    assert (letter.topic, letter.raw.strip(b'"')) == ("numbers/x", b"?")
    assert client.post("/v1/lines", content=b'{"n": 3}', headers=JSON).json()["topics"] == {"input.odd": 1}


def test_lines_have_the_limits_of_messages(client: httpx.Client, log: Log) -> None:
    for headers, body, status, reason in (
        (JSON, b'[{"n": 1}', 400, "not a JSON document"),
        (JSON, b'{"n": 1}\n{"n": 2}', 400, "application/x-ndjson"),
        (JSON, b"[" * 100_000, 400, "not a JSON document"),
        (JSON, b'["' + b"x" * 60_000 + b'"]', 413, "element 0 has 60002 bytes"),
        (JSON, b"[" + b"1," * 20_000 + b"1]", 413, "more than 20000 elements"),
        (JSON, b'[{"a": [1, 2]}, ",]\\",",' + b"1," * 20_000 + b"1]", 413, "more than 20000 elements"),
        (NDJSON, b"x" * 60_000, 413, "line 1 has 60000 bytes"),
        (NDJSON, b"1\n" * 20_001, 413, "more than 20000 lines"),
        (PROTOBUF, b"", 415, "application/x-ndjson or application/json"),
        ({"Content-Type": "text/plain"}, b"1", 415, "Content-Type must be"),
    ):
        answer = client.post("/v1/lines", content=body, headers=headers)
        assert answer.status_code == status, body[:50]
        assert reason in answer.json()["error"]
    wide = (
        b'[{"skip": "a", "x": [' + b"1," * 19_000 + b'1], "y": ",,,"}, {"skip": "a", "x": [' + b"1," * 5_000 + b"1]}]"
    )
    assert client.post("/v1/lines", content=wide, headers=JSON).json()["filtered"] == {"a": 2}, "commas are no elements"
    refused = client.post(MESSAGES, content=b'{"n": 1}', headers=NDJSON)
    assert refused.status_code == 400
    assert "/v1/lines" in refused.json()["error"]
    assert numbers_in(log) == []


def test_a_repeat_of_lines_is_that_of_the_same_place(client: httpx.Client, log: Log) -> None:
    assert client.post("/v1/lines/a", content=b'{"n": 1}', headers=numbered("bus", 1)).json()["duplicate"] is False
    assert client.post("/v1/lines/a", content=b'{"n": 1}', headers=numbered("bus", 1)).json()["duplicate"] is True
    assert client.post("/v1/lines/b", content=b'{"n": 1}', headers=numbered("bus", 1)).status_code == 409
    assert numbers_in(log) == [1]


def test_the_same_text_without_a_number_is_new(client: httpx.Client, log: Log) -> None:
    for _ in range(3):
        assert client.post(MESSAGES, content=lines(5), headers=NDJSON).json()["duplicate"] is False
    assert numbers_in(log) == [5, 5, 5]


def test_a_number_used_for_something_else_is_a_conflict(client: httpx.Client, log: Log) -> None:
    assert client.post(MESSAGES, content=lines(1), headers=numbered("bus", 5)).status_code == 200
    for sequence, content in ((5, lines(2)), (4, lines(1)), (0, lines(3))):
        answer = client.post(MESSAGES, content=content, headers=numbered("bus", sequence))
        assert answer.status_code == 409
        assert answer.json()["last_sequence"] == 5
    assert client.post(MESSAGES, content=lines(2), headers=numbered("tram", 5)).status_code == 200
    assert client.post(MESSAGES, content=lines(3), headers=numbered("bus", 9)).status_code == 200
    assert numbers_in(log) == [1, 2, 3]


def test_repeats_are_known_again_by_the_next_process(log: Log) -> None:
    for duplicate in (False, True, True):
        with served(Pipeline(log, NumberProcessor())) as client:
            answer = client.post(MESSAGES, content=lines(1), headers=numbered("bus", 0))
            assert answer.json()["duplicate"] is duplicate
    assert numbers_in(log) == [1]


def test_no_producer_is_forgotten_for_another_which_is_refused(log: Log) -> None:
    """Its repeat would be taken twice; one that has not written for long may go, and that is counted."""
    with served(Pipeline(log, NumberProcessor()), limits=HttpLimits(producers=2)) as client:
        for name, sequence in (("a", 0), ("b", 0), ("a", 1)):
            assert client.post(MESSAGES, content=lines(1), headers=numbered(name, sequence)).status_code == 200
        refused = client.post(MESSAGES, content=lines(2), headers=numbered("c", 0))
        assert refused.status_code == 429
        assert "2 producers are remembered" in refused.json()["error"]
        assert "--max-producers" in refused.json()["error"]
        known = [
            client.post(MESSAGES, content=lines(1), headers=numbered(name, sequence)).json()["duplicate"]
            for name, sequence in (("a", 1), ("b", 0))
        ]
        assert known == [True, True]
        assert client.get("/v1/report").json()["producers"] == {"remembered": 2, "refused": 1, "forgotten": 0}
    with served(Pipeline(log, NumberProcessor()), limits=HttpLimits(producers=2, producer_expiry="0 s")) as client:
        assert client.post(MESSAGES, content=lines(3), headers=numbered("c", 0)).status_code == 200
        assert client.post(MESSAGES, content=lines(1), headers=numbered("a", 1)).json()["duplicate"] is True
        assert client.get("/v1/report").json()["producers"] == {"remembered": 2, "refused": 0, "forgotten": 1}
    assert numbers_in(log) == [1, 1, 1, 3]


def test_more_producers_than_fit_into_a_request_s_notes_of_old_are_known_again(log: Log) -> None:
    names = [f"vehicle-{number}" for number in range(300)]
    for duplicate in (False, True):
        with served(Pipeline(log, NumberProcessor())) as client:
            for name in names:
                answer = client.post(MESSAGES, content=lines(1), headers=numbered(name, 0))
                assert answer.json()["duplicate"] is duplicate, name
    assert numbers_in(log) == [1] * len(names)


def test_a_sequence_number_cannot_lock_its_producer_out(client: httpx.Client, log: Log) -> None:
    refused = client.post(MESSAGES, content=lines(1), headers=numbered("new", 2**63 - 1))
    assert (refused.status_code, "first sequence number" in refused.json()["error"]) == (400, True)
    assert client.post(MESSAGES, content=lines(2), headers=numbered("bus", 7)).status_code == 200
    refused = client.post(MESSAGES, content=lines(3), headers=numbered("bus", 2**63 - 1))
    assert (refused.status_code, refused.json()["last_sequence"]) == (400, 7)
    assert "go on from there" in refused.json()["error"]
    for producer, sequence in (("bus", 8), ("bus", 9 + 2**56 - 1), ("new", 2**62)):
        assert client.post(MESSAGES, content=lines(4), headers=numbered(producer, sequence)).status_code == 200
    assert numbers_in(log) == [2, 4, 4, 4]


class Gate:
    """A log that takes nothing until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.entered = threading.Event()
        self.messages: list[Message] = []
        self.error: Exception | None = None
        self.state = b""

    def report(self) -> IngestReport:
        return IngestReport()

    def __call__(self, messages: Sequence[Message], *, repeated: int = 0, state: bytes | None = None) -> Delivered:
        self.entered.set()
        assert self.go.wait(60)
        if self.error is not None:
            raise self.error
        self.messages += messages
        return Delivered(Receipt(0))


def test_requests_beyond_what_may_wait_are_put_off() -> None:
    gate = Gate()
    with served(gate, limits=HttpLimits(waiting=1)) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, MESSAGES, content=lines(1), headers=NDJSON)
        assert gate.entered.wait(30)
        refused = client.post(MESSAGES, content=lines(2), headers=NDJSON)
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) > 0
        assert client.get("/healthz").status_code == 200
        gate.go.set()
        assert waiting.result(60).status_code == 200
        assert client.post(MESSAGES, content=lines(3), headers=NDJSON).status_code == 200
    assert [message.payload for message in gate.messages] == [b'{"n": 1}', b'{"n": 3}']


def test_a_log_that_fails_is_503_and_the_repeat_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.transport.sqlite.transactions.BUSY_SECONDS", 0)
    log = open_log(tmp_path / "city.tw")
    with served(Pipeline(log, NumberProcessor(), patience=0)) as client:
        assert client.post(MESSAGES, content=lines(1), headers=numbered("bus", 1)).status_code == 200
        lock = sqlite3.connect(tmp_path / "city.tw", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        answer = client.post(MESSAGES, content=lines(2), headers=numbered("bus", 2))
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert client.get("/healthz").status_code == 503
        lock.execute("ROLLBACK")
        lock.close()
        assert client.post(MESSAGES, content=lines(1), headers=numbered("bus", 1)).json()["duplicate"] is True
        assert client.post(MESSAGES, content=lines(2), headers=numbered("bus", 2)).json()["duplicate"] is False
        assert client.post(MESSAGES, content=lines(2), headers=numbered("bus", 2)).json()["duplicate"] is True
        assert client.get("/healthz").status_code == 200
    assert numbers_in(log) == [1, 2]


def test_who_is_taken_over_stops(log: Log) -> None:
    def post_to_the_older() -> None:
        with served(Pipeline(log, NumberProcessor())) as client:
            Pipeline(log, NumberProcessor())
            assert client.post(MESSAGES, content=lines(1), headers=NDJSON).status_code == 503

    with pytest.raises(FencedError):
        post_to_the_older()
    assert numbers_in(log) == []


def test_a_body_that_does_not_come_is_given_up(log: Log) -> None:
    with (
        served(Pipeline(log, NumberProcessor()), limits=HttpLimits(body_timeout="200 ms", waiting=1)) as client,
        socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=30) as slow,
    ):
        slow.sendall(
            b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
            b"Content-Length: 99\r\n\r\n{"
        )
        assert b" 408 " in slow.recv(1_000)
        assert client.post(MESSAGES, content=lines(1), headers=NDJSON).status_code == 200


def test_what_is_under_way_is_answered_when_the_server_stops(log: Log) -> None:
    gate = Gate()
    with ThreadPoolExecutor(1) as pool:
        with served(gate) as client:
            address = str(client.base_url.join(MESSAGES))
            posted = pool.submit(httpx.post, address, content=lines(1), headers=NDJSON, timeout=60)
            assert gate.entered.wait(30)
            threading.Timer(0.3, gate.go.set).start()
        assert posted.result(60).status_code == 200
    assert len(gate.messages) == 1


def test_a_port_in_use_is_a_clear_error(log: Log) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        connector = HttpConnector(port=taken.getsockname()[1])
        with pytest.raises(SetupError, match="choose another port"):
            connector.run(Pipeline(log, NumberProcessor()), threading.Event())


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(DefinitionError):
        HttpConnector(port=70_000)
    for wrong in (
        {"body": 0},
        {"waiting": 0},
        {"message": -1},
        {"producers": 0},
        {"messages": 0},
    ):
        with pytest.raises(DefinitionError):
            HttpLimits(**wrong)
    assert HttpConnector().host == "127.0.0.1"


CHILD = """
import sys, threading
from tests.support.ingest_support import NumberProcessor
from tidewheel.ingest.http.connector import HttpConnector
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.transport.open_log import open_log

pipeline = Pipeline(open_log(sys.argv[1]), NumberProcessor())
connector = HttpConnector(port=0)
threading.Thread(target=lambda: connector.ready.wait() and print(connector.name, flush=True), daemon=True).start()
connector.run(pipeline, threading.Event())
"""


@pytest.mark.slow
def test_a_client_that_repeats_itself_to_a_server_that_is_killed_writes_once(log: Log) -> None:
    sequence, first, kills = 0, 0, 0
    while kills < 5:
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, log.address], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process.stdout as said:
            address = said.readline().strip()
        killer: threading.Timer | None = None
        with httpx.Client(base_url=address, timeout=30) as client:
            try:
                while True:
                    content = lines(*range(first, first + 20))
                    assert client.post(MESSAGES, content=content, headers=numbered("bus", sequence)).status_code == 200
                    sequence, first = sequence + 1, first + 20
                    if killer is None:
                        killer = threading.Timer(0.05 * (1 + kills), process.send_signal, [signal.SIGKILL])
                        killer.start()
            except httpx.TransportError:
                assert process.wait(30) == -signal.SIGKILL
                kills += 1
    there = numbers_in(log)
    assert there == list(range(len(there)))
    assert len(there) - first in (0, 20), "what was answered is there, and of what was not at most one request"
    (report,) = read_reports(log)
    assert report.received == len(there)


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_malformed(body: bytes) -> None:
    for parse in (parse_json_lines, parse_protobuf):
        try:
            messages = parse(body, max_message=1_000, received_at=1)
        except MalformedError:
            continue
        assert all(isinstance(message, Message) for message in messages)


@given(
    st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.binary(), st.integers(0, 2**48))), st.integers(1, 50)
)
def test_protobuf_round_trips_in_pieces_of_gzip(content: list[tuple[str, bytes, int]], size: int) -> None:
    body = delimited(*(RawMessage(topic=topic, payload=payload, received_at=at) for topic, payload, at in content))
    packed = gzip.compress(body)
    opener = Gunzip(limit=len(body))
    opened = b"".join(opener.feed(packed[place : place + size]) for place in range(0, len(packed), size))
    opener.end()
    assert [
        (message.topic, message.payload, message.received_at)
        for message in parse_protobuf(opened, max_message=1_000_000, received_at=1)
    ] == content


def test_a_line_is_read_like_a_recording() -> None:
    (message,) = parse_json_lines(
        b'{"received_at": "1970-01-01T00:00:02Z", "topic": "a", "payload_base64": "/wA="}',
        max_message=99,
        received_at=1,
    )
    assert message == Message("a", b"\xff\x00", 2_000_000)
