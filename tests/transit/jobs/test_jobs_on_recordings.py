"""The transit jobs over real recordings and simulated traffic, without Spark, against the oracles."""

from __future__ import annotations

import pytest

from tests.transit.jobs.job_cases import run_job
from tests.transit.jobs.job_checks import RECORDINGS, TEN, at_once, check_all, check_found, events_of, recording
from tests.transit.jobs.job_traffic import events_in, fill

pytestmark = pytest.mark.long


def run_ten(given):
    return {job.name: run_job(job, given[topic]) for job in TEN for topic in job.reads}


def cut(given, size):
    """In batches of so many events; time moves when all have come, so that none is late."""
    return {
        topic: [(rows[start : start + size], None) for start in range(0, len(rows), size)]
        for topic, [(rows, _)] in given.items()
    }


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings(shared, name):
    given = at_once(events_of(recording(shared / "data" / "hfp" / f"{name}.jsonl.gz")))
    check_found(name, check_all(run_ten(cut(given, 4_000)), given))


def test_simulated_traffic(log):
    fill(log, seconds=120, rate=40, seed=3)
    given = at_once(events_in(log))
    checked = check_all(run_ten(cut(given, 3_000)), given)
    assert checked == check_all(run_ten(given), given)
    assert min(checked.sizes.values()) > 5, checked.sizes
    assert min(checked.repeats.values()) > 0, checked.repeats
    assert not any(checked.late.values())
