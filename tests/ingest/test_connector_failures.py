"""Whatever ends a connector is reported, and ends the command with an exit code that says so."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests import ROOT
from tests.support.command import Running
from tests.support.ingest_support import NumberProcessor, dead_letters, eventually, number, numbers_in
from tests.support.mqtt_support import free_port
from tidewheel.errors import PanicError
from tidewheel.ingest.connector import Deliver, run_all
from tidewheel.ingest.http.connector import HttpConnector, _DeliveryServer
from tidewheel.ingest.http.framing import parse_protobuf
from tidewheel.ingest.ingest_pb2 import RawMessage
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.transport.events import codec
from tidewheel.transport.events.converter import Converter
from tidewheel.transport.events.event_pb2 import Event
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import VehiclePosition

PANICKING = bytes.fromhex("1affffffffffffffffff01")  # an event with details of 2^64 - 1 bytes
DEEP = b"\x0b" * 500_000  # groups within groups: more than the decoder's stack bears


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "city.tw") as opened:
        yield opened


def panic() -> None:
    """A real one."""
    Converter(Event.DESCRIPTOR)._handler.array_to_record_batch(pa.array([PANICKING]))


def post(port: int, *payloads: bytes) -> dict[str, object]:
    messages = [RawMessage(topic="input.fuzz", payload=payload).SerializeToString() for payload in payloads]
    body = b"".join(_varint(len(message)) + message for message in messages)
    assert len(parse_protobuf(body, max_message=1 << 20, received_at=0)) == len(payloads)
    headers = {"Content-Type": "application/x-protobuf"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/messages", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        reported: dict[str, object] = json.load(answer)
        return reported


def _varint(size: int) -> bytes:
    found = bytearray()
    while size > 127:
        found.append(size & 127 | 128)
        size >>= 7
    return bytes([*found, size])


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_events_that_the_decoder_does_not_bear_are_dead_letters_and_ingestion_goes_on(log: Log) -> None:
    port = free_port()
    good = codec.encode(codec.pack(VehiclePosition(vehicle=1), event_time=1))
    arguments = ("--http", f"127.0.0.1:{port}", "--processor", "events", "--json", "--log", log.address)
    with Running("ingest", *arguments) as running:
        eventually(lambda: is_listening(port), "it listens")
        for hostile in (PANICKING, DEEP):
            reported = post(port, good, hostile, good)
            assert (reported["topics"], reported["dead"]) == ({"input.fuzz": 2}, {"bad-event": 1})
        running.end(signal.SIGTERM)
    letters = dead_letters(log, "events")
    assert [letter.raw for letter in letters] == [PANICKING, DEEP]
    assert "broke off" in letters[0].reason


def test_a_processor_that_panics_loses_no_message(log: Log) -> None:
    class Panicking(NumberProcessor):
        def process(self, messages):  # type: ignore[no-untyped-def]
            if any(message.payload == b"boom" for message in messages):
                panic()
            return super().process(messages)

    boom = number(2)
    boom = type(boom)(boom.topic, b"boom", boom.received_at)
    report = Pipeline(log, Panicking())
    report([number(1), boom, number(3)])
    assert numbers_in(log) == [1, 3]
    assert [letter.raw for letter in dead_letters(log)] == [b"boom"]


class Failing:
    """A connector that ends in some way after each delivery, until it has none left."""

    def __init__(self, *deliveries: int, how: object, resumes: bool) -> None:
        self.name = "failing"
        self.resumes = resumes
        self._left = list(deliveries)
        self._how = how

    def run(self, deliver: Deliver, stop: threading.Event) -> None:
        if self._left:
            deliver([number(self._left.pop(0))])
            if isinstance(self._how, BaseException):
                raise self._how
            panic()


@pytest.mark.parametrize(
    ("how", "resumes", "brought"),
    [
        (panic, False, [1]),
        (panic, True, [1, 2]),
        (OSError("the cable is out"), True, [1, 2]),
        (SystemExit(0), True, [1]),  # it asked for it
    ],
)
def test_a_connector_that_dies_is_reported_and_started_again_if_it_resumes(
    log: Log, how: object, resumes: bool, brought: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewheel.ingest.connector._FIRST_WAIT", 0.01)
    reported: list[Exception] = []
    connector = Failing(1, 2, how=how, resumes=resumes)
    pairs = [(connector, Pipeline(log, NumberProcessor()))]
    ((failed, failure),) = run_all(pairs, threading.Event(), on_failure=lambda _, failure: reported.append(failure))
    assert failed is connector
    assert numbers_in(log) == brought
    assert len(reported) == len(brought)
    assert isinstance(failure, PanicError) == (how is panic)


SCRIPT = """
import sys
from tidewheel.cli.progress import stoppable
from tidewheel.cli.connectors import run_connectors
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.transport.open_log import open_log
from tests.support.ingest_support import NumberProcessor
from tests.ingest.test_connector_failures import Failing, panic

how = {"panic": panic, "exit": SystemExit(0)}[sys.argv[2]]
with open_log(sys.argv[1]) as log, stoppable() as stop:
    pair = Failing(1, how=how, resumes=False), Pipeline(log, NumberProcessor())
    run_connectors([pair], stop=stop, length=None, as_json=True)
"""


@pytest.mark.parametrize("how", ["panic", "exit"])
def test_a_command_whose_connector_died_ends_with_an_exit_code_that_says_so(log: Log, how: str) -> None:
    command = [sys.executable, "-c", SCRIPT, log.address, how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["received"], len(last["trouble"])) == (1, 1)
    assert numbers_in(log) == [1]


def test_a_server_that_ends_by_itself_is_a_failure(log: Log) -> None:
    failures: list[BaseException] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        run = _DeliveryServer(HttpConnector(port=0), Pipeline(log, NumberProcessor()), listener)

        def work() -> None:
            try:
                run.run(threading.Event())
            except RuntimeError as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        eventually(lambda: run._server.started, "it has started")
        run._server.should_exit = True
        thread.join(60)
    assert [str(failure) for failure in failures] == ["the server ended by itself"]
