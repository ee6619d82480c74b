"""Those who know where journeys end: the routing service (a real one, in a process of its own), GTFS, the simulator."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import polars as pl
import pytest

from tests.transit.service_process import service
from tests.transit.simulator_support import MORNING
from tidewheel.errors import DefinitionError
from tidewheel.ingest.lookup import Limits, LookupWorker, ProviderError
from tidewheel.transport.events import codec
from tidewheel_transit.final_stop import FINAL_STOP, GtfsFinalStops, SimulatedFinalStops
from tidewheel_transit.final_stop.routing_service import RoutingService
from tidewheel_transit.simulator import Simulator
from tidewheel_transit.simulator.city import LINES, PLACES
from tidewheel_transit.transit_pb2 import VehiclePosition

S = 1_000_000
DAY = "2025-10-09"  # a Thursday


def ask(provider, *key):
    return asyncio.run(provider.ask(key))


def outcomes(log) -> dict[tuple, str]:
    """By key: the answer's stop, or the reason."""
    found = {}
    for batch in log.read(FINAL_STOP.topic, 0, 0):
        for value in batch.records.column("value").to_pylist():
            message = codec.unpack(codec.decode(value))
            said = FINAL_STOP.read_answer(message.answer)["final_stop"] if message.answer else message.reason
            found[FINAL_STOP.read_key(message.key)] = said
    return found


# The simulator -----------------------------------------------------------------------------------------------------


def test_the_simulators_lines_end_where_their_last_place_is():
    for line in LINES:
        for direction, place in ((1, line.places[-1]), (2, line.places[0])):
            answer = ask(SimulatedFinalStops(), line.route, direction, DAY, "07:20")
            lat, lon = PLACES[place]
            assert abs(answer["final_lat"] - lat) * 111_320 < 150, (line.route, direction)
            assert abs(answer["final_lon"] - lon) * 55_000 < 150, (line.route, direction)


def test_vehicles_of_the_simulator_end_their_journeys_at_the_stop_that_was_looked_up():
    frame = Simulator(start=MORNING, seed=7, rate=30).advance(MORNING + 900 * S).frame
    keys = list(FINAL_STOP.keys)
    ended = frame.filter(pl.col("next_stop") == "EOL").select(keys).unique()
    ahead = frame.filter(pl.col("next_stop") != "EOL").sort("event_time").group_by(keys).agg(pl.col("next_stop").last())
    journeys = ended.join(ahead, on=keys).rows()
    assert len(journeys) > 10
    for *key, stop in journeys:
        assert ask(SimulatedFinalStops(), *key)["final_stop"] == stop


def test_copies_of_lines_end_where_the_line_does_and_strange_lines_nowhere():
    one, other = (ask(SimulatedFinalStops(), route, 1, DAY, "07:20") for route in ("1019", "1019B"))
    assert one == other
    assert ask(SimulatedFinalStops(), "9999", 1, DAY, "07:20") is None


# GTFS ---------------------------------------------------------------------------------------------------------------

FEED = {
    "routes.txt": "\ufeffroute_id,route_short_name\n1069,69\n1070,70\n",
    "trips.txt": "route_id,service_id,trip_id,direction_id\n1069,weekday,a,0\n1069,weekend,b,0\n1069,weekday,c,1\n"
    "1069,weekday,night,0\n1070,weekday,d,0\n1070,weekday,e,0\n8888,weekday,f,0\n",
    "stop_times.txt": "trip_id,arrival_time,departure_time,stop_id,stop_sequence\n"
    "a,07:50:00,07:50:00,far,10\na,07:20:00,07:20:00,near,2\n"
    "b,07:20:00,07:20:00,near,1\nb,07:30:00,07:30:00,middle,2\n"
    "c,07:20:00,07:20:00,far,1\nc,07:50:00,07:50:00,near,2\n"
    "night,25:10:00,25:10:00,near,1\nnight,25:40:00,25:40:00,middle,2\n"
    "d,09:00:00,09:00:00,near,1\nd,09:10:00,09:10:00,far,2\ne,09:00:00,09:00:00,near,1\ne,09:10:00,09:10:00,middle,2\n",
    "stops.txt": "stop_id,stop_name,stop_lat,stop_lon\n"
    "near,Near,60.1,24.9\nmiddle,Middle,60.2,24.8\nfar,Far,60.3,24.7\n",
}
CALENDAR = {
    "calendar.txt": "service_id,monday,tuesday,wednesday,thursday,friday,saturday,sunday,start_date,end_date\n"
    "weekday,1,1,1,1,1,0,0,20250101,20251231\nweekend,0,0,0,0,0,1,1,20250101,20251231\n",
    "calendar_dates.txt": "service_id,date,exception_type\nweekday,20251010,2\nweekend,20251010,1\n",
}


