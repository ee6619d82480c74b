"""All transit jobs as a stream that late rows come to, in batches of any size, and as a batch over the same rows: the
same tables, in every mode that leaves one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import polars as pl
import pytest

import tidewheel as tw
from tests.transit.jobs.job_checks import TEN
from tests.transit.jobs.job_traffic import events_in, fill, put
from tidewheel.engine.jobs.batch import run_batch
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.materialize import compare, frames_of, materialize

pytestmark = pytest.mark.long

LATENESS = "90 s"
OPTIONS = {
    "vehicle-distribution": {"lateness": LATENESS, "size": "20 s", "every": "10 s", "resolution": 11},
    "final-stop-distribution": {"lateness": LATENESS, "size": "30 s", "every": "15 s"},
    "delay-distribution": {"lateness": LATENESS, "size": "30 s", "every": "15 s"},
    "journeys": {"lateness": LATENESS, "gap": "1500 ms"},  # vehicles report every second: one that is late joins two
}
"""Jobs that take late rows: none is too late for them. The others take none that the watermark has passed."""
MODES = dict.fromkeys((*OPTIONS, "flow-direction"), ("value", "retracting"))
CASES = [(job.name, mode) for job in TEN for mode in MODES.get(job.name, ("",))]


@dataclass(frozen=True)
class Reported:
    """The log, and how many rows were too late for each job."""

    log: Log
    too_late: dict[str, int]


def results(log, reads=None):
    """All jobs in all modes; `reads`: the topic that a job reads instead of its own."""
    for job in TEN:
        if reads and job.name in reads:
            job = replace(job, reads={reads[job.name]: next(iter(job.reads.values()))})
        for mode in MODES.get(job.name, ("",)):
            options = OPTIONS.get(job.name, {}) | ({"mode": mode} if mode else {})
            yield job.on(log, **options).named(f"{job.name}.{mode}" if mode else job.name)


def too_late(log, name):
    """The rows that a job could not take, by vehicle and time, as often as they came."""
    found = Counter()
    for frame in frames_of(log, f"late.{name}"):
        found.update(frame.select("operator", "vehicle", "event_time").rows())
    names = [info.name for info in log.topics()]
    further = [topic for topic in names if topic.startswith("late_") and topic.endswith(f".{name}")]
    assert not any(True for topic in further for _ in frames_of(log, topic)), "what one stage takes all do"
    return found


def without(rows, late):
    """Rows of which so many were too late: of those of one time that came last."""
    who = ["operator", "vehicle", "event_time"]
    number = pl.int_range(pl.len()).reverse().over(who)
    counts = pl.DataFrame(
        [(*key, count) for key, count in late.items()],
        schema={name: rows.schema[name] for name in who} | {"late": pl.Int64},
        orient="row",
    )
    left = rows.with_columns(number.alias("number")).join(counts, on=who, how="left", maintain_order="left")
    return left.filter(pl.col("late").is_null() | (pl.col("number") >= pl.col("late")))


@pytest.fixture(scope="module")
def reported(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    with open_log(folder / "city.tw") as log:
        # Late are arrivals, and where vehicles are at the end of a window: these have moved to another cell meanwhile.
        halting = (pl.col("event") == "ars") & (pl.col("vehicle") % 3 == 1)
        last = (pl.col("vehicle") % 5 == 2) & (pl.col("event_time").dt.epoch("s") % 10 >= 8)
        fill(log, seconds=100, rate=40, seed=11, blocks=(20, 1_800), hold=halting | last)
        # Each block of the log, which are of any size, is a batch.
        run = tw.run(
            *results(log), log=log, checkpoint=folder / "stream", spark=spark, available_now=True,
            max_events_per_batch=1, key_groups=2,
        )  # fmt: skip
        run.wait()
        assert run.failed == {}
        events = events_in(log).with_columns(arrival_time="ingestion_time")
        reads, count = {}, {}
        for job in TEN:
            name = f"{job.name}.value" if job.name in MODES else job.name
            late = too_late(log, name)
            count[job.name] = late.total()
            if late:
                [topic] = job.reads
                reads[job.name] = f"in-time.{job.name}"
                rows = without(events.filter(pl.col("topic") == topic), late)
                put(log, reads[job.name], rows, message=job.reads[topic])
        named = [result.named(f"{result.name}.batch") for result in results(log, reads)]
        run_batch(*named, log=log, spark=spark, key_groups=2)
        yield Reported(log, count)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_the_batch_gives_the_final_table_of_the_stream(reported, name, mode):
    topic = f"analytics.{name}.{mode}" if mode else f"analytics.{name}"
    found = compare(materialize(reported.log, topic), materialize(reported.log, f"{topic}.batch"))
    assert found.equal, (found.only_first, found.only_second, found.changed)
    assert found.same > 0
    assert found.open == 0


def test_the_stream_is_full_of_late_rows(reported):
    assert {name for name, count in reported.too_late.items() if not count} == OPTIONS.keys()
    for name in OPTIONS:
        timings = pl.concat(frames_of(reported.log, f"analytics.{name}.value"))["pane_timing"]
        assert {*timings} == ({"ON_TIME"} if name == "journeys" else {"ON_TIME", "LATE"}), name


def test_what_late_rows_leave_behind_is_not_in_the_table(reported):
    counts = pl.concat(frames_of(reported.log, "analytics.vehicle-distribution.value"))
    assert counts["retraction"].sum() > 0, "a cell has lost its last vehicle"
    assert counts["vehicles"].min() > 0
    topic = "analytics.journeys.value"
    grown = materialize(reported.log, topic, nested=True).rows.height - materialize(reported.log, topic).rows.height
    assert grown > 20
