"""The service and the lookup worker are killed while the job goes on: what it counted, and what it counted as missing,
is what there is."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import polars as pl
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.transit.jobs.lookup_run import LookupRun
from tests.transit.jobs.test_final_stop_distribution import final, oracle
from tests.transit.service_process import Service, kill, start_worker
from tests.transit.simulator_support import MORNING
from tidewheel.engine.datasource.batch_planner import first_offset, plan_batch
from tidewheel.engine.datasource.offset import Offset
from tidewheel.engine.runtime.exchange import Rows
from tidewheel.errors import TopicNotFoundError
from tidewheel.model.watermarks import ReadAheadTopic
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import LookupOutcome
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel_transit.final_stop import FINAL_STOP
from tidewheel_transit.jobs import final_stop_distribution
from tidewheel_transit.simulator import Simulator
from tidewheel_transit.transit_pb2 import VehiclePosition

pytestmark = pytest.mark.long

S = 1_000_000
TOPIC = "input.vehicle-position"
KEY = list(FINAL_STOP.keys)
BLOCKS, SECONDS, SIZE = 60, 5, 60
STRATEGIES = {TOPIC: tw.watermarks.bounded("1 s", future=None), FINAL_STOP.topic: ReadAheadTopic()}


class LogRun:
    """The job over the log, in this process: batches are planned as Spark's source plans them, and noted."""

    def __init__(self, log: Log, *, size: str = f"{SIZE} s") -> None:
        self.log = log
        rows = tw.stream(log, TOPIC, type=VehiclePosition)
        self.running = LookupRun(final_stop_distribution(rows, size=size))
        self.offsets = [first_offset(log, list(STRATEGIES), "earliest", clock=0)]

    def go_on(self) -> None:
        """All batches that there are."""
        while True:
            after = plan_batch(self.log, STRATEGIES, self.offsets[-1], limit=400, clock=0, tick=0)
            if after is self.offsets[-1]:
                return
            self.batch(after)

    def batch(self, after: Offset) -> None:
        before = self.offsets[-1]
        self.offsets.append(after)
        rows = self.read(TOPIC, VehiclePosition, before, after)
        self.running.partitioner.reported = {
            FINAL_STOP.topic: [Rows(self.read(FINAL_STOP.topic, LookupOutcome, before, after))]
        }
        self.running.step(rows, after.watermark)

    def read(self, topic: str, message: type, before: Offset, after: Offset) -> pl.DataFrame:
        start, end = before.positions[topic, 0], after.positions[topic, 0]
        batches = self.log.read(topic, 0, start, end=end) if end > start else ()
        frames = [
            pl.DataFrame(pl.from_arrow(codec.decode_columns(message, found.records["value"]).columns))
            for found in batches
        ]
        empty = codec.decode_columns(message, pa.array([], pa.binary())).columns
        return pl.concat([pl.DataFrame(pl.from_arrow(empty)), *frames])


def answers(log: Log) -> dict[tuple, dict]:
    """What is known of each key."""
    found = {}
    for batch in log.read(FINAL_STOP.topic, 0, 0):
        for value in batch.records.column("value").to_pylist():
            message = codec.unpack(codec.decode(value))
            if message.answer:
                found[FINAL_STOP.read_key(message.key)] = FINAL_STOP.read_answer(message.answer)
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)  # looks at a condition; the test has a time limit


def settled(log: Log) -> dict[tuple, bool]:
    """By key: was there ever an answer?"""
    found: dict[tuple, bool] = {}
    try:
        log.topic_info(FINAL_STOP.topic)
    except TopicNotFoundError:
        return found
    for batch in log.read(FINAL_STOP.topic, 0, 0):
        for value in batch.records.column("value").to_pylist():
            message = codec.unpack(codec.decode(value))
            key = FINAL_STOP.read_key(message.key)
            found[key] = found.get(key, False) or bool(message.answer)
    return found