def feed(folder, files):
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def gtfs(tmp_path):
    return GtfsFinalStops(feed(tmp_path / "feed", {**FEED, **CALENDAR}))


FAR = {"final_stop": "far", "final_lat": 60.3, "final_lon": 24.7}


def test_gtfs_knows_the_last_stop_of_the_trip_that_departs_then(gtfs):
    assert ask(gtfs, "1069", 1, DAY, "07:20") == FAR
    assert ask(gtfs, "1069", 2, DAY, "07:20")["final_stop"] == "near"
    assert ask(gtfs, "1069", 1, DAY, "07:21") is None
    assert ask(gtfs, "8888", 1, DAY, "07:20") is None


def test_gtfs_days_have_trips_of_their_own(gtfs):
    assert ask(gtfs, "1069", 1, "2025-10-11", "07:20")["final_stop"] == "middle", "a Saturday"
    assert ask(gtfs, "1069", 1, "2025-10-10", "07:20")["final_stop"] == "middle", "a Friday that is run as a Sunday"
    assert ask(gtfs, "1069", 1, "2026-01-01", "07:20") is None, "after the last day"


def test_gtfs_knows_departures_after_midnight_by_the_clock(gtfs):
    assert ask(gtfs, "1069", 1, DAY, "01:10")["final_stop"] == "middle"


def test_gtfs_trips_after_midnight_are_of_the_day_before_or_of_their_own_as_the_feed_writes_them(tmp_path):
    """Friday night's bus at 01:10 is in the feed as 25:10 of Friday or as 01:10 of Saturday."""
    trips = "route_id,service_id,trip_id,direction_id\n1069,fri,a,0\n1069,sat,b,0\n1070,fri,c,0\n"
    times = "trip_id,departure_time,stop_id,stop_sequence\na,01:10:00,near,1\na,01:40:00,middle,2\n" + (
        "b,01:10:00,near,1\nb,01:40:00,far,2\nc,25:10:00,near,1\nc,25:40:00,middle,2\n"
    )
    dates = "service_id,date,exception_type\nfri,20251010,1\nsat,20251011,1\n"
    files = {**FEED, "trips.txt": trips, "stop_times.txt": times, "calendar_dates.txt": dates}
    gtfs = GtfsFinalStops(feed(tmp_path / "night", files))
    assert ask(gtfs, "1069", 1, "2025-10-10", "01:10") == FAR, "Saturday's, by the clock"
    assert ask(gtfs, "1069", 1, "2025-10-09", "01:10")["final_stop"] == "middle", "Friday's, by the clock"
    assert ask(gtfs, "1069", 1, "2025-10-11", "01:10") is None
    assert ask(gtfs, "1070", 1, "2025-10-10", "01:10")["final_stop"] == "middle", "25:10 of Friday"
    assert ask(gtfs, "1070", 1, "2025-10-09", "01:10") is None
    with pytest.raises(ProviderError):
        ask(gtfs, "1069", 1, "9999-12-31", "01:10")


def test_where_trips_of_one_departure_end_in_two_places_there_is_no_answer(gtfs):
    assert ask(gtfs, "1070", 1, DAY, "09:00") is None


def test_gtfs_may_be_a_zip_and_without_a_calendar(tmp_path):
    with zipfile.ZipFile(tmp_path / "feed.zip", "w") as archive:
        for name, text in FEED.items():
            archive.writestr(f"hsl/{name}", text)
    gtfs = GtfsFinalStops(tmp_path / "feed.zip")
    assert ask(gtfs, "1069", 2, DAY, "07:20")["final_stop"] == "near"
    assert ask(gtfs, "1069", 1, DAY, "07:20") is None, "two services that end in two places"


