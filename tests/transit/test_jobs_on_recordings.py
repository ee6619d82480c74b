"""The transit jobs over real recordings and simulated traffic, without Spark, against the oracles."""

from __future__ import annotations

import polars as pl
import pytest
from job_cases import run_job
from job_checks import RECORDINGS, TEN, check_all, events_of, recording
from job_oracles import MINUTE

from tidewheel.apps.transit.simulator import Simulator
from tidewheel.model.time import instant


def run_ten(events: pl.DataFrame, size: int):
    """All jobs in batches of so many events; time moves when all have come, so that none is late."""
    rows = events.with_columns(pl.col(pl.Datetime).cast(pl.Int64))
    found = {}
    for job in TEN:
        [topic] = job.reads
        mine = rows.filter(pl.col("topic") == topic).to_dicts()
        batches = [(mine[start : start + size], None) for start in range(0, len(mine), size)]
        found[job.name] = run_job(job, batches)
    return found


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings(shared, name):
    events = events_of(recording(shared / "data" / "hfp" / f"{name}.jsonl.gz"))
    check_all(run_ten(events, 4_000), events)


def test_simulated_traffic():
    simulator = Simulator(start=instant("2025-10-09T07:40:00+03:00"), seed=5, rate=40)
    events = events_of(simulator.advance(simulator.start + 4 * MINUTE).records())
    sizes = check_all(run_ten(events, 3_000), events)
    assert sizes == check_all(run_ten(events, 100_000), events)
    assert min(sizes[name] for name in ("vehicle-distribution", "delay-distribution", "journeys", "geofences")) > 0