def until_answered(log: Log, frames: list[pl.DataFrame]) -> None:
    """Wait for the answers to all that came up. A request that failed needs an event to be made again, and repeats
    are none the worse."""
    while not keys_of(frames) <= {key for key, known in settled(log).items() if known}:
        put(log, frames[-1])
        time.sleep(0.1)  # looks at a condition; the test has a time limit


def blocks() -> list[pl.DataFrame]:
    """Five minutes; a third of the vehicles is there from the start, the others come after a third each."""
    simulator = Simulator(start=MORNING, seed=9, rate=20)
    found = []
    for number in range(BLOCKS):
        frame = simulator.advance(MORNING + (number + 1) * SECONDS * S).frame
        vp = (pl.col("event") == "vp") & (pl.col("temporal") == "ongoing")
        found.append(frame.filter(vp, pl.col("vehicle") % 3 <= number * 3 // BLOCKS))
    return found


def put(log: Log, frame: pl.DataFrame) -> None:
    fields = list(VehiclePosition.DESCRIPTOR.fields_by_name)
    times = frame["event_time"].to_arrow()
    values = codec.encode_columns(VehiclePosition, frame.select(fields), event_time=times, ingestion_time=times)
    log.append(TOPIC, records(values, event_times=times))


def keys_of(frames: list[pl.DataFrame]) -> set[tuple]:
    return set(pl.concat(frames).select(KEY).drop_nulls().rows())


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_table_and_counted_failures_are_the_oracle_whatever_is_killed(log):
    frames = blocks()
    log.create_topic(FINAL_STOP.topic, compact=True)
    put(log, frames[0])
    job = LogRun(log)
    service = Service()
    worker = start_worker(log, service.url)
    try:
        # All is well: whatever comes up is answered before the job is too far on.
        for number in range(1, BLOCKS // 3):
            put(log, frames[number])
            until_answered(log, frames[: number + 1])
            job.go_on()
        well = settled(log)
        assert len(well) > 3
        assert all(well.values())
        # The service is gone, and then the lookup worker; others come up, and nobody knows where they go.
        service.kill()
        for number in range(BLOCKS // 3, 2 * BLOCKS // 3):
            put(log, frames[number])
            if number == BLOCKS // 2:
                wait_until(lambda: not all(settled(log).values()))
                kill(worker)
            job.go_on()
        assert not all(settled(log).values()), "failures are written down"
        # Both are back: what is not known is tried again.
        service = Service("--port", service.port)
        worker = start_worker(log, service.url)
        for number in range(2 * BLOCKS // 3, BLOCKS):
            put(log, frames[number])
            if number >= 2 * BLOCKS // 3 + 4:
                until_answered(log, frames[: number + 1])
            job.go_on()
    finally:
        service.kill()
        kill(worker)
    recorded = list(job.offsets)
    job.running.end()
    outputs = job.running.outputs

    # By an oracle that knows all that was answered in the end: nobody is unknown to it.
    given = [(job.read(TOPIC, VehiclePosition, *ends), ends[1].watermark) for ends in pairwise(recorded)]
    expected = oracle(given, answers(log), size=SIZE)
    windows = {end for end, _ in expected}
    assert all(cell for _, cell in expected)

    table = final(outputs)
    missing = {end: table.get((end, 0), 0) for end in windows}
    assert sum(missing.values()) > 0
    assert outputs["failed"].height > 0
    assert {place for place in table if place[1]} <= expected.keys()
    for end in windows:
        lost = {cell: count - table.get((end, cell), 0) for (other, cell), count in expected.items() if other == end}
        assert min(lost.values()) >= 0, "nothing is counted that is not there"
        assert sum(lost.values()) == missing[end], "table + counted failures = oracle"
    begin, over = min(windows), max(windows)
    assert missing[begin] == 0
    assert missing[over] == 0, "in the end all is known again"

    # Every batch again, as a restarted query would, though far more is known by now: the same bytes.
    again = LogRun(log)
    for after in recorded[1:]:
        again.batch(after)
    again.running.end()
    assert again.running.outputs.keys() == outputs.keys()
    for name, frame in outputs.items():
        assert frame.write_ipc(None).getvalue() == again.running.outputs[name].write_ipc(None).getvalue(), name
