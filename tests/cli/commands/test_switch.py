"""`switch` and `compare`: another topic under the name that readers ask for."""

from __future__ import annotations

import signal

import pytest

from tests.support.command import Running, lines
from tidewheel.transport.events import codec
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.aliases import Aliases
from tidewheel_transit.transit_pb2 import Arrival, Journey


def arrivals(stops):
    values = [codec.encode(codec.pack(Arrival(stop=stop), event_time=n * 1_000_000)) for n, stop in enumerate(stops)]
    return records(values, event_times=[n * 1_000_000 for n in range(len(stops))])


@pytest.fixture
def versions(tmp_path):
    """Results of a job, of its second version, and of a third that differs."""
    with open_log(tmp_path / "city.tw") as log:
        log.append("analytics.x", arrivals(["a", "b", "c"]))
        log.append("analytics.x.v2", arrivals(["a", "b", "c"]))
        log.append("analytics.x.v3", arrivals(["a", "B", "c", "d"]))
    return tmp_path / "city.tw"


def stops(done):
    return [record["details"]["stop"] for record in lines(done)]


def test_what_differs_is_reported_and_ends_with_a_code_for_scripts(versions, inside):
    same = lines(inside("compare", "analytics.x", "analytics.x.v2", "--json", "--log", versions))[0]
    assert (same["equal"], same["same"]) == (True, 3)
    done = inside("compare", "analytics.x", "analytics.x.v3", "--json", "--log", versions, code=1)
    (reported,) = lines(done)
    assert (reported["same"], reported["only_first"], reported["only_second"]) == (2, 1, 2)
    assert [row["stop"] for row in reported["examples"]["only_second"]] == ["B", "d"]
    words = inside("compare", "analytics.x", "analytics.x.v3", "--log", versions, code=1).stdout
    assert "2 the same" in words
    assert "1 only in analytics.x:" in words
    assert "stop=d" in words


def test_a_version_that_is_behind_is_not_ready(tmp_path, inside):
    with open_log(tmp_path / "city.tw") as log:
        for topic, mark in (("analytics.x", 9), ("analytics.x.v2", 2)):
            log.append(topic, arrivals(["a", "b", "c", "d", "e"][: mark + 1]))
            log.append(topic, codec.punctuation(mark * 1_000_000))
        log.append("analytics.x.v3", codec.punctuation(0))
    pair = ("analytics.x", "analytics.x.v2", "--log", tmp_path / "city.tw")
    said = inside("compare", *pair, code=1).stdout
    assert "2 the same" in said
    assert "analytics.x.v2 is behind: 3 results of analytics.x are final that it may still come to" in said
    assert "--partial" in said
    inside("compare", *pair, "--partial")
    (reported,) = lines(inside("compare", *pair, "--json", code=1))
    assert (reported["equal"], reported["behind"]) == (True, 3)
    said = inside("compare", "analytics.x", "analytics.x.v3", "--partial", *pair[2:], code=1).stdout
    assert "nothing could be compared" in said


def test_windows_that_lie_within_each_other_have_grown_unless_told_otherwise(tmp_path, inside):
    def journeys(*windows):
        found = []
        for start, end in windows:
            journey = Journey(vehicle=7, events=end - start)
            journey.window_start.FromSeconds(start)
            journey.window_end.FromSeconds(end)
            found.append(codec.encode(codec.pack(journey, event_time=end * 1_000_000 - 1)))
        return records(found, keys=[b"7"] * len(found), event_times=[end * 1_000_000 - 1 for _, end in windows])

    with open_log(tmp_path / "city.tw") as log:
        log.append("analytics.x", journeys((0, 10), (0, 20), (30, 40)))
        log.append("analytics.x.batch", journeys((0, 20), (30, 40)))
    both = ("analytics.x", "analytics.x.batch", "--json", "--log", tmp_path / "city.tw")
    assert lines(inside("compare", *both))[0]["same"] == 2
    (reported,) = lines(inside("compare", *both, "--nested-windows", code=1))
    assert (reported["same"], reported["only_first"], reported["only_second"]) == (2, 1, 0)


def test_readers_are_switched_and_switched_back(versions, inside):
    assert stops(inside("tail", "analytics.x", "--json", "--log", versions)) == ["a", "b", "c"]
    said = inside("switch", "analytics.x", "analytics.x.v3", "--log", versions).stdout
    assert said == "analytics.x stands for analytics.x.v3, it was analytics.x\n"
    assert stops(inside("tail", "analytics.x", "--json", "--log", versions)) == ["a", "B", "c", "d"]
    assert stops(inside("tail", "analytics.x", "--as-is", "--json", "--log", versions)) == ["a", "b", "c"]
    assert lines(inside("switch", "--json", "--log", versions)) == [{"analytics.x": "analytics.x.v3"}]
    inside("switch", "analytics.x", "analytics.x", "--log", versions)
    assert inside("switch", "--log", versions).stdout == ""
    assert stops(inside("tail", "analytics.x", "--json", "--log", versions)) == ["a", "b", "c"]


def test_who_follows_a_name_follows_the_switch(versions):
    with open_log(versions) as log, Running("tail", "analytics.x", "--follow", "--json", "--log", versions) as tail:
        reported = tail.objects()
        assert [next(reported)["details"]["stop"] for _ in range(3)] == ["a", "b", "c"]
        Aliases(log).switch("analytics.x", "analytics.x.v2")
        assert tail.process.stderr is not None
        assert "stands for analytics.x.v2 now" in tail.process.stderr.readline()
        log.append("analytics.x", arrivals(["old"]))
        log.append("analytics.x.v2", arrivals(["new"]))
        assert next(reported)["details"]["stop"] == "new"
        tail.end(signal.SIGTERM)


def test_a_topic_that_is_not_there_is_reported(versions, inside):
    said = inside("switch", "analytics.x", "analytics.x.v4", "--log", versions, code=2).stderr
    assert "no topic 'analytics.x.v4'; did you mean" in said
    said = inside("compare", "analytics.x", "analytics.y", "--log", versions, code=2).stderr
    assert "no topic 'analytics.y'" in said
