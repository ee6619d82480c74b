"""`topics` tells what is in the log, how fast it grows, who is behind, and whether ingestion adds up."""

from __future__ import annotations

import signal
import sqlite3

import pytest

from tests.support.command import Running, lines
from tidewheel.ingest.message import Message
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.model.time import now
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.hfp import HfpProcessor


@pytest.fixture
def described(inside):
    def describe(path):
        (found,) = lines(inside("topics", "--json", "--log", path))
        return found

    return describe


def test_counts_sizes_and_times(small_log, described):
    found = described(small_log)
    with open_log(small_log) as log:
        info = log.topic_info("input.arrival")
    (topic,) = found["topics"]
    assert (topic["topic"], topic["partitions"], topic["records"]) == ("input.arrival", 1, 5)
    assert topic["bytes"] == info.size
    assert topic["first"] == topic["last"] is not None
    assert found["log"] == str(small_log)


def test_the_rate_is_that_of_the_last_minute(tmp_path, described):
    clock = [now() - 3_600_000_000]
    with open_log(tmp_path / "log.tw", clock=lambda: clock[0]) as log:
        log.append("old", records([b"x"] * 1_000))
        log.append("busy", records([b"x"] * 1_000))
        clock[0] = now()
        log.append("busy", records([b"x"] * 600))
    rates = {topic["topic"]: topic["rate"] for topic in described(tmp_path / "log.tw")["topics"]}
    assert rates == {"old": 0.0, "busy": 10.0}


def test_the_lag_of_each_group(tmp_path, described):
    with open_log(tmp_path / "log.tw", clock=lambda: now() - 90_000_000) as log:
        log.create_topic("a", partitions=2)
        log.append("a", records([b"x"] * 10, keys=[bytes([n]) for n in range(10)]))
        log.append("b", records([b"x"] * 3))
        sizes = log.topic_info("a").next_offsets
        log.commit("slow", {("a", 0): 1, ("a", 1): 0, ("b", 0): 1})
        log.commit("quick", {("b", 0): 3})
    groups = {(group["group"], group["topic"]): group for group in described(tmp_path / "log.tw")["groups"]}
    assert {name: group["lag"] for name, group in groups.items()} == {
        ("slow", "a"): sum(sizes) - 1,
        ("slow", "b"): 2,
        ("quick", "b"): 0,
    }
    assert groups["slow", "b"]["behind_seconds"] >= 90
    assert groups["quick", "b"]["behind_seconds"] == 0


def test_what_retention_has_taken_is_no_mistake(tmp_path, described):
    with open_log(tmp_path / "log.tw") as log:
        log.append("a", records([b"x"] * 4))
        log.commit("slow", {("a", 0): 0})
        log.append("a", records([b"x"] * 4))
        log.create_topic("a", retention=Retention(size=1))
        log.maintain()
        assert log.topic_info("a").first_offsets == (4,)
    (group,) = described(tmp_path / "log.tw")["groups"]
    assert group["lag"] == 8


def test_ingestion_adds_up(tmp_path, described, inside):
    with open_log(tmp_path / "log.tw") as log:
        pipeline = Pipeline(log, HfpProcessor(), source="test")
        pipeline(
            [
                Message("nonsense", b"{}", now()),
                Message(
                    "/hfp/v2/journey/upcoming/vp/bus/0022/00817/1071/2/Töölö/08:04/1/4/60;24/29/06/58", b"{}", now()
                ),
            ]
        )
    (source,) = described(tmp_path / "log.tw")["ingest"]
    assert source == {
        "source": "hfp:test",
        "received": 2,
        "topics": {},
        "filtered": {"upcoming": 1},
        "dead": {"bad-topic": 1},
        "repeated": 0,
        "adds_up": True,
    }
    shown = inside("topics", "--log", tmp_path / "log.tw").stdout
    assert "✓" in shown
    assert "dead.hfp" in shown
    assert "__types" not in shown
    assert "__types" in inside("topics", "--all", "--log", tmp_path / "log.tw").stdout


def test_an_empty_log_says_how_to_fill_it(tmp_path, inside):
    open_log(tmp_path / "log.tw").close()
    assert "tidewheel ingest --log" in inside("topics", "--log", tmp_path / "log.tw").stdout


def test_watch_goes_on_until_ctrl_c(small_log):
    with Running("topics", "--watch", "--json", "--log", small_log) as running:
        shown = running.objects()
        assert next(shown)["topics"][0]["records"] == 5
        with open_log(small_log) as log:
            log.append("input.arrival", records([b"x"]))
        while next(shown)["topics"][0]["records"] != 6:
            pass
        running.end(signal.SIGINT)


@pytest.fixture
def damaged_log(small_log):
    """A log of which one block is not as it was written."""
    with open_log(small_log) as log:
        log.append("input.arrival", records([b"x"] * 3))
    connection = sqlite3.connect(small_log)
    connection.execute("UPDATE payload SET data = zeroblob(length(data)) WHERE id = (SELECT max(id) FROM payload)")
    connection.commit()
    connection.close()
    return small_log


def test_verifying_finds_nothing_in_a_log_as_it_was_written(small_log, inside):
    assert "5 records of 1 topics are as they were written" in inside("topics", "--verify", "--log", small_log).stdout


def test_verifying_reports_what_is_damaged(damaged_log, inside):
    reported = inside("topics", "--verify", "--log", damaged_log, code=1).stdout
    assert (
        "input.arrival partition 0: offsets 5 to 7 (3 records) are damaged: the checksum of its payload is" in reported
    )
    (found,) = lines(inside("topics", "--verify", "--json", "--log", damaged_log, code=1))
    assert found["topics"] == [{"topic": "input.arrival", "records": 5}]
    (damage,) = found["damaged"]
    assert (damage["topic"], damage["partition"], damage["first_offset"], damage["next_offset"]) == (
        "input.arrival",
        0,
        5,
        8,
    )
    assert found["faults"] == []


def test_verifying_reports_what_sqlite_finds(small_log, inside):
    connection = sqlite3.connect(small_log)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("DELETE FROM sqlite_master WHERE name = 'block_by_time'")
    connection.commit()
    connection.close()
    (found,) = lines(inside("topics", "--verify", "--json", "--log", small_log, code=1))
    assert found["faults"]
    assert not found["damaged"]


def test_tail_reports_what_is_damaged_or_passes_over_it(damaged_log, inside):
    refused = inside("tail", "input.arrival", "--log", damaged_log, code=1).stderr
    assert "'input.arrival' partition 0: the block of offsets 5 to 7 is damaged" in refused
    shown = inside("tail", "input.arrival", "--json", "--skip-damaged", "--log", damaged_log)
    assert [line["offset"] for line in lines(shown)] == [0, 1, 2, 3, 4]
    assert "the block of offsets 5 to 7 is damaged" in shown.stderr


def test_compare_reports_what_is_damaged_or_passes_over_it(damaged_log, inside):
    refused = inside("compare", "input.arrival", "input.arrival", "--log", damaged_log, code=1).stderr
    assert "'input.arrival' partition 0: the block of offsets 5 to 7 is damaged" in refused
    found = inside("compare", "input.arrival", "input.arrival", "--skip-damaged", "--json", "--log", damaged_log)
    assert lines(found)[0]["same"] == 5
    assert found.stderr.count("the block of offsets 5 to 7 is damaged") == 2, "once for each of the topics"
