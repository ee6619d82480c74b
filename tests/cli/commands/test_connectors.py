"""`simulate`, `replay`, `record` and `ingest`: into the log, all accounted for."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from tests.support.command import Running, eventually, lines, tidewheel
from tests.support.mqtt_support import free_port, mosquitto
from tidewheel.ingest.message import Message
from tidewheel.ingest.mqtt.connector import Broker, MqttPublisher
from tidewheel.ingest.pipeline import read_reports
from tidewheel.ingest.replay.recording import RecordedMessage, read_recording
from tidewheel.model.time import now
from tidewheel.transport.events import codec
from tidewheel.transport.open_log import open_log

SECOND = 1_000_000
START = "2026-03-02T06:15:00Z"
LAST = Message("/hfp/v2/deadrun/ongoing/vp/bus/0022/99999", b'{"VP":{"tst":"2026-03-02T06:16:00.000Z"}}', 0)
HFP = ["--processor", "hfp"]
SMALL = ["--rate", 50, "--steady", "--speed", "max", "--clock", START]


@pytest.fixture
def broker(tmp_path):
    """The port of a real broker."""
    with mosquitto(tmp_path / "broker") as running:
        yield running.port


def totals(path):
    with open_log(path) as log:
        (report,) = read_reports(log)
        return report


def subscribed(path) -> bool:
    """Has a connector noted in the log that from now on it misses nothing?"""
    with open_log(path) as log:
        return bool(read_reports(log))


def recorded(path):
    """Topic and payload of all that is in a recording."""
    return [(each.topic, each.payload) for each in read_recording(path) if isinstance(each, RecordedMessage)]


def contents(path):
    """The values of all input topics."""
    with open_log(path) as log:
        return {
            topic.name: [
                value for batch in log.read(topic.name, 0, 0) for value in batch.records.column("value").to_pylist()
            ]
            for topic in log.topics()
            if topic.name.startswith("input.")
        }


def test_the_same_seed_simulates_the_same_city(tmp_path, inside):
    inside("simulate", *SMALL, "--for", "20s", "--log", tmp_path / "one.tw")
    tidewheel("simulate", *SMALL, "--for", "20s", "--log", tmp_path / "same.tw")  # whatever the process
    inside("simulate", *SMALL, "--for", "20s", "--seed", 8, "--log", tmp_path / "other.tw")
    one = contents(tmp_path / "one.tw")
    assert len(one["input.vehicle-position"]) > 500
    assert contents(tmp_path / "same.tw") == one
    assert contents(tmp_path / "other.tw") != one


@pytest.mark.parametrize("speed", ["max", "60"])
def test_a_fast_simulation_ends_now(speed, tmp_path, inside):
    before = now()
    inside("simulate", "--rate", 50, "--steady", "--speed", speed, "--for", "2min", "--log", tmp_path / "city.tw")
    positions = contents(tmp_path / "city.tw")["input.vehicle-position"]
    times = sorted(codec.decode(value).event_time.ToMicroseconds() for value in positions)
    assert times[-1] - times[0] > 100 * SECOND
    assert before - 10 * SECOND < times[-1] < now() + 3 * SECOND, "clocks of vehicles differ by a few seconds"


def test_simulate_reports_what_it_did_and_goes_on_counting(tmp_path, inside):
    log = tmp_path / "city.tw"
    for place in range(2):
        done = inside("simulate", *SMALL, "--for", "10s", "--json", "--log", log)
        reported = lines(done)[-1]
        assert reported["received"] == reported["topics"] + reported["filtered"] + reported["dead"] > 0
        assert f"{reported['received']:,} messages = {reported['topics']:,} in topics" in done.stderr
        if place == 0:
            first = reported["received"]
    assert totals(log).received == first + reported["received"]


def test_simulate_stops_on_sigterm_with_everything_in_the_log(tmp_path):
    log = tmp_path / "city.tw"
    with Running("simulate", "--rate", 50, "--steady", "--json", "--log", log) as running:
        for reported in running.objects():
            if reported["received"] > 0:
                break
        done = running.end(signal.SIGTERM)
        assert lines(done)[-1]["received"] == totals(log).received
    with Running("simulate", "--rate", 50, "--for", "1h", "--json", "--log", log) as running:
        next(running.objects())
        running.end(signal.SIGINT, code=130)


def test_replay_brings_recordings_into_the_log(tmp_path, inside):
    good = {
        "received_at": "2026-03-02T06:15:31Z",
        "topic": "/hfp/v2/journey/ongoing/vp/bus/0022/00817/1071/2/Rautatientori/08:04/1220120/4/60;24/29/06/58",
        "payload": {"VP": {"tst": "2026-03-02T06:15:30.250Z", "lat": 60.2, "long": 24.9, "oper": 22, "veh": 817}},
    }
    recording = tmp_path / "city.jsonl.gz"
    recording.write_bytes(gzip.compress(b"\n".join([json.dumps(good).encode()] * 5 + [b"not JSON"])))
    log = tmp_path / "city.tw"
    reported = lines(inside("replay", recording, *HFP, "--speed", "max", "--volume", 2, "--log", log, "--json"))[-1]
    assert (reported["received"], reported["topics"], reported["dead"]) == (11, 10, 1)
    reported = lines(inside("replay", recording, *HFP, "--speed", "max", "--limit", 3, "--log", log, "--json"))[-1]
    assert (reported["received"], reported["topics"], reported["dead"]) == (3, 3, 0)
    assert (totals(log).received, totals(log).source) == (14, "hfp:replay")


def test_a_replay_that_is_interrupted_says_so(tmp_path):
    later = [
        {"received_at": f"2026-03-02T0{hour}:00:00Z", "topic": "x", "payload": {"hour": hour}} for hour in range(9)
    ]
    (tmp_path / "slow.jsonl").write_text("\n".join(map(json.dumps, later)))
    with Running("replay", tmp_path / "slow.jsonl", *HFP, "--json", "--log", tmp_path / "city.tw") as running:
        for reported in running.objects():
            if reported["received"]:
                break
        running.end(signal.SIGTERM, code=143)
    assert totals(tmp_path / "city.tw").dead == {"bad-topic": 1}


def test_from_the_simulator_over_a_broker_into_log_and_recording(tmp_path, broker, inside):
    log, recording = tmp_path / "city.tw", tmp_path / "city.jsonl.zst"
    address = f"mqtt://127.0.0.1:{broker}"
    with (
        Running("ingest", "--mqtt", address, *HFP, "--json", "--log", log) as ingesting,
        Running("record", "--mqtt", address, *HFP, "--json", "--output", recording) as recording_it,
    ):

        def publish() -> int:
            reported = lines(inside("simulate", "--mqtt", address, *SMALL, "--for", "1s", "--json"))
            return int(reported[-1]["published"])

        eventually(lambda: log.exists() and subscribed(log), "it has subscribed to be brought messages")
        statuses = recording_it.objects()
        published = publish()
        while not next(statuses)["received"]:  # what is published before it has subscribed is nobody's
            published += publish()
        once = publish()
        assert publish() == once > 0
        with MqttPublisher(Broker("127.0.0.1", broker)) as publisher:
            publisher.publish([LAST])
        published += 2 * once + 1
        eventually(lambda: totals(log).received == published, "what is published is in the log, all of it")
        eventually(lambda: recorded(recording)[-1:] == [(LAST.topic, LAST.payload)], "and so in the recording")
        brought = lines(ingesting.end(signal.SIGTERM))[-1]
        written = lines(recording_it.end(signal.SIGTERM))[-1]
    assert brought["received"] == brought["topics"] == published
    assert any(b"deadrun" in value for value in contents(log)["input.vehicle-position"])
    *earlier, _ = recorded(recording)
    first, second = earlier[-2 * once : -once], earlier[-once:]
    assert sorted(first) == sorted(second), "the same seed, the same messages"
    assert len(first) == once
    again = lines(inside("replay", recording, *HFP, "--speed", "max", "--log", tmp_path / "again.tw", "--json"))[-1]
    assert again["received"] == written["received"] == len(earlier) + 1
    assert again["dead"] == 0


def test_ingest_takes_what_is_posted(tmp_path):
    port, log = free_port(), tmp_path / "city.tw"
    with Running("ingest", "--http", f"127.0.0.1:{port}", *HFP, "--json", "--log", log) as running:

        def post() -> bool:
            line = json.dumps({"topic": "nonsense", "payload": {"x": 1}}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/messages", line, {"Content-Type": "application/x-ndjson"}
            )
            try:
                urllib.request.urlopen(request, timeout=120).close()
            except urllib.error.HTTPError as error:
                return error.code == 422  # taken, as a dead letter
            except urllib.error.URLError:
                return False
            raise AssertionError("what is a dead letter alone is no success")

        eventually(post, "it listens")
        assert lines(running.end(signal.SIGTERM))[-1]["dead"] == 1
    assert totals(log).dead == {"bad-topic": 1}
    assert totals(log).source == "hfp:main-http"


def test_json_lines_become_rows_that_a_program_finds_that_knows_only_the_log(tmp_path):
    port, log = free_port(), tmp_path / "shop.tw"
    url = f"http://127.0.0.1:{port}"
    options = [
        "--processor",
        "json",
        "--topic",
        "input.order",
        "--time",
        "ts",
        "--key",
        "user",
        "--field",
        "amount=double",
    ]

    def healthy() -> bool:
        with suppress(urllib.error.URLError), urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
            return bool(answer.status == 200)
        return False

    with Running("ingest", "--http", f"127.0.0.1:{port}", *options, "--json", "--log", log) as running:
        eventually(healthy, "it listens")
        rows = [json.dumps({"ts": 1769860800 + n, "user": f"u{n}", "amount": n}) for n in range(3)]
        body = "\n".join([*rows, '{"user": "no time"}']).encode()
        request = urllib.request.Request(f"{url}/v1/lines", body, {"Content-Type": "application/x-ndjson"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            reported = json.load(answer)
        assert reported["counts"] == {"accepted": 3, "filtered": 0, "dead": 1}
        assert reported["reasons"] == ["the time 'ts' is missing"]
        status = lines(running.end(signal.SIGTERM))[-1]
    assert (status["received"], status["topics"], status["dead"]) == (4, 3, 1)
    shown = lines(tidewheel("tail", "input.order", "--log", log, "--json"))
    assert [line["key"] for line in shown] == ["u0", "u1", "u2"]
    assert [line["details"]["amount"] for line in shown] == [0.0, 1.0, 2.0]


def test_a_port_that_is_taken_is_a_matter_of_setup(tmp_path, inside):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = inside("ingest", "--http", f"127.0.0.1:{port}", *HFP, "--log", tmp_path / "city.tw", code=3).stderr
    assert "choose another port" in said


def test_a_command_ends_with_its_standard_input_when_asked_to(tmp_path):
    with Running(
        "--end-with-stdin", "simulate", "--rate", 50, "--json", "--log", tmp_path / "city.tw", stdin=subprocess.PIPE
    ) as running:
        next(running.objects())
        assert running.process.stdin is not None
        running.process.stdin.close()
        running.process.stdin = None
        running.process.communicate(timeout=60)
        assert running.process.returncode == 0
