"""The service and the asker are killed while the job goes on: what it counted, and what it counted as missing, is what
there is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import polars as pl
import pyarrow as pa
import pytest
from lookup_run import LookupRun
from service_process import Service, kill, start_asker
from simulator_support import MORNING

import tidewheel as tw
from tidewheel.apps.transit.final_stop import FINAL_STOP
from tidewheel.apps.transit.jobs import final_stop_distribution
from tidewheel.apps.transit.simulator import Simulator
from tidewheel.apps.transit.transit_pb2 import VehiclePosition
from tidewheel.engine.halves import Rows
from tidewheel.engine.offset import Offset
from tidewheel.engine.planning import first_offset, plan_batch
from tidewheel.errors import TopicNotFoundError
from tidewheel.model.watermarks import Ahead
from tidewheel.transport import codec
from tidewheel.transport.event_pb2 import LookupOutcome
from tidewheel.transport.log import Log, records

S = 1_000_000
TOPIC = "input.vehicle-position"
KEY = list(FINAL_STOP.keys)
BLOCKS, SECONDS, SIZE, EVERY = 60, 5, 60, 5
STRATEGIES = {TOPIC: tw.watermarks.bounded("1 s", future=None), FINAL_STOP.topic: Ahead()}


class LogRun:
    """The job over the log, in this process: batches are planned as Spark's source plans them, and noted."""

    def __init__(self, log: Log) -> None:
        self.log = log
        rows = tw.stream(log, TOPIC, type=VehiclePosition)
        self.running = LookupRun(final_stop_distribution(rows, size=f"{SIZE} s"))
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
        self.running.dealer.told = {FINAL_STOP.topic: [Rows(self.read(FINAL_STOP.topic, LookupOutcome, before, after))]}
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


def final(results: pl.DataFrame) -> dict[tuple, int]:
    last = results.filter(~pl.col("retraction")).sort("pane_index").group_by("window_end", "cell").last()
    rows = last.select("window_end", "cell", "vehicles").rows()
    return {(round(end.timestamp()), cell): vehicles for end, cell, vehicles in rows if vehicles}


def vehicles_per_window(log: Log, offsets: list[Offset]) -> dict[int, int]:
    """The oracle's totals: vehicles on a journey in each window, but for positions that were too late for it."""
    parts = []
    for before, after in pairwise(offsets):
        for batch in log.read(TOPIC, 0, before.positions[TOPIC, 0], end=after.positions[TOPIC, 0]):
            frame = pl.DataFrame(pl.from_arrow(codec.decode_columns(VehiclePosition, batch.records["value"]).columns))
            parts.append(frame.with_columns(pl.lit(before.watermark, pl.Int64).alias("before")))
    at = pl.col("event_time").cast(pl.Int64)
    table = (
        pl.concat(parts)
        .filter(pl.col("journey") == "journey")
        .join(pl.DataFrame({"ahead": range(1, SIZE // EVERY + 1)}), how="cross")
        .with_columns(end=(at // (EVERY * S) + pl.col("ahead")) * EVERY * S)
        .filter(pl.col("before").is_null() | (pl.col("end") >= pl.col("before") - 5 * S))
        .select("operator", "vehicle", "end")
        .unique()
    )
    return {end // S: count for end, count in table.group_by("end").len().rows()}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_table_and_counted_failures_are_the_oracle_whatever_is_killed(log):
    frames = blocks()
    log.create_topic(FINAL_STOP.topic, compact=True)
    put(log, frames[0])
    job = LogRun(log)
    service = Service()
    asker = start_asker(log, service.url)
    try:
        # All is well: whatever comes up is answered before the job is too far on.
        for number in range(1, BLOCKS // 3):
            put(log, frames[number])
            wait_until(lambda seen=number + 1: keys_of(frames[:seen]) <= settled(log).keys())
            job.go_on()
        well = settled(log)
        assert len(well) > 3
        assert all(well.values())
        # The service is gone, and then the asker; others come up, and nobody knows where they go.
        service.kill()
        for number in range(BLOCKS // 3, 2 * BLOCKS // 3):
            put(log, frames[number])
            if number == BLOCKS // 2:
                wait_until(lambda: not all(settled(log).values()))
                kill(asker)
            job.go_on()
        assert not all(settled(log).values()), "failures are written down"
        # Both are back: what is not known is tried again.
        service = Service("--port", service.port)
        asker = start_asker(log, service.url)
        for number in range(2 * BLOCKS // 3, BLOCKS):
            put(log, frames[number])
            if number >= 2 * BLOCKS // 3 + 4:
                while not keys_of(frames[: number + 1]) <= {key for key, known in settled(log).items() if known}:
                    put(log, frames[number])  # a retry needs an event, and repeats are none the worse
                    time.sleep(0.1)
            job.go_on()
    finally:
        service.kill()
        kill(asker)
    recorded = list(job.offsets)
    job.running.end()
    outputs = job.running.outputs

    # The same with a service that never failed: every answer is there, so the job over the same input finds all.
    complete, answers = LogRun(log), (FINAL_STOP.topic, 0)
    for after in recorded[1:]:
        complete.batch(replace(after, positions={**after.positions, answers: recorded[-1].positions[answers]}))
    complete.running.end()
    expected = final(complete.running.outputs["results"])
    assert "failed" not in complete.running.outputs
    totals = vehicles_per_window(log, recorded)
    windows = {end for end, _ in expected}
    assert {end: sum(n for (other, _), n in expected.items() if other == end) for end in windows} == totals

    table = final(outputs["results"])
    missing = {end: table.get((end, 0), 0) for end in windows}
    assert sum(missing.values()) > 0
    assert outputs["failed"].height > 0
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
