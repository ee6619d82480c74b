"""The benchmark of the transit jobs measures what it says: growth is found, repeats and losses are found, and a short
run of the whole chain comes out with all its figures and every event accounted for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.__main__ import main
from bench.figures import write
from bench.transit import (
    highest_factor,
    keeps_up,
    memory_figures,
    outcome_figures,
    stretch_figures,
)
from bench.transit_account import Account, accounts
from bench.transit_jobs import JOBS, Sample
from bench.transit_soak import Soak, Stretch
from bench.trends import slope
from tidewheel.engine.jobs.run import run
from tidewheel.model.time import instant
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.jobs import delay_distribution, vehicle_cell
from tidewheel_transit.simulator import Simulator

pytestmark = pytest.mark.long


def sample(at: float, *, lag: int = 0, java: int = 0, rate: float = 700) -> Sample:
    return Sample(
        at=at,
        came=round(at * rate),
        lag=lag,
        waited=0.0,
        behind=0.0,
        batch_ms=1_000.0,
        batches=round(at),
        events=0,
        driver=0,
        java=java,
        workers=0,
        state=0,
        stored=0,
    )


def stretch(lags: list[int], *, rate: float = 700) -> Stretch:
    return Stretch(rate, [sample(2.0 * number, lag=lag, rate=rate) for number, lag in enumerate(lags)])


def met(figures, name: str) -> bool | None:
    [found] = [figure for figure in figures if figure.name == name]
    return found.met


SAW = [300, 1_000, 1_700]
"""The lag within a batch and the next ones."""


def test_a_lag_that_rises_and_falls_with_batches_does_not_grow():
    found = stretch(SAW * 20)
    assert keeps_up(found)
    assert met(stretch_figures(found), "lag grows by") is True


def test_a_lag_that_grows_is_found():
    found = stretch([lag + 100 * number for number, lag in enumerate(SAW * 20)])
    assert not keeps_up(found)
    assert met(stretch_figures(found), "lag grows by") is False


def test_a_lag_that_grows_in_a_few_long_batches_is_found():
    steps = [2_000] * 5 + [9_000] * 5 + [16_000] * 20
    found = stretch(steps)
    assert found.slope(lambda sample: sample.lag) == 0
    assert not keeps_up(found)


def test_what_is_caught_up_with_in_the_first_third_does_not_count():
    assert keeps_up(stretch([20_000, 15_000, 10_000, 5_000, *SAW * 4]))
    assert stretch([0] * 5 + [7] * 5 + [9] * 5).third(2, lambda sample: sample.lag) == 9


def test_a_simulator_that_is_behind_does_not_count_as_keeping_up():
    found = stretch(SAW * 20)
    assert not keeps_up(replace(found, rate=1_400))


def test_memory_that_grows_is_found():
    size = 1_000_000_000
    steady = Stretch(700, [sample(at, java=size + at % 7 * 1_000_000) for at in range(600)])
    leaking = Stretch(700, [sample(at, java=size + at * 1_000_000) for at in range(600)])
    assert met(memory_figures(steady), "all grow by") is True
    assert met(memory_figures(leaking), "all grow by") is False


def test_a_slope_needs_two_moments():
    with pytest.raises(ValueError, match="two moments at least, got 1"):
        slope([1.0], [1.0])


@pytest.mark.parametrize(("limit", "highest"), [(0.1, 0), (0.6, 0.5), (1, 1), (1.7, 1.5), (7, 6), (8, 8)])
def test_the_highest_factor_is_found(limit, highest):
    assert highest_factor(lambda factor: factor <= limit) == highest


def test_an_account_that_does_not_add_up_is_found():
    good = Account("job", came=10, accepted=7, late=1, skipped=2, results=4, written=4, late_written=1, twice=0)
    assert good.holds
    for lost in ("came", "accepted", "late", "skipped", "results", "written", "late_written", "twice"):
        assert not replace(good, **{lost: getattr(good, lost) + 1}).holds


def test_results_that_are_written_again_and_events_that_no_job_saw_are_found(spark, tmp_path):
    simulator = Simulator(start=instant("2025-10-09T07:40:00+03:00"), seed=3, rate=60)
    with open_log(tmp_path / "city.tw") as log:
        for topic, given in simulator.advance(simulator.start + 60_000_000).records().topics.items():
            log.append(topic, given)
        jobs = (vehicle_cell, delay_distribution)
        run(*jobs, log=log, checkpoint=tmp_path / "checkpoint", spark=spark, available_now=True).wait()
        before = accounts(log, jobs[1:])
        assert before[0].holds
        assert before[0].written > 0
        [batch] = log.read("analytics.delay-distribution", 0, 0, limit=1)
        log.append(
            "analytics.delay-distribution",
            records(batch.records.column("value")[:1], keys=batch.records.column("key")[:1]),
        )
        [again] = accounts(log, jobs[1:])
        assert (again.twice, again.missing) == (1, 1)
        for topic, given in simulator.advance(simulator.start + 120_000_000).records().topics.items():
            log.append(topic, given)
        [unseen] = accounts(log, jobs[1:])
        assert unseen.missing > again.missing


def test_all_ten_jobs_in_real_time_do_every_event_once(tmp_path):
    with Soak(tmp_path, lambda text: None, period=1.0) as chain:
        found = chain.stretch(8, rate=300)  # a few of them arrivals, which one job lives on
        outcome = chain.finish(240)
    assert len(found.samples) >= 4
    assert outcome.came > 400
    assert [each.job for each in outcome.accounts] == [job.name for job in JOBS]
    assert all(each.holds for each in outcome.accounts), outcome.accounts
    assert all(each.came > 0 for each in outcome.accounts)
    assert outcome.accounts[0].written > 0
    figures = [*stretch_figures(found), *memory_figures(found), *outcome_figures(outcome)]
    for name in ("events and results that do not add up", "results that are there twice", "dead letters"):
        assert met(figures, name) is True
    write(figures, tmp_path / "transit.json")
    written = json.loads((tmp_path / "transit.json").read_text())["figures"]
    assert {"lag grows by", "all grow by", "a batch, p50"} <= {figure["name"] for figure in written}


def test_a_length_that_makes_no_sense_is_reported(capsys):
    with pytest.raises(SystemExit):
        main(["transit", "--minutes", "0"])
    assert "--minutes must be above 0, got 0" in capsys.readouterr().err
