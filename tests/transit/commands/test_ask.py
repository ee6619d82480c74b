"""`ask`: answers for the jobs, from whoever knows them."""

from __future__ import annotations

import re
import signal
import threading
import zipfile
from dataclasses import asdict

import pytest

from tests.support.command import Running, lines
from tidewheel import ingest
from tidewheel.ingest import Limits
from tidewheel.model.time import format_duration
from tidewheel.transport.events import codec
from tidewheel.transport.open_log import open_log
from tidewheel_transit.final_stop import FINAL_STOP
from tidewheel_transit.final_stop.service import RoutingServer
from tidewheel_transit.transit_pb2 import VehiclePosition

DEFAULTS = asdict(Limits())
DURATIONS = {name for name, kind in Limits.__annotations__.items() if "Duration" in kind}
SMALL = ["--rate", 20, "--steady", "--speed", "max", "--clock", "2026-03-02T06:15:00Z", "--for", "3s"]


def test_what_is_in_the_log_is_asked_for_once(inside, tmp_path):
    log = tmp_path / "city.tw"
    inside("simulate", "--log", log, *SMALL)
    asked = ["ask", "final-stop", "--provider", "simulator", "--log", log, "--until-idle", "--json"]
    last = lines(inside(*asked))[-1]
    assert last["answered"] > 5
    assert (last["failed"], last["open"]) == (0, 0)
    with open_log(log) as opened:
        assert opened.topic_info(FINAL_STOP.topic).count == last["answered"]
    assert lines(inside(*asked))[-1] == {
        "events": 0,
        "answered": 0,
        "unknown": 0,
        "failed": 0,
        "open": 0,
        "lost": 0,
        "damaged": 0,
    }


def test_it_goes_on_until_it_is_told_to_stop(inside, tmp_path):
    log = tmp_path / "city.tw"
    inside("simulate", "--log", log, *SMALL)
    running = Running("ask", "final-stop", "--provider", "simulator", "--log", log, "--json")
    assert next(status for status in running.objects() if status["answered"] and not status["open"])
    running.end(signal.SIGTERM)


def test_files_of_a_timetable_are_asked(inside, tmp_path):
    """A feed that knows every second journey: the answers are in the log, and for the others the reason."""
    log, path = tmp_path / "city.tw", tmp_path / "feed.zip"
    inside("simulate", "--log", log, *SMALL)
    keys = sorted(keys_in(log))
    with zipfile.ZipFile(path, "w") as feed:
        for name, text in timetable(keys[::2]).items():
            feed.writestr(name, text)
    last = lines(inside("ask", "final-stop", "--provider", path, "--log", log, "--until-idle", "--json"))[-1]
    assert (last["answered"], last["unknown"], last["failed"]) == (len(keys[::2]), len(keys[1::2]), 0)
    assert outcomes_in(log) == {
        key: f"stop {n}" if n % 2 == 0 else "the service knows no answer" for n, key in enumerate(keys)
    }


def test_a_service_is_asked_that_may_be_gone(inside, tmp_path):
    log = tmp_path / "city.tw"
    inside("simulate", "--log", log, *SMALL)
    keys = keys_in(log)
    server = RoutingServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    quick = ["--backoff", "1ms", "--timeout", "2s", "--retry-failed", "1ms", "--breaker-failures", 1_000_000]
    ask = ["ask", "final-stop", "--provider", server.url, "--log", log, "--until-idle", "--json", *quick]
    try:
        last = lines(inside(*ask))[-1]
    finally:
        server.shutdown()
        server.server_close()
    assert (last["answered"], last["failed"]) == (len(keys), 0)
    answered = outcomes_in(log)
    inside("simulate", "--log", log, *SMALL, "--clock", "2026-03-02T09:15:00Z")
    more = keys_in(log) - keys
    assert more
    last = lines(inside(*ask))[-1]
    assert (last["answered"], last["failed"]) == (0, len(more))
    assert outcomes_in(log) == {
        **answered,
        **dict.fromkeys(more, "the service cannot be reached: ConnectionRefusedError"),
    }


