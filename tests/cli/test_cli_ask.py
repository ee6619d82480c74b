"""`ask`: answers for the jobs, from whoever knows them."""

from __future__ import annotations

import re
import signal
from dataclasses import asdict

import pytest
from cli_support import Running, lines

from tidewheel.apps.transit.final_stop import FINAL_STOP
from tidewheel.ingest import lookup
from tidewheel.ingest.lookup import Limits
from tidewheel.model.time import format_duration
from tidewheel.transport.log import open_log

DEFAULTS = asdict(Limits())
DURATIONS = {name for name, kind in Limits.__annotations__.items() if "Duration" in kind}
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


class Told(Exception):
    """Raised instead of asking, with the limits."""


@pytest.fixture
def limits(inside, monkeypatch, tmp_path):
    """The limits that a command comes to."""

    def tell(*given, limits, **_):
        raise Told(limits)

    def found(*options):
        with pytest.raises(Told) as caught:
            inside("ask", "final-stop", "--from", "simulator", "--log", tmp_path / "city.tw", *options)
        return asdict(caught.value.args[0])

    monkeypatch.setattr(lookup, "Asker", tell)
    return found


def test_every_limit_is_an_option_and_its_default_is_told(inside, limits):
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


def test_as_many_questions_may_wait_as_are_asked_at_a_time(limits, inside, tmp_path):
    assert limits("--concurrency", 20_000)["waiting"] == 20_000
    few = ["ask", "final-stop", "--from", "simulator", "--log", tmp_path / "city.tw", "--waiting", 3]
    assert "waiting (3) must be at least concurrency (50)" in inside(*few, code=2).stderr


def test_what_makes_no_sense_is_told_in_a_line(inside, tmp_path):
    log = ["--log", tmp_path / "city.tw"]
    assert "there is no lookup 'weather'; there is final-stop" in inside(
        "ask", "weather", "--from", "simulator", *log, code=2
    ).stderr.replace("\n", " ")
    assert "no GTFS feed at" in inside("ask", "final-stop", "--from", tmp_path / "no.zip", *log, code=2).stderr
