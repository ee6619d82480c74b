"""A log to which nothing comes: what it showed last stays, and how long it has been at rest is reported."""

from __future__ import annotations

import pytest

from tests.support.serve_support import (
    CELLS,
    counts,
    eventually,
    hexadecimal,
    orders,
    revenue,
    sessions,
    vehicles,
    viewer,
)
from tidewheel.model.time import now
from tidewheel.serve import serve
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.view.activity import Activity, active_at
from tidewheel.transport.events import codec
from tidewheel.transport.open_log import open_log

SECOND = 1_000_000
HOUR = 3_600 * SECOND


@pytest.fixture
def past(tmp_path):
    """A log of which a test says when things are appended, and since when that was: [now]."""
    clock = [now() // SECOND * SECOND - 5 * HOUR]
    with open_log(tmp_path / "past.tw", clock=lambda: clock[0], sync="normal") as log:
        yield log, clock


def shown(server):
    with server.feed.lock:
        return {name: set(server.feed.view[name].items) for name in server.feed.view}


def test_the_last_results_of_a_log_at_rest_for_hours_are_shown_whether_on_the_map_or_not(past):
    log, clock = past
    at = clock[0]
    orders(log, ("ada", "FI", 12.0), time=at)
    revenue(log, {"FI": (12.0, 1)}, end=at, watermark=at)
    sessions(log, ("ada", at - 300 * SECOND, at, 3, 120.0), watermark=at)
    clock[0] += 10 * 60 * SECOND
    vehicles(log, (1, 24.9, 60.2), time=at + 600 * SECOND)
    counts(log, {CELLS["here"]: 4}, end=at + 600 * SECOND)
    with serve(log, port=0) as server:
        assert shown(server) == {
            "revenue": {"FI"},
            "sessions": {"ada"},
            "vehicles": {"1/1"},
            "vehicle-distribution": {hexadecimal(CELLS["here"])},
        }
        latest = server.feed.status.latest
        assert latest["last"] == clock[0] // 1_000
        assert latest["event_time"] == at // 1_000, "what the inputs have reached, long ago as it is"
        assert (latest["watermark"], latest["lag"]) == (at // 1_000, 0)


def test_markers_of_a_job_that_waits_do_not_make_results_old_and_an_event_does(past):
    log, clock = past
    at = clock[0]
    vehicles(log, (1, 24.9, 60.2), time=at)
    clock[0] += 60 * SECOND
    log.append("analytics.vehicle-cell", codec.punctuation(at + 60 * SECOND))
    began = now()
    with serve(log, port=0, clock=lambda: clock[0] + now() - began) as server:
        assert shown(server) == {"vehicles": {"1/1"}}
        assert server.feed.status.latest["last"] == at // 1_000
        clock[0] += 60 * SECOND
        log.append("analytics.vehicle-cell", codec.punctuation(at + 120 * SECOND))
        mark = (at + 120 * SECOND) // 1_000
        eventually(lambda: server.feed.status.latest["watermark"] == mark, "the marker was read")
        assert shown(server) == {"vehicles": {"1/1"}}
        orders(log, ("ada", "FI", 12.0), time=at)
        eventually(lambda: shown(server) == {"vehicles": set()}, "the log went on without it")
        eventually(lambda: server.feed.status.latest["last"] >= clock[0] // 1_000, "and that is reported")


def test_clients_are_reported_when_something_came_last(log, start):
    with viewer(start()) as page:
        assert page.next("status")["last"] is None
        before = now() // 1_000
        orders(log, ("ada", "FI", 12.0), time=now())
        page.until(lambda: (page.status["last"] or 0) >= before, "something came")


def test_activity_is_found_behind_any_number_of_markers_and_as_of_any_moment(past):
    log, clock = past
    begin = clock[0]
    revenue(log, {"FI": (12.0, 1)}, end=begin)
    for step in range(3):
        clock[0] = begin + (step + 1) * 60 * SECOND
        for _ in range(600):
            log.append("analytics.revenue", codec.punctuation(begin + step))
    activity = Activity(log)
    assert activity.clock(clock[0]) == clock[0], "nothing is known"
    activity.look(log.topics(), now=clock[0])
    assert activity.last == begin
    assert activity.clock(clock[0]) == begin
    assert activity.clock(begin - 5) == begin - 5
    clock[0] += 60 * SECOND
    revenue(log, {"FI": (14.0, 1)}, end=begin)
    assert active_at(log, begin + 90 * SECOND) == begin
    assert active_at(log, clock[0] + 90 * SECOND) == clock[0]
    assert active_at(log, begin - 1) == begin - 1
    orders(log, ("ada", "FI", 12.0), time=begin)
    activity.look(log.topics(), now=clock[0] + 77)
    assert activity.last == clock[0] + 77, "a topic that is new has come now, as everything since the first look"


def test_of_too_many_results_without_a_place_the_newest_are_shown(log, start):
    at = now() // SECOND * SECOND
    server = start(limits=ServeLimits(keys=3))
    for number in range(5):
        sessions(log, (f"u{number}", at - 60 * SECOND, at + number * SECOND, 1, 1.0))
    eventually(lambda: shown(server) == {"sessions": {"u2", "u3", "u4"}}, "the newest three")
    eventually(lambda: server.feed.partial == {"sessions": {"shown": 3, "keys": 5}}, "of five")
    rows = [(f"v{number}", at - 60 * SECOND, at + number * SECOND, 1, 1.0) for number in range(8)]
    sessions(log, *rows, ("u4", at - 60 * SECOND, at + 9 * SECOND, 2, 2.0))
    eventually(lambda: shown(server) == {"sessions": {"u4", "v6", "v7"}}, "also within a block")
