"""Every result once, although the driver is killed again and again.

Four jobs run side by side in one driver: one with a result for each event, one with early, late and retracted results,
one with partial matches open all the time, and one whose patterns change while it runs. A kill ends all of them.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.engine.exactly_once import cells, changing_patterns, patterns, windows
from tests.support.driver_process import kill, start_driver, until_written, written
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log

MODULES = {"cells": cells, "windows": windows, "patterns": patterns, "changing_patterns": changing_patterns}
KILLS = [
    ("", 0, "and its Java"),  # while it starts, or in the first batches
    ("windows", 1, "alone"),
    ("cells", 3_001, "and its Java"),
    ("patterns", 1, "alone"),
    ("changing_patterns", 200, "and its Java"),
]
"""The job that is watched, how many results it writes before, and whether Java goes on for a moment."""
CUT = {"cells": 3, "windows": 1, "patterns": 1, "changing_patterns": 1}
"""So many of the kills must fall into a batch of a job, at least."""

JOBS = f"""
import polars as pl
import tidewheel as tw
{"".join(module.JOB for module in MODULES.values())}
def run_all(log, folder, **options):
    for run in [start(log, f"{{folder}}/{{start.__name__}}", **options) for start in ({", ".join(MODULES)})]:
        run.wait()
"""
DRIVER = f"""
import sys
{JOBS}
run_all(tw.open_log(sys.argv[1]), sys.argv[2])
"""


def unfinished(checkpoint: Path) -> set[str]:
    """The batches that were begun and not finished."""
    begun, done = (
        {path.name for path in (checkpoint / "spark" / kind).glob("*") if path.name.isdigit()}
        for kind in ("offsets", "commits")
    )
    return begun - done


def a_log(request: pytest.FixtureRequest, folder: Path) -> Log:
    """An empty log of the kind that is asked for."""
    if request.param == "kafka":
        return open_log(f"kafka://{request.getfixturevalue('kafka').address}/{uuid.uuid4().hex}")
    return open_log(folder / "test.tw", sync="normal")


@pytest.fixture(scope="module", params=["file", pytest.param("kafka", marks=pytest.mark.long)])
def log(spark, tmp_path_factory, request):
    """What the jobs have written through all kills, and then to the end in a driver that is not killed, which is this
    process."""
    folder = tmp_path_factory.mktemp("killed")
    with a_log(request, folder) as log:
        for module in MODULES.values():
            module.fill(log)
        run_through_kills(log, folder)
        before = {name: written(log, module.RESULTS) for name, module in MODULES.items()}
        jobs: dict[str, Any] = {}
        exec(JOBS, jobs)
        jobs["run_all"](log, folder, spark=spark)
        for name, module in MODULES.items():
            assert not unfinished(folder / name), name
            assert before[name] < written(log, module.RESULTS), f"{name}: killed too late to show anything"
        yield log


def run_through_kills(log: Log, folder: Path) -> None:
    """Kill drivers at all the moments, and on until enough of the kills fell into batches."""
    errors = folder / "errors"
    chance = random.Random(20)
    cut: Counter[str] = Counter()
    kills = 0
    while kills < len(KILLS) or any(cut[name] < least for name, least in CUT.items()):
        watched, more, how = KILLS[kills % len(KILLS)]
        driver = start_driver(DRIVER, log, folder, errors)
        if watched:
            topic = MODULES[watched].RESULTS
            assert until_written(log, topic, written(log, topic) + more, driver), errors.read_text()
            time.sleep(chance.uniform(0, 0.4))  # at any moment of the next batches
        else:
            time.sleep(chance.uniform(0, 6))  # at any moment of its start
        kill(driver, alone=how == "alone")
        cut.update(name for name in MODULES if unfinished(folder / name))
        kills += 1


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_every_result_is_there_once_although_the_driver_is_killed(log):
    cells.check(log)


def test_replayed_results_end_in_exactly_the_right_table(log):
    windows.check(log)


def test_the_same_matches_once_whenever_the_driver_is_killed(log):
    patterns.check(log)


def test_matches_of_changing_patterns_come_once_whatever_is_killed(log):
    changing_patterns.check(log)
