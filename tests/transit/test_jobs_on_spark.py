"""All transit jobs in one query on Spark: simulated traffic and real recordings, against the oracles."""

from __future__ import annotations

import random
import re
from pathlib import Path

import job_oracles as oracle
import polars as pl
import pytest
from job_checks import RECORDINGS, TEN, check_all, events_of, recording

import tidewheel as tw
from tidewheel.apps.transit.simulator import Simulator
from tidewheel.apps.transit.topics import TOPICS
from tidewheel.engine.launch import Target, start_flows
from tidewheel.model.time import instant
from tidewheel.transport import event_pb2
from tidewheel.transport.codec import decode_columns, encode, pack
from tidewheel.transport.log import Log, open_log, records
from tidewheel.transport.registry import TypeRegistry, type_name
from tidewheel.transport.type_topic import load_types

END = 200 * oracle.MINUTE
"""So far after the last event a marker lets every window end."""


def run_all(spark, log: Log, checkpoint: Path, *, batch: int) -> None:
    """All ten in one query, into topics of their names."""
    # Nothing is late, so that every cut into batches must give the same.
    mark = tw.watermarks.bounded("2 h")
    targets = {}
    for job in TEN:
        [(topic, message)] = job.reads.items()
        result = job(tw.stream(log, topic, type=message, watermark=mark)).named(job.name)
        places = {"results": "analytics"}
        targets[result] = {
            port: Target(log.topic(f"{places.get(port, port)}.{job.name}"), job.writes if port == "results" else None)
            for port in result.schemas()
        }
    run = start_flows(
        targets, log, checkpoint=checkpoint, name="ten", spark=spark, available_now=True, max_events_per_batch=batch
    )
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
            name = kind or "tidewheel.results." + "".join(part.capitalize() for part in re.split(r"[\W_]", topic))
            frame = pl.from_arrow(decode_columns(name, values, registry=registry).columns)
            assert isinstance(frame, pl.DataFrame)
            if frame.height:
                frames.append(frame)
    return pl.concat(frames) if frames else None


def outputs(log: Log, job) -> dict[str, pl.DataFrame]:
    found = {"results": read(log, f"analytics.{job.name}", type_name(job.writes))}
    there = {info.name for info in log.topics()}
    for port in ("late", "duplicates", "metrics"):
        if f"{port}.{job.name}" in there:
            found[port] = read(log, f"{port}.{job.name}")
    return {port: frame for port, frame in found.items() if frame is not None}


def finished(log: Log, events: pl.DataFrame) -> None:
    """Let time pass by all windows: with a deadrun long after the last event, which all jobs skip."""
    last = max(time for time in events["event_time"].cast(pl.Int64) if time is not None)
    for topic, event in (("input.vehicle-position", "vp"), ("input.arrival", "due")):
        marker = pack(TOPICS[topic](journey="deadrun", event=event, operator=9, vehicle=9), event_time=last + END)
        log.append(topic, records([encode(marker)], event_times=[last + END]))


def test_simulated_traffic(spark, tmp_path):
    simulator = Simulator(start=instant("2025-10-09T07:40:00+03:00"), seed=11, rate=40)
    chunk = simulator.advance(simulator.start + 8 * oracle.MINUTE)
    dice = random.Random(3)
    tables = []
    for number, batch in enumerate((1_000_000, dice.randrange(2_000, 6_000))):
        with open_log(tmp_path / f"city{number}.tw") as log:
            processed = chunk.records()
            for topic, given in processed.topics.items():
                for start in range(0, given.num_rows, 1_500):
                    log.append(topic, given.slice(start, 1_500))
            sizes = check_run(spark, log, events_of(processed), tmp_path / f"run{number}", batch)
            tables.append(sizes)
    assert tables[0] == tables[1]
    assert {"vehicle-distribution", "delay-distribution", "flow-direction", "journeys", "geofences"} <= {
        name for name, size in sizes.items() if size
    }


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings(spark, shared, tmp_path, name):
    processed = recording(shared / "data" / "hfp" / f"{name}.jsonl.gz")
    with open_log(tmp_path / "city.tw") as log:
        for topic, given in processed.topics.items():
            log.append(topic, given)
        check_run(spark, log, events_of(processed), tmp_path / "run", 2_000)


def check_run(spark, log, events, checkpoint, batch):
    finished(log, events)
    run_all(spark, log, checkpoint, batch=batch)
    return check_all({job.name: outputs(log, job) for job in TEN}, events, markers=1)
