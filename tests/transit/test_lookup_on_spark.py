"""The job of final stops on Spark, beside others, while the service is killed: it counts what it misses, the same as in
one process; the others notice nothing."""

from __future__ import annotations

import asyncio
import json

import job_oracles as oracle
import polars as pl
import pytest
from job_cases import final_table, micros
from job_checks import as_cut, vehicles
from job_traffic import events_in, finished
from service_process import Service, kill, start_asker
from test_final_stop_distribution import final
from test_lookup_kills import (
    BLOCKS,
    SIZE,
    TOPIC,
    LogRun,
    answers,
    blocks,
    keys_of,
    put,
    settled,
    until_answered,
    wait_until,
)

import tidewheel as tw
from tidewheel.apps.transit.final_stop import FINAL_STOP, SimulatedFinalStops
from tidewheel.apps.transit.jobs import final_stop_distribution, flow_direction, vehicle_distribution
from tidewheel.apps.transit.transit_pb2 import VehiclePosition
from tidewheel.engine.launch import Target, start_flows
from tidewheel.engine.offset import Offset
from tidewheel.engine.workers import registry_for
from tidewheel.transport import codec
from tidewheel.transport.codec import decode_envelopes
from tidewheel.transport.log import Log

WELL = BLOCKS // 3
"""So many blocks come while the service is there; with the next ones other vehicles do."""


def read(log: Log, topic: str) -> pl.DataFrame:
    frames = []
    for batch in log.read(topic, 0, 0):
        values = batch.records.column("value")
        for kind in set(decode_envelopes(values).columns["type"].to_pylist()) - {"tidewheel.v1.Punctuation"}:
            found = codec.decode_columns(kind, values, registry=registry_for(log.address, kind))
            frames.append(pl.DataFrame(pl.from_arrow(found.columns)))
    return pl.concat(frames)


def start(spark, log: Log, checkpoint):
    """The job and two others in one query."""
    rows = tw.stream(log, TOPIC, type=VehiclePosition, watermark=tw.watermarks.bounded("1 s", future=None))
    stops = final_stop_distribution(rows, size=f"{SIZE} s").named("stops")
    targets = {
        stops: {
            "results": Target(log.topic("analytics.stops"), final_stop_distribution.writes),
            "failed": Target(log.topic("failed.stops")),
        }
    }
    for job, name in ((vehicle_distribution, "vehicles"), (flow_direction, "flows")):
        targets[job(rows).named(name)] = {"results": Target(log.topic(f"analytics.{name}"), job.writes)}
    return start_flows(
        targets, log, checkpoint=checkpoint, name="jobs", spark=spark, max_events_per_batch=400, buckets=2
    )


def offsets(checkpoint):
    """Where each batch ended."""
    files = sorted((checkpoint / "spark" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    texts = [(checkpoint / "spark" / "offsets" / path.name).read_text(encoding="utf-8") for path in files]
    return [Offset.from_json(json.loads(text.splitlines()[-1])) for text in texts]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_service_is_killed_and_what_is_missing_is_counted_and_the_jobs_beside_it_notice_nothing(
    spark, log, tmp_path
):
    frames, checkpoint = blocks()[: BLOCKS // 2], tmp_path / "checkpoint"
    log.create_topic(FINAL_STOP.topic, compact=True)
    put(log, frames[0])
    service = Service()
    asker = start_asker(log, service.url)
    try:
        for frame in frames[1:WELL]:
            put(log, frame)
        wait_until(lambda: keys_of(frames[:WELL]) <= settled(log).keys())
        until_answered(log, frames[:WELL])
        run = start(spark, log, checkpoint)
        try:
            wait_until(lambda: log.topic_info("analytics.vehicles").count > 0)
            service.kill()
            before = log.topic_info("analytics.vehicles").count
            for frame in frames[WELL:]:
                put(log, frame)
            wait_until(lambda: not all(settled(log).values()))
            finished(log, pl.concat(frames))
            end = log.topic_info(TOPIC).next_offsets[0]
            wait_until(lambda: any(after.positions[TOPIC, 0] == end for after in offsets(checkpoint)))
        finally:
            run.stop()
    finally:
        service.kill()
        kill(asker)
    assert run.failed == {}
    assert log.topic_info("analytics.vehicles").count > before > 0, "the service was killed in the middle"

    given = as_cut(events_in(log, [TOPIC]), checkpoint)[TOPIC]
    found = {name: {"results": read(log, f"analytics.{name}")} for name in ("stops", "vehicles", "flows")}
    assert vehicles(found["vehicles"]) == oracle.vehicle_distribution(given)[0]
    assert final_table(found["flows"], ["cell"], ["neighbour", "crossings", "total"]) == oracle.flow_direction(given)[0]

    # The service was asked for all that came up before it was killed, and for nothing after that.
    known, size = answers(log), SIZE * oracle.SECOND
    table = vehicles(found["stops"])
    assert table == oracle.final_stop_distribution(given, known, size=size)[0]
    every = {key: asyncio.run(SimulatedFinalStops().ask(key)) for key in keys_of(frames)}
    assert keys_of(frames[:WELL]) <= known.keys() < every.keys()
    whole = oracle.final_stop_distribution(given, every, size=size)[0]
    assert {place for place in table if place[0]} <= whole.keys()
    for window in {window for _, window in whole}:
        lost = {cell: count - table.get((cell, window), 0) for (cell, of), count in whole.items() if of == window}
        assert min(lost.values()) >= 0, "nothing is counted that is not there"
        assert sum(lost.values()) == table.get((0, window), 0), "table + counted failures = oracle"
    assert {cell for cell, _ in table} > {0}
    failed = read(log, "failed.stops")
    of = ["operator", "vehicle", "event_time"]
    rows = [row for some, _ in given for row in some if oracle.usable(row, place=False)]
    unknown = [row for row in rows if tuple(row[name] for name in FINAL_STOP.keys) not in known]
    assert sorted(micros(failed).select(of).rows()) == sorted(tuple(row[name] for name in of) for row in unknown)

    # Every batch again in one process, with what Spark knew of final stops by then: it said the same.
    alone = LogRun(log)
    for after in offsets(checkpoint):
        alone.batch(after)
    expected = alone.running.outputs
    assert final(found["stops"]["results"]) == final(expected["results"])
    columns = ["operator", "vehicle", "event_time", "reason", *FINAL_STOP.keys]
    assert sorted(failed.select(columns).rows()) == sorted(expected["failed"].select(columns).rows())