@pytest.mark.parametrize("key", [("1069", 1, DAY, "7 o'clock"), ("1069", 1, "yesterday", "07:20")])
def test_keys_that_make_no_sense_are_refused_for_good(gtfs, key):
    with pytest.raises(ProviderError) as caught:
        ask(gtfs, *key)
    assert (caught.value.again, caught.value.healthy) == (False, True)


def test_what_is_no_feed_is_refused(tmp_path):
    with pytest.raises(DefinitionError, match="no GTFS feed at"):
        GtfsFinalStops(tmp_path / "nothing.zip")
    (tmp_path / "text.zip").write_text("hello")
    with pytest.raises(DefinitionError, match="neither a folder nor a zip"):
        GtfsFinalStops(tmp_path / "text.zip")
    with pytest.raises(DefinitionError, match=r"no stops\.txt"):
        GtfsFinalStops(feed(tmp_path / "a", {name: text for name, text in FEED.items() if name != "stops.txt"}))
    with pytest.raises(DefinitionError, match=r"trips\.txt has no column 'direction_id'"):
        GtfsFinalStops(feed(tmp_path / "b", {**FEED, "trips.txt": "route_id,service_id,trip_id\n"}))
    with pytest.raises(DefinitionError, match=r"stops\.txt is empty; give it a line with the names of its columns$"):
        GtfsFinalStops(feed(tmp_path / "c", {**FEED, "stops.txt": "\n"}))
    with pytest.raises(DefinitionError, match=r"calendar\.txt is empty; give .*, or take it out of the feed"):
        GtfsFinalStops(feed(tmp_path / "d", {**FEED, "calendar.txt": ""}))
    with pytest.raises(DefinitionError, match=r"calendar_dates\.txt is no table of comma-separated values \("):
        GtfsFinalStops(feed(tmp_path / "e", {**FEED, "calendar_dates.txt": "service_id,date\na,b,c\n"}))


# The routing service ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running():
    with service() as started:
        yield started


@pytest.fixture
def routing(running):
    running.set(delay=0.0, errors=0.0, hang=0.0, garbage=0.0, unknown=[])
    return running


def test_the_routing_service_answers_what_the_timetable_knows(routing):
    provider = RoutingService(routing.url)
    assert ask(provider, "1019", 1, DAY, "07:20") == ask(SimulatedFinalStops(), "1019", 1, DAY, "07:20")
    assert ask(provider, "9999", 1, DAY, "07:20") is None


@pytest.mark.parametrize(
    ("faults", "message"), [({"errors": 1.0}, "answered 503 Service Unavailable"), ({"garbage": 1.0}, "is invalid")]
)
def test_faults_of_the_routing_service_are_reported_and_worth_another_attempt(routing, faults, message):
    routing.set(**faults)
    with pytest.raises(ProviderError, match=message) as caught:
        ask(RoutingService(routing.url), "1019", 1, DAY, "07:20")
    assert caught.value.again
    assert not caught.value.healthy


def test_where_nobody_listens_the_reason_says_so():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    with pytest.raises(ProviderError, match="cannot be reached: ConnectionRefusedError"):
        ask(RoutingService(url), "1019", 1, DAY, "07:20")
    with pytest.raises(DefinitionError, match="an address like https"):
        RoutingService("routing.example")


class Scripted(BaseHTTPRequestHandler):
    """Gives scripted answers, and remembers what it was asked."""

    answers: ClassVar[list[tuple[int, dict[str, str], bytes]]] = []
    asked: ClassVar[list[tuple[dict[str, str], dict]]] = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(body)))
        status, headers, answer = self.answers.pop(0)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def scripted():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Scripted.asked.clear()

    def answer(status, body, **headers):
        Scripted.answers[:] = [(status, headers, json.dumps(body).encode())]
        return f"http://127.0.0.1:{server.server_address[1]}/graphql"

    yield answer
    server.shutdown()
    server.server_close()


