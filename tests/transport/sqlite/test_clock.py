"""The log when the machine's clock was wrong for a while."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from tidewheel.model.time import duration, instant, moment, now
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.open_log import open_log

PRESENT = instant("2026-11-18T12:00:00Z")
FUTURE = instant("2099-01-01T00:00:00Z")
HOUR, DAY = duration("1 h"), duration("1 d")


class Clock:
    def __init__(self, time: int) -> None:
        self.time = time

    def __call__(self) -> int:
        return self.time


def append(log: Log, clock: Clock, time: int, topic: str = "news") -> None:
    clock.time = time
    log.append(topic, records([b"x"], event_times=[PRESENT]))


def times(log: Log, topic: str = "news") -> list[int]:
    """The append times of all blocks, as planners and readers see them."""
    first = log.topic_info(topic).first_offsets[0]
    reported = [block.summary.append_time for block in log.blocks(topic, 0, first)]
    read = [batch.records.column("append_time")[0].value for batch in log.read(topic, 0, first)]
    assert reported == read
    return reported


def test_after_one_append_in_2099_times_are_right_again_and_never_fall(tmp_path: Path, caplog) -> None:
    clock = Clock(PRESENT)
    with caplog.at_level(logging.WARNING), open_log(tmp_path / "city.tw", clock=clock) as log:
        append(log, clock, PRESENT)
        append(log, clock, FUTURE)
        append(log, clock, PRESENT + HOUR)
        append(log, clock, PRESENT + 2 * HOUR)
        assert times(log) == [PRESENT, PRESENT + HOUR, PRESENT + HOUR, PRESENT + 2 * HOUR]
        assert log.topic_info("news").last_append == PRESENT + 2 * HOUR
        assert log.position("news", 0, moment(PRESENT + HOUR)) == 1
        assert log.position("news", 0, moment(PRESENT + HOUR + 1)) == 3
    said = [record.getMessage() for record in caplog.records]
    assert "after the log's last append" in said[0]
    assert "the times of 1 blocks" in said[1]
    assert len(said) == 2


def test_other_topics_that_were_appended_to_in_2099_are_corrected_too(tmp_path: Path) -> None:
    clock = Clock(PRESENT)
    with open_log(tmp_path / "city.tw", clock=clock) as log:
        append(log, clock, PRESENT)
        append(log, clock, FUTURE)
        append(log, clock, FUTURE + HOUR, topic="silent")
        clock.time = PRESENT + HOUR
        log.maintain()
        assert (times(log), times(log, "silent")) == ([PRESENT, PRESENT + HOUR], [PRESENT + HOUR])


def test_retention_by_age_works_again(tmp_path: Path) -> None:
    clock = Clock(PRESENT)
    with open_log(tmp_path / "city.tw", clock=clock) as log:
        log.create_topic("news", retention=Retention(age=2 * HOUR))
        append(log, clock, PRESENT)
        append(log, clock, FUTURE)
        append(log, clock, PRESENT + HOUR)
        append(log, clock, PRESENT + 4 * HOUR)
        log.maintain()
        assert times(log) == [PRESENT + 4 * HOUR]


def test_a_clock_that_leaps_ahead_lets_nothing_go_before_it_has_proved_itself(tmp_path: Path) -> None:
    clock = Clock(PRESENT)
    with open_log(tmp_path / "city.tw", clock=clock) as log:
        log.create_topic("news", retention=Retention(age=2 * HOUR))
        append(log, clock, PRESENT)
        append(log, clock, PRESENT + 1)
    with open_log(tmp_path / "city.tw", clock=clock) as log:  # each looks after the log with its first append
        append(log, clock, FUTURE)
        assert log.topic_info("news").count == 3
    with open_log(tmp_path / "city.tw", clock=clock) as log:
        append(log, clock, FUTURE + DAY - 1)
        assert log.topic_info("news").count == 4
    with open_log(tmp_path / "city.tw", clock=clock) as log:
        append(log, clock, FUTURE + 2 * DAY - 2)
        assert log.topic_info("news").count == 1


def test_a_log_that_is_appended_to_every_other_day_forgets_as_well(tmp_path: Path) -> None:
    clock = Clock(PRESENT)
    for day in range(0, 20, 2):
        with open_log(tmp_path / "city.tw", clock=clock) as log:
            log.create_topic("news", retention=Retention(age=5 * DAY))
            append(log, clock, PRESENT + day * DAY)
            assert log.topic_info("news").count <= 5


@pytest.mark.parametrize(
    "wrong", [0, instant("1970-01-02T00:00:00Z"), PRESENT - 30 * DAY], ids=["1970", "a day later", "last month"]
)
def test_a_clock_that_is_behind_corrects_nothing(tmp_path: Path, wrong: int, caplog) -> None:
    clock = Clock(PRESENT)
    with caplog.at_level(logging.WARNING), open_log(tmp_path / "city.tw", clock=clock) as log:
        for hours in range(-24 * 60, 1, 12):
            append(log, clock, PRESENT + hours * HOUR)
        before = times(log)
        append(log, clock, wrong)
        append(log, clock, wrong + 1)
        log.maintain()
        assert times(log) == [*before, PRESENT, PRESENT]
        append(log, clock, PRESENT + HOUR)
        assert times(log)[-1] == PRESENT + HOUR
    assert [record.getMessage() for record in caplog.records if "is not trusted" in record.getMessage()][1:] == []


def test_a_log_that_was_made_in_2099_is_corrected(tmp_path: Path) -> None:
    clock = Clock(FUTURE)
    with open_log(tmp_path / "city.tw", clock=clock) as log:
        append(log, clock, FUTURE)
        append(log, clock, PRESENT)
        assert times(log) == [PRESENT, PRESENT]


def test_event_times_that_only_the_wrong_clock_could_believe_are_no_longer_plausible(tmp_path: Path) -> None:
    clock = Clock(PRESENT)
    with open_log(tmp_path / "city.tw", clock=clock) as log:
        append(log, clock, PRESENT)
        clock.time = FUTURE
        log.append("news", records([b"x", b"y"], event_times=[PRESENT, FUTURE]))
        append(log, clock, PRESENT + 1)
        summary = log.blocks("news", 0, 1)[0].summary
        assert (summary.max_plausible, summary.max_event_time, dict(summary.skew)) == (PRESENT, FUTURE, {})


def test_compaction_goes_on_over_corrected_blocks(tmp_path: Path) -> None:
    clock = Clock(PRESENT)
    with open_log(tmp_path / "city.tw", clock=clock) as log:
        log.create_topic("latest", compact=True)
        for clock.time in (PRESENT, FUTURE, PRESENT + 1, PRESENT + 2):
            log.append("latest", records([b"%d" % clock.time], keys=[b"key"]))
        log.maintain()
        values = [batch.records.column("value").to_pylist() for batch in log.read("latest", 0, 0)]
        assert values == [[b"%d" % (PRESENT + 2)]]


def test_the_command_line_reports_a_log_that_is_in_the_future(tmp_path: Path) -> None:
    with open_log(tmp_path / "city.tw", clock=Clock(now() + 400 * DAY)) as log:
        log.append("news", records([b"x"]))
    command = [sys.executable, "-m", "tidewheel.cli", "topics", "--log", tmp_path / "city.tw"]
    reported = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    (warning,) = [each for each in json.loads(reported)["warnings"] if each["what"] == "Clock of the log"]
    assert "news: appended up to" in warning["found"]
    assert "399 d" in warning["found"]


def test_what_appends_nothing_is_no_leap_of_the_clock(tmp_path: Path, caplog) -> None:
    """A query whose batches write nothing for days notes their numbers all the same."""
    clock = Clock(PRESENT)
    with caplog.at_level(logging.WARNING), open_log(tmp_path / "city.tw", clock=clock) as log:
        log.create_topic("news", retention=Retention(age=HOUR))
        for _ in range(3):
            append(log, clock, PRESENT)
        producer = log.producer("spark:query", fence=False)
        for number in range(5):
            clock.time = PRESENT + (number + 1) * DAY
            producer.append({}, sequence=number)
        assert not caplog.records
        assert log.producer("spark:query", fence=False).sequence == 4
        log.maintain()
        assert log.topic_info("news").count == 1, "but for the newest block, which never leaves"