def timetable(journeys):
    """GTFS with a trip for each of these journeys, in that order; each ends at a stop of its own."""
    routes = dict.fromkeys(route for route, *_ in journeys)
    trips = [f"{route},s,{n},{direction - 1}" for n, (route, direction, _, _) in enumerate(journeys)]
    times = [
        f"{n},{at}:00,{at}:00,{stop},{place}"
        for n, (*_, at) in enumerate(journeys)
        for place, stop in enumerate(["start", f"stop {2 * n}"])
    ]
    stops = ["start,60.0,24.0", *(f"stop {2 * n},60.1,24.9" for n in range(len(journeys)))]
    return {
        "routes.txt": "\n".join(["route_id,route_short_name", *(f"{route},{route}" for route in routes)]),
        "trips.txt": "\n".join(["route_id,service_id,trip_id,direction_id", *trips]),
        "stop_times.txt": "\n".join(["trip_id,arrival_time,departure_time,stop_id,stop_sequence", *times]),
        "stops.txt": "\n".join(["stop_id,stop_lat,stop_lon", *stops]),
    }


def keys_in(path):
    """The journeys that positions in a log are of."""
    with open_log(path) as log:
        values = [batch.records["value"] for batch in log.read("input.vehicle-position", 0, 0)]
    rows = [row for value in values for row in codec.decode_columns(VehiclePosition, value).columns.to_pylist()]
    found = {tuple(row[name] for name in FINAL_STOP.keys) for row in rows}
    return {key for key in found if None not in key}


def outcomes_in(path):
    """By journey: its final stop, or the reason why that is not known."""
    with open_log(path) as log:
        values = [value for batch in log.read(FINAL_STOP.topic, 0, 0) for value in batch.records["value"].to_pylist()]
    found = {}
    for value in values:
        message = codec.unpack(codec.decode(value))
        said = FINAL_STOP.read_answer(message.answer)["final_stop"] if message.answer else message.reason
        found[FINAL_STOP.read_key(message.key)] = said
    return found


class Reported(Exception):
    """Raised instead of asking, with the limits."""


@pytest.fixture
def limits(inside, monkeypatch, tmp_path):
    """The limits that a command comes to."""

    def record(*given, limits, **_):
        raise Reported(limits)

    def found(*options):
        with pytest.raises(Reported) as caught:
            inside("ask", "final-stop", "--provider", "simulator", "--log", tmp_path / "city.tw", *options)
        return asdict(caught.value.args[0])

    monkeypatch.setattr(ingest, "LookupWorker", record)
    return found


def test_every_limit_is_an_option_and_its_default_is_reported(inside, limits):
    text = re.sub(r"[│\s]+", " ", inside("ask", "--help").stdout)
    for name, default in DEFAULTS.items():
        shown = format_duration(default) if name in DURATIONS else f"{default:,}"
        option = f"--{name.replace('_', '-')}"
        assert re.search(rf" {option} (?:(?! --).)*\[default: \({shown}\)\]", text), option
    assert limits() == DEFAULTS


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_limit_that_is_given_is_the_one_that_holds(limits, name):
    option, (given, value) = f"--{name.replace('_', '-')}", ("70s", 70_000_000) if name in DURATIONS else ("77", 77)
    assert limits(option, given) == DEFAULTS | {name: value}


def test_as_many_requests_may_wait_as_are_made_at_a_time(limits, inside, tmp_path):
    assert limits("--concurrency", 20_000)["waiting"] == 20_000
    few = ["ask", "final-stop", "--provider", "simulator", "--log", tmp_path / "city.tw", "--waiting", 3]
    assert "waiting (3) must be at least concurrency (50)" in inside(*few, code=2).stderr


def test_what_makes_no_sense_is_reported_in_a_line(inside, tmp_path):
    log = ["--log", tmp_path / "city.tw"]
    assert "there is no lookup 'weather'; there is final-stop" in inside(
        "ask", "weather", "--provider", "simulator", *log, code=2
    ).stderr.replace("\n", " ")
    assert "no GTFS feed at" in inside("ask", "final-stop", "--provider", tmp_path / "no.zip", *log, code=2).stderr
