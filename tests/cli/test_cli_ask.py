"""`ask`: answers for the jobs, from whoever knows them."""

from __future__ import annotations

import signal

from cli_support import Running, lines

from tidewheel.apps.transit.final_stop import FINAL_STOP
from tidewheel.transport.log import open_log

SMALL = ["--rate", 20, "--steady", "--speed", "max", "--start", "2026-03-02T06:15:00Z", "--for", "3s"]


def test_what_is_in_the_log_is_asked_for_once(inside, tmp_path):
    log = tmp_path / "city.tw"
    inside("simulate", "--log", log, *SMALL)
    asked = ["ask", "final-stop", "--from", "simulator", "--log", log, "--until-idle", "--json"]
    last = lines(inside(*asked))[-1]
    assert last["answered"] > 5
    assert (last["failed"], last["open"]) == (0, 0)
    with open_log(log) as opened:
        assert opened.topic_info(FINAL_STOP.topic).count == last["answered"]
    assert lines(inside(*asked))[-1] == {"events": 0, "answered": 0, "unknown": 0, "failed": 0, "open": 0, "lost": 0}


def test_it_goes_on_until_it_is_told_to_stop(inside, tmp_path):
    log = tmp_path / "city.tw"
    inside("simulate", "--log", log, *SMALL)
    running = Running("ask", "final-stop", "--from", "simulator", "--log", log, "--json")
    assert next(status for status in running.objects() if status["answered"] and not status["open"])
    running.end(signal.SIGTERM)


def test_what_makes_no_sense_is_told_in_a_line(inside, tmp_path):
    log = ["--log", tmp_path / "city.tw"]
    assert "there is no lookup 'weather'; there is final-stop" in inside(
        "ask", "weather", "--from", "simulator", *log, code=2
    ).stderr.replace("\n", " ")
    assert "no GTFS feed at" in inside("ask", "final-stop", "--from", tmp_path / "no.zip", *log, code=2).stderr
