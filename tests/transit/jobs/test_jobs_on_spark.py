"""All transit jobs in one query on Spark: simulated traffic and real recordings, against the oracles."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest

import tidewheel as tw
from tests.transit.jobs.job_cases import materialize
from tests.transit.jobs.job_checks import RECORDINGS, TEN, as_cut, at_once, check_all, check_found, events_of, recording
from tests.transit.jobs.job_traffic import events_in, fill, finished
from tests.transit.jobs.test_lookup_kills import answers
from tidewheel.engine.execution.query_start import start_query
from tidewheel.engine.execution.run_options import RunSettings
from tidewheel.engine.execution.targets import Target
from tidewheel.model.watermarks import Strategy
from tidewheel.transport.events import event_pb2
from tidewheel.transport.events.codec import decode_columns
from tidewheel.transport.events.registry import TypeRegistry, type_name
from tidewheel.transport.events.schema_inference import generated_type_name
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.types import load_types
from tidewheel_transit.jobs import journeys

pytestmark = pytest.mark.long

WINDOWED = [job for job in TEN if "mode" in {parameter.name for parameter in job.parameters}]
NEVER_LATE = tw.watermarks.bounded("2 h")
DEFAULT = TEN[0].watermark


def run_all(
    spark, log: Log, checkpoint: Path, *, batch: int, mark: Strategy = NEVER_LATE, way: str = "", back: bool = False
) -> None:
    """All ten in one query, into topics of their names; and those with windows once more, such that they retract what
    they have said before they say something else."""
    targets = {}
    again = [(job, {"mode": "retracting", "early": "1 s"}, ".back") for job in WINDOWED] if back else []
    for job, parameters, end in [*((job, {}, "") for job in TEN), *again]:
        [(topic, message)] = job.reads.items()
        stream = tw.stream(log, topic, type=message, watermark=mark)
        result = job(stream, **parameters).named(job.name + way + end)
        places = {"results": "analytics"}
        targets[result] = {
            output: Target(
                log.topic(f"{places.get(output, output)}.{result.name}"), job.writes if output == "results" else None
            )
            for output in result.schemas()
        }
    settings = RunSettings(spark=spark, available_now=True, max_events_per_batch=batch)
    run = start_query(targets, log, checkpoint=checkpoint, name="ten", settings=settings)
    run.wait()
    assert run.failed == {}


def read(log: Log, topic: str, kind: str | None = None) -> pl.DataFrame | None:
    """All events of a topic without markers; None if there are none."""
    registry = TypeRegistry()
    registry.register(event_pb2)
    load_types(log, registry)
    frames = []
    info = log.topic_info(topic)
    for partition in range(info.partitions):
        for batch in log.read(topic, partition, info.first_offsets[partition]):
            values = batch.records.column("value")
            name = kind or generated_type_name(topic)
            frame = pl.from_arrow(decode_columns(name, values, registry=registry).columns)
            assert isinstance(frame, pl.DataFrame)
            if frame.height:
                frames.append(frame)
    return pl.concat(frames) if frames else None


def outputs(log: Log, job, way: str = "") -> dict[str, pl.DataFrame]:
    found = {"results": read(log, f"analytics.{job.name}{way}", type_name(job.writes))}
    there = {info.name for info in log.topics()}
    for output in ("late", "late_2", "late_3", "duplicates", "unresolved", "metrics"):
        if f"{output}.{job.name}{way}" in there:
            found[output] = read(log, f"{output}.{job.name}{way}")
    return {output: frame for output, frame in found.items() if frame is not None}


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """A log with traffic of which every job has something to tell."""
    with open_log(tmp_path_factory.mktemp("city") / "city.tw", sync="normal") as log:
        fill(log, seconds=150, rate=40, seed=1)
        yield log


@pytest.mark.slow
def test_simulated_traffic(spark, city, tmp_path):
    run_all(spark, city, tmp_path / "run", batch=1_000_000)
    found = {job.name: outputs(city, job) for job in TEN}
    checked = check_all(found, at_once(events_in(city)), known=answers(city))
    assert min(checked.sizes.values()) > 5, checked.sizes
    assert min(checked.repeats.values()) > 0, checked.repeats
    assert not any(checked.late.values())


def test_simulated_traffic_of_which_some_is_late(spark, city, tmp_path):
    size = random.Random(3).randrange(2_000, 4_000)
    run_all(spark, city, tmp_path / "run", batch=size, mark=DEFAULT, way=".live", back=True)
    found = {job.name: outputs(city, job, ".live") for job in TEN}
    given = as_cut(events_in(city), tmp_path / "run")
    checked = check_all(found, given, known=answers(city))
    assert min(checked.sizes.values()) > 5, checked.sizes
    assert min(checked.repeats.values()) > 0, checked.repeats
    on_time = ("delay-distribution", "final-stop-distribution", "journeys")  # their windows are long
    assert min(count for name, count in checked.late.items() if name not in on_time) > 0, checked.late
    for name in ("vehicle-distribution", "final-stop-distribution"):
        assert "LATE" in found[name]["results"]["pane_timing"], name
    # The same with early results and retractions: what is replaced was retracted before, and the table is the same.
    back = {job.name: outputs(city, job, ".live.back") for job in WINDOWED}
    assert checked == check_all({**found, **back}, given, known=answers(city))
    for job in WINDOWED:
        key = ["operator", "vehicle", "operating_day", "start", "route", "direction"] if job is journeys else ["cell"]
        materialize(back[job.name], key, [], mode="retracting")
    for name in ("vehicle-distribution", "final-stop-distribution"):
        assert back[name]["results"]["retraction"].any(), name


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings(spark, shared, tmp_path, name):
    processed = recording(shared / "data" / "hfp" / f"{name}.jsonl.gz")
    with open_log(tmp_path / "city.tw") as log:
        for topic, given in processed.topics.items():
            log.append(topic, given)
        finished(log, events_of(processed))
        count = sum(given.num_rows for given in processed.topics.values())
        run_all(spark, log, tmp_path / "run", batch=max(2_000, count // 4))
        check_found(name, check_all({job.name: outputs(log, job) for job in TEN}, at_once(events_in(log))))