def test_the_service_is_asked_in_its_own_words(scripted):
    """As the schema of OpenTripPlanner has it: directions from 0, seconds of the day, ids with their feed."""
    stops = [{"gtfsId": "LINKKI:near", "lat": 62.1, "lon": 25.6}, {"gtfsId": "LINKKI:far", "lat": 62.2, "lon": 25.7}]
    url = scripted(200, {"data": {"fuzzyTrip": {"stops": stops}}})
    found = ask(RoutingService(url, feed="LINKKI", key="secret"), "12K", 2, DAY, "07:20")
    assert found == {"final_stop": "far", "final_lat": 62.2, "final_lon": 25.7}
    ((headers, body),) = Scripted.asked
    assert headers["digitransit-subscription-key"] == "secret"
    assert headers["content-type"] == "application/json"
    assert body["variables"] == {"route": "LINKKI:12K", "direction": 1, "date": DAY, "time": 7 * 3_600 + 20 * 60}
    assert "fuzzyTrip(route: $route, direction: $direction, date: $date, time: $time)" in body["query"]


@pytest.mark.parametrize(
    ("status", "body", "headers", "message", "again", "after"),
    [
        (401, {}, {}, "answered 401 Unauthorized", False, 0.0),
        (429, {}, {"Retry-After": "7"}, "answered 429 Too Many Requests", True, 7.0),
        (200, {"errors": [{"message": "no such route"}]}, {}, "the service reports: no such route", True, 0.0),
        (200, {"data": {"fuzzyTrip": {"stops": [{"lat": 1}]}}}, {}, "is invalid: KeyError", True, 0.0),
        (200, [], {}, "is invalid: AttributeError", True, 0.0),
    ],
)
def test_what_the_service_refuses_is_reported_and_asked_again_only_where_that_may_help(
    scripted, status, body, headers, message, again, after
):
    with pytest.raises(ProviderError, match=message) as caught:
        ask(RoutingService(scripted(status, body, **headers)), "12K", 2, DAY, "07:20")
    assert (caught.value.again, caught.value.after) == (again, after)


@pytest.mark.parametrize("trip", [None, {"stops": []}])
def test_a_trip_that_the_service_does_not_know_has_no_answer(scripted, trip):
    assert ask(RoutingService(scripted(200, {"data": {"fuzzyTrip": trip}})), "12K", 2, DAY, "07:20") is None


def put_positions(log, seconds=3, rate=40):
    """Positions of a few seconds; their keys."""
    chunk = Simulator(start=MORNING, seed=5, rate=rate).advance(MORNING + seconds * S)
    log.append("input.vehicle-position", chunk.records().topics["input.vehicle-position"])
    frame = chunk.frame.filter(pl.col("event") == "vp", pl.col("temporal") == "ongoing")
    return set(frame.select(list(FINAL_STOP.keys)).drop_nulls().rows())


def asked(log, url, **limits):
    options = {"backoff": "5 ms", "timeout": "20 s", "attempt_timeout": "10 s", "attempts": 12, **limits}
    return LookupWorker(
        log, FINAL_STOP, RoutingService(url), topics="input.vehicle-position", type=VehiclePosition,
        limits=Limits(**options),
    ).run(until_idle=True)  # fmt: skip


def test_with_delays_and_errors_all_is_answered_in_the_end_and_never_more_at_a_time_than_allowed(log, routing):
    routing.set(delay=0.02, errors=0.3, garbage=0.1)
    keys, before = put_positions(log), routing.count()["requests"]
    report = asked(log, routing.url, concurrency=6, breaker_failures=1_000)
    assert len(keys) > 20
    assert report.answered == len(keys)
    found = outcomes(log)
    assert found == {key: ask(SimulatedFinalStops(), *key)["final_stop"] for key in keys}
    assert report.attempts == routing.count()["requests"] - before > len(keys)
    assert 1 < routing.count()["most_at_once"] <= 6


def test_routes_that_the_service_does_not_know_are_distinguished_from_failures(log, routing):
    keys = put_positions(log)
    unknown = sorted({route for route, *_ in keys})[:3]
    routing.set(unknown=unknown)
    report = asked(log, routing.url)
    missing = [key for key in keys if key[0] in unknown]
    assert (report.unknown, report.answered) == (len(missing), len(keys) - len(missing))
    assert {key for key, said in outcomes(log).items() if said == "the service knows no answer"} == set(missing)


def test_a_service_that_hangs_is_given_up(log, routing):
    routing.set(hang=1.0)
    keys = put_positions(log, rate=10)
    report = asked(log, routing.url, timeout="300 ms", attempt_timeout="100 ms", attempts=2, breaker_failures=1_000)
    assert sum(report.failed.values()) == len(keys)
    assert all(reason.startswith("no answer within") for reason in report.failed)
