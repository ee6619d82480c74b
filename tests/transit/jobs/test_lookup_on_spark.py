"""All ten jobs in one query, while the service that knows the final stops hangs and then is killed: what is missing is
counted and reported with the reason, the same as in one process; the other jobs notice nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import tidewheel as tw
from tests.transit.jobs import job_oracles as oracle
from tests.transit.jobs.job_cases import micros
from tests.transit.jobs.job_checks import JOB_TOPICS, TEN, as_cut, check_all, vehicles
from tests.transit.jobs.job_traffic import events_in, finished, put, traffic
from tests.transit.jobs.test_final_stop_distribution import final
from tests.transit.jobs.test_jobs_on_spark import outputs, read
from tests.transit.jobs.test_lookup_kills import TOPIC, LogRun, answers, keys_of, settled, until_answered, wait_until
from tests.transit.service_process import Service, kill, start_worker
from tidewheel.engine.datasource.offset import Offset
from tidewheel.engine.execution.running_query import Run
from tidewheel.engine.operators.lookup_join import NO_ANSWER
from tidewheel.transport.events import codec
from tidewheel.transport.log.log import Log
from tidewheel_transit.final_stop import FINAL_STOP, SimulatedFinalStops
from tidewheel_transit.topics import EVENTS

pytestmark = pytest.mark.long

PARTS = 3
SHOWN = "analytics.vehicle-distribution"
FAILED = "failed.final-stop-distribution"


def parts() -> list[pl.DataFrame]:
    """Traffic that every job has something to tell of, in three parts; in each there are routes that were not there
    before."""
    came = traffic(seconds=120, rate=40, seed=7)
    routes = sorted(came["route"].drop_nulls().unique())
    since = pl.col("route").replace_strict({route: n % PARTS for n, route in enumerate(routes)}, default=0)
    size = -(-came.height // PARTS)
    return [came[part * size : (part + 1) * size].filter(since <= part) for part in range(PARTS)]


def append(log: Log, frame: pl.DataFrame) -> None:
    """Events as blocks of their topics."""
    for block in frame.iter_slices(400):
        for topic in JOB_TOPICS:
            mine = block.filter(pl.col("event").is_in([event for event, home in EVENTS.items() if home.topic == topic]))
            if mine.height:
                put(log, topic, mine)


def positions(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("event") == "vp")


def reasons(log: Log) -> set[str]:
    """Why there was no answer, as the lookup worker wrote it down."""
    values = [
        value for batch in log.read(FINAL_STOP.topic, 0, 0) for value in batch.records.column("value").to_pylist()
    ]
    return {codec.unpack(codec.decode(value)).reason for value in values} - {""}


def offsets(checkpoint: Path) -> list[Offset]:
    """Where each batch ended."""
    files = sorted((checkpoint / "spark" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    texts = [(checkpoint / "spark" / "offsets" / path.name).read_text(encoding="utf-8") for path in files]
    return [Offset.from_json(json.loads(text.splitlines()[-1])) for text in texts]


def all_is_done(log: Log, checkpoint: Path) -> bool:
    """Has the query done all that is in the topics of events now?"""
    ends = {(topic, 0): log.topic_info(topic).next_offsets[0] for topic in JOB_TOPICS}
    return any(ends.items() <= after.positions.items() for after in offsets(checkpoint))


def goes_on_until(run: Run, condition: Callable[[], bool]) -> None:
    """Wait, as long as no job fails."""
    while not condition():
        assert not run.wait(0.02), "it has ended"
        assert run.failed == {}


@pytest.mark.slow
def test_the_service_hangs_and_is_killed_and_what_is_missing_is_counted_and_nothing_else_is_disturbed(
    spark, log, tmp_path
):
    well, hanging, killed = frames = parts()
    checkpoint = tmp_path / "checkpoint"
    # The lookup worker would have it compacted, but what was known at each batch is read again below.
    log.create_topic(FINAL_STOP.topic)
    append(log, well)
    service = Service()
    worker = start_worker(log, service.url)
    try:
        wait_until(lambda: keys_of([positions(well)]) <= settled(log).keys())
        until_answered(log, [positions(well)])
        run = tw.run(*TEN, log=log, checkpoint=checkpoint, spark=spark, max_events_per_batch=1_500, key_groups=2)
        try:
            goes_on_until(run, lambda: log.topic_info(SHOWN).count > 0)
            # It takes every request and answers none; others come up.
            service.set(hang=1.0)
            before = log.topic_info(SHOWN).count
            append(log, hanging[:400])
            goes_on_until(run, lambda: not all(settled(log).values()))
            append(log, hanging[400:])
            goes_on_until(run, lambda: all_is_done(log, checkpoint))
            assert service.process.poll() is None, "it hangs still, and the stream has gone on"
            assert log.topic_info(FAILED).count > 0
            assert log.topic_info(SHOWN).count > before
            # It is gone; others still come up.
            service.kill()
            before = log.topic_info(SHOWN).count
            append(log, killed)
            goes_on_until(
                run,
                lambda: bool(settled(log).keys() & (keys_of([positions(killed)]) - keys_of([positions(hanging)]))),
            )
            finished(log, pl.concat(frames))
            goes_on_until(run, lambda: all_is_done(log, checkpoint))
        finally:
            run.stop()
    finally:
        service.kill()
        kill(worker)
    assert run.failed == {}
    assert log.topic_info(SHOWN).count > before, "it was killed in the middle"

    # All jobs against their oracles; of final stops the one who knows what was answered before the service hung.
    known = answers(log)
    assert known.keys() == keys_of([positions(well)])
    given = as_cut(events_in(log), checkpoint)
    found = {job.name: outputs(log, job) for job in TEN}
    checked = check_all(found, given, known=known)
    assert min(checked.sizes.values()) > 0, checked.sizes

    # By the oracle who knows all, too: what is missing in the table is what it counts as not known.
    table = vehicles(found["final-stop-distribution"])
    every = {key: asyncio.run(SimulatedFinalStops().ask(key)) for key in keys_of([positions(part) for part in frames])}
    assert known.keys() < every.keys()
    whole = oracle.final_stop_distribution(given[TOPIC], every)[0]
    assert {place for place in table if place[0]} <= whole.keys()
    for window in {window for _, window in whole}:
        lost = {cell: count - table.get((cell, window), 0) for (cell, of), count in whole.items() if of == window}
        assert min(lost.values()) >= 0, "nothing is counted that is not there"
        assert sum(lost.values()) == table.get((0, window), 0), "table + counted failures = oracle"
    assert {cell for cell, _ in table} > {0}

    # Every row without an answer is reported, with the reason.
    failed = read(log, FAILED)
    of = ["operator", "vehicle", "event_time"]
    rows = [row for some, _ in given[TOPIC] for row in some if oracle.usable(row, place=False)]
    unknown = [row for row in rows if tuple(row[name] for name in FINAL_STOP.keys) not in known]
    assert sorted(micros(failed).select(of).rows()) == sorted(tuple(row[name] for name in of) for row in unknown)
    reported = reasons(log)
    assert any("no answer within 500 ms" in reason for reason in reported), (
        "the lookup worker waited no longer than it may"
    )
    assert set(failed["reason"]) & reported
    assert set(failed["reason"]) <= {NO_ANSWER, *reported}

    # Every batch again in one process, with what Spark knew of final stops by then: it said the same.
    alone = LogRun(log, size="5 min")
    for after in offsets(checkpoint):
        alone.batch(after)
    expected = alone.running.outputs
    assert final(found["final-stop-distribution"]) == final(expected)
    columns = ["operator", "vehicle", "event_time", "reason", *FINAL_STOP.keys]
    assert sorted(failed.select(columns).rows()) == sorted(expected["failed"].select(columns).rows())
