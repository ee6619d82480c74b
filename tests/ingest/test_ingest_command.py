"""`tidewheel ingest` against a real broker: side by side with HTTP, shared by processes, and with certificates."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.command import Running, lines
from tests.support.hfp_messages import hfp, topic
from tests.support.ingest_support import dead_letters, eventually, values
from tests.support.mqtt_support import Mosquitto, free_port, make_certificates, mosquitto, tls_options
from tidewheel.ingest.message import Message
from tidewheel.ingest.mqtt.connector import Broker, MqttPublisher
from tidewheel.ingest.pipeline import read_reports
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import Event
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import Door, VehiclePosition

COUNT = 600
ARRIVED = 1_772_432_131_000_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "city.tw") as opened:
        yield opened


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path / "broker") as running:
        yield running


def positions(vehicles: range, *modes: str) -> list[Message]:
    """One message of each vehicle, of the modes in turn."""
    return [hfp(topic=topic(mode=modes[n % len(modes)], vehicle=f"{n:05d}")) for n in vehicles]


def vehicles_in(log: Log) -> list[int]:
    """Those whose positions are in the log, sorted; one that is there twice is twice in the list."""
    found = [codec.unpack(codec.decode(value)) for value in values(log, "input.vehicle-position")]
    assert all(isinstance(message, VehiclePosition) for message in found)
    return sorted(message.vehicle for message in found)  # type: ignore[attr-defined]


def ingesting(log: Log, *sources: str) -> None:
    """Wait until these have begun: each notes in the log that it has subscribed."""
    eventually(lambda: {*sources} <= {report.source for report in read_reports(log)}, "all have subscribed")


def publish(port: int, messages: Sequence[Message]) -> None:
    with MqttPublisher(Broker("127.0.0.1", port)) as publisher:
        assert publisher.publish(messages) == len(messages)


def post(port: int, messages: Sequence[Message]) -> None:
    body = b"\n".join(json.dumps({"topic": m.topic, "payload": json.loads(m.payload)}).encode() for m in messages)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/messages", body, {"Content-Type": "application/x-ndjson"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["received"] == len(messages)


def test_mqtt_and_http_in_one_process_bring_every_message_once(broker: Mosquitto, log: Log) -> None:
    port = free_port()
    addresses = ["--mqtt", f"127.0.0.1:{broker.port}", "--http", f"127.0.0.1:{port}"]
    with Running("ingest", "--processor", "hfp", *addresses, "--json", "--log", log.address) as running:
        ingesting(log, "hfp:main-mqtt")
        for first in range(0, COUNT, 200):
            publish(broker.port, positions(range(first, first + 100), "bus"))
            post(port, positions(range(first + 100, first + 200), "tram"))
        eventually(lambda: len(vehicles_in(log)) >= COUNT, "all arrive")
        reported = lines(running.end(signal.SIGTERM))[-1]
    assert vehicles_in(log) == list(range(COUNT))
    assert reported["received"] == reported["topics"] == COUNT
    counts = {report.source: report.received for report in read_reports(log)}
    assert counts == {"hfp:main-mqtt": COUNT // 2, "hfp:main-http": COUNT // 2}


def test_json_comes_by_mqtt_and_by_http_into_one_topic(broker: Mosquitto, log: Log) -> None:
    port = free_port()
    addresses = ["--mqtt", f"127.0.0.1:{broker.port}", "--http", f"127.0.0.1:{port}"]
    options = ["--processor", "json", "--topic", "input.order", "--time", "ts", "--key", "user"]
    rows = [json.dumps({"ts": 1769860800 + n, "user": f"u{n}"}).encode() for n in range(6)]
    with Running("ingest", *options, *addresses, "--json", "--log", log.address) as running:
        ingesting(log, "json:main-mqtt")
        publish(broker.port, [Message("tidewheel/input.order", row, ARRIVED) for row in (*rows[:3], b"?")])
        post(port, [Message("anywhere", row, ARRIVED) for row in rows[3:]])
        eventually(lambda: sum(report.received for report in read_reports(log)) >= 7, "all arrive")
        reported = lines(running.end(signal.SIGTERM))[-1]
    assert (reported["received"], reported["topics"], reported["dead"]) == (7, 6, 1)
    keys = [key for batch in log.read("input.order", 0, 0) for key in batch.records["key"].to_pylist()]
    assert sorted(keys) == [b"u%d" % n for n in range(6)]


def door(number: int) -> Event:
    return codec.pack(Door(vehicle=number, event="doo"), event_time=1_772_432_130_250_000 + number)


def unknown(number: int) -> Event:
    """An event of a type that nobody here has heard of."""
    event = door(number)
    event.details.type_url = "type.googleapis.com/shop.v7.Order"
    event.details.value = b"\xff\xff order %d" % number
    return event


def test_events_come_by_mqtt_and_by_http_and_each_is_accounted_for(broker: Mosquitto, log: Log) -> None:
    port = free_port()
    addresses = ["--mqtt", f"127.0.0.1:{broker.port}", "--http", f"127.0.0.1:{port}"]
    by_mqtt = [codec.encode(door(0)), codec.encode(unknown(1)), b"\xff"]
    by_http = [codec.encode(event, format="json") for event in (door(2), unknown(3))] + [b'{"no": "event"}']
    with Running("ingest", "--processor", "events", *addresses, "--json", "--log", log.address) as running:
        ingesting(log, "events:main-mqtt")
        publish(broker.port, [Message("tidewheel/input.door", payload, ARRIVED) for payload in by_mqtt])
        post(port, [Message("input.door", payload, ARRIVED) for payload in by_http])
        eventually(lambda: sum(report.received for report in read_reports(log)) >= 6, "all arrive")
        reported = lines(running.end(signal.SIGTERM))[-1]
    assert {count: reported[count] for count in ("received", "topics", "filtered", "dead")} == {
        "received": 6,
        "topics": 4,
        "filtered": 0,
        "dead": 2,
    }
    reports = {report.source: report for report in read_reports(log)}
    assert sorted(reports) == ["events:main-http", "events:main-mqtt"]
    for report in reports.values():
        assert (report.received, dict(report.topics), dict(report.filtered)) == (3, {"input.door": 2}, {})
        assert dict(report.dead) == {"bad-event": 1}
    found = {event.event_time.ToMicroseconds(): event for event in map(codec.decode, values(log, "input.door"))}
    sent = [door(0), unknown(1), door(2), unknown(3)]
    assert {at: event.details for at, event in found.items()} == {
        event.event_time.ToMicroseconds(): event.details for event in sent
    }
    letters = dead_letters(log, "events")
    assert sorted(letter.raw for letter in letters) == sorted([by_mqtt[-1], by_http[-1]])
    assert all(letter.reason for letter in letters)


def test_processes_that_share_the_fleet_by_its_modes_bring_every_message_once(broker: Mosquitto, log: Log) -> None:
    shared = ["ingest", "--mqtt", f"127.0.0.1:{broker.port}", "--processor", "hfp", "--json", "--log", log.address]
    with (
        Running(*shared, "--option", "modes=bus", "--source", "buses") as buses,
        Running(*shared, "--option", "modes=tram", "--option", "modes=train", "--source", "rails") as rails,
    ):
        ingesting(log, "hfp:buses-mqtt", "hfp:rails-mqtt")
        publish(broker.port, positions(range(COUNT), "bus", "tram", "train"))
        eventually(lambda: len(vehicles_in(log)) >= COUNT, "all arrive")
        for running in (buses, rails):
            running.end(signal.SIGTERM)
    assert vehicles_in(log) == list(range(COUNT))
    reports = {report.source: report for report in read_reports(log)}
    assert {source: report.received for source, report in reports.items()} == {
        "hfp:buses-mqtt": COUNT // 3,
        "hfp:rails-mqtt": COUNT - COUNT // 3,
    }
    assert not any(report.filtered for report in reports.values()), "each got its own part only"


def test_commands_show_their_certificates(tmp_path: Path, log: Log, inside: Callable[..., object]) -> None:
    folder = make_certificates(tmp_path)
    shown = [
        "--ca",
        folder / "ca.crt",
        "--certificate",
        folder / "client.crt",
        "--certificate-key",
        folder / "client.key",
    ]
    with mosquitto(tmp_path / "broker", *tls_options(folder), "require_certificate true") as broker:
        address, hfp = ["--mqtt", f"127.0.0.1:{broker.port}", *shown], ["--processor", "hfp"]
        with (
            Running("ingest", *address, *hfp, "--json", "--log", log.address) as running,
            Running("record", *address, *hfp, "--json", "--output", tmp_path / "city.jsonl") as recording,
        ):
            ingesting(log, "hfp:main-mqtt")
            small = ["--rate", 50, "--steady", "--speed", "max", "--for", "1s"]
            recorded = recording.objects()
            while not next(recorded)["received"]:
                inside("simulate", *address, *small)
            assert lines(running.end(signal.SIGTERM))[-1]["received"] > 0
            recording.end(signal.SIGTERM)
