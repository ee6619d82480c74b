"""Batches when a clock was wrong for a while: the job's clock goes on, and never back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.engine.datasource.batch_planner import first_offset, plan_batch
from tidewheel.engine.datasource.offset import Offset
from tidewheel.model.time import duration, instant
from tidewheel.model.watermarks import Strategy, arrival, bounded
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log

PRESENT = instant("2026-11-18T12:00:00Z")
FUTURE = instant("2099-01-01T00:00:00Z")
SECOND = 1_000_000


class Clock:
    time = PRESENT

    def __call__(self) -> int:
        return self.time


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "city.tw", clock=Clock())


def append(log: Log, time: int) -> None:
    log._appender._clock._clock.time = time  # type: ignore[attr-defined]
    log.append("news", records([b"x"], event_times=[PRESENT]))


def plan(log: Log, before: Offset, clock: int, *, strategy: Strategy | None = None, by_log: bool = False) -> Offset:
    strategies = {"news": strategy or bounded("1 s")}
    after = plan_batch(log, strategies, before, limit=None, clock=clock, tick=SECOND, by_log=by_log)
    return Offset.from_json(after.to_json())


def test_a_clock_in_2099_does_not_hold_the_jobs_clock_for_73_years(log: Log) -> None:
    append(log, PRESENT)
    wrong = plan(log, first_offset(log, ["news"], "earliest", clock=PRESENT), FUTURE)
    assert wrong.clock == FUTURE
    first = plan(log, wrong, PRESENT + SECOND)  # without any data: from here on it is known how time passes
    later = plan(log, first, PRESENT + 11 * SECOND, strategy=bounded("1 s", idle="5 s"))
    append(log, PRESENT + 20 * SECOND)
    last = plan(log, later, PRESENT + 21 * SECOND)
    assert [first.clock, later.clock, last.clock] == [FUTURE, FUTURE + 10 * SECOND, FUTURE + 20 * SECOND]
    assert later.watermark == PRESENT - SECOND + 10 * SECOND  # it is idle after ten seconds, not after 73 years


def test_when_the_right_clock_has_come_so_far_it_is_the_jobs_again(log: Log) -> None:
    append(log, PRESENT)
    ahead = Offset(log.identity, {("news", 0): 0}, PRESENT + duration("3 d"))
    assert plan(log, ahead, PRESENT).wall == PRESENT
    settled = plan(log, ahead, PRESENT + duration("4 d"))
    assert (settled.clock, settled.wall) == (PRESENT + duration("4 d"), None)


def test_a_clock_that_is_set_back_a_little_holds_the_jobs_clock_as_ever(log: Log) -> None:
    append(log, PRESENT)
    before = Offset(log.identity, {("news", 0): 0}, PRESENT + duration("1 h"))
    after = plan(log, before, PRESENT)
    assert (after.clock, after.wall) == (PRESENT + duration("1 h"), None)


@pytest.mark.parametrize("by_log", [False, True])
def test_append_times_of_2099_move_neither_clock_nor_watermark_of_a_job_with_a_right_clock(
    log: Log, by_log: bool
) -> None:
    append(log, PRESENT)
    append(log, FUTURE)
    before = first_offset(log, ["news"], "earliest", clock=0 if by_log else PRESENT)
    after = plan(log, before, PRESENT + SECOND, strategy=arrival(), by_log=by_log)
    assert after.positions == {("news", 0): 2}
    assert (after.clock, after.watermark) == (PRESENT + SECOND, PRESENT + SECOND)


def test_a_run_by_the_logs_clock_goes_on_after_the_log_was_corrected(log: Log) -> None:
    append(log, PRESENT)
    append(log, FUTURE)
    wrong = plan(log, first_offset(log, ["news"], "earliest", clock=0), FUTURE, by_log=True)
    assert wrong.clock == FUTURE
    append(log, PRESENT + SECOND)
    first = plan(log, wrong, PRESENT + SECOND, by_log=True)
    append(log, PRESENT + 11 * SECOND)
    second = plan(log, first, PRESENT + 11 * SECOND, by_log=True)
    assert [first.clock, second.clock] == [FUTURE, FUTURE + 10 * SECOND]
