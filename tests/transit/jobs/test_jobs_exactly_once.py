"""All transit jobs in one query, whose driver and worker are killed: the same tables as if nothing had happened."""

from __future__ import annotations

import random
import shutil
import time
from typing import Any

import pytest

import tidewheel as tw
from tests.support.driver_process import kill, kill_worker, start_driver, until_written, written
from tests.transit.jobs.job_checks import TEN
from tests.transit.jobs.job_traffic import fill
from tests.transit.jobs.test_jobs_on_spark import read
from tidewheel.engine.jobs.job import Job
from tidewheel.transport.events.registry import type_name
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.materialize import compare, materialize

pytestmark = pytest.mark.long

SHOWN = "analytics.vehicle-distribution"
"""The topic whose results tell how far the jobs have come: it gets some in nearly every batch."""

DRIVER = """
import sys
import tidewheel as tw
from tidewheel_transit import jobs

log = tw.open_log(sys.argv[1])
ten = [getattr(jobs, name) for name in jobs.__all__ if name != "vehicle_cell"]
run = tw.run(*ten, log=log, checkpoint=sys.argv[2], available_now=True, max_events_per_batch=1_200)
run.wait()
assert run.failed == {}, run.failed
"""


def everything(log: Log, job: Job) -> dict[str, list[tuple[Any, ...]]]:
    """All that came out of a job, by output, but for its metrics, which tell the time on the wall."""
    found = {}
    for output in job.on(log).schemas():
        if output != "metrics":
            topic = f"{'analytics' if output == 'results' else output}.{job.name}"
            frame = read(log, topic, type_name(job.writes) if output == "results" else None)
            found[output] = [] if frame is None else sorted(frame.drop("ingestion_time").rows(), key=repr)
    return found


@pytest.mark.slow
def test_all_jobs_end_with_the_same_tables_whatever_is_killed(spark, tmp_path):
    with open_log(tmp_path / "recorded.tw") as log:
        fill(log, seconds=120, rate=40, seed=7)
    shutil.copyfile(tmp_path / "recorded.tw", tmp_path / "disturbed.tw")
    checkpoint, errors = tmp_path / "checkpoint", tmp_path / "errors"
    with open_log(tmp_path / "recorded.tw") as whole, open_log(tmp_path / "disturbed.tw") as log:
        settings = {"spark": spark, "available_now": True, "max_events_per_batch": 1_200}
        undisturbed = tw.run(*TEN, log=whole, checkpoint=tmp_path / "undisturbed", **settings)
        undisturbed.wait()
        assert undisturbed.failed == {}
        total = written(whole, SHOWN)
        driver = start_driver(DRIVER, log, checkpoint, errors)
        assert until_written(log, SHOWN, int(0.3 * total), driver), errors.read_text()
        time.sleep(random.Random(8).uniform(0, 0.6))  # at any moment of the next batch
        kill(driver, alone=False)
        assert written(log, SHOWN) < total, "killed too late to show anything"
        driver = start_driver(DRIVER, log, checkpoint, errors)
        assert until_written(log, SHOWN, int(0.7 * total), driver), errors.read_text()
        assert kill_worker(driver), errors.read_text()
        assert written(log, SHOWN) < total, "killed too late to show anything"
        if driver.wait() != 0:  # a task that fails ends the run, unless Spark tries it again
            assert start_driver(DRIVER, log, checkpoint, errors).wait() == 0, errors.read_text()

        reported: set[str] = set()
        for job in TEN:
            found = compare(materialize(whole, job.topic), materialize(log, job.topic))
            assert found.equal, (job.name, found.only_first, found.only_second, found.changed)
            assert found.same > 0, f"{job.name} has nothing to show"
            assert found.open == 0, job.name
            # Not only in the end: every result, whether it was replaced or not, is there once, and so is all else.
            expected = everything(whole, job)
            assert everything(log, job) == expected, job.name
            reported |= {output for output, rows in expected.items() if rows}
        assert reported >= {"results", "late", "duplicates", "failed"}, (
            "there is disorder, there are repeats and failures"
        )
