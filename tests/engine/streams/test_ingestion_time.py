"""Streams by the time at which messages were received, which is before they are in the log."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.engine.orders import read
from tests.engine.streams.flow_support import S, outputs_of
from tidewheel.engine.datasource.batch_planner import first_offset, plan_batch
from tidewheel.transport.events.codec import decode_columns, encode_columns
from tidewheel.transport.log.log_types import records
from tidewheel.transport.sqlite.log import SqliteLog
from tidewheel_transit.transit_pb2 import VehiclePosition

pytestmark = pytest.mark.long

TOPIC = "input.vehicle-position"
# When a block was appended, and when its messages were received: one was overtaken by others.
BLOCKS = [(10.2, [9.9]), (11.1, [10.9, 11.0]), (11.4, [10.8, 11.3]), (30.0, [28.9])]


class Clock:
    """The log's clock, in seconds."""

    second = 0.0

    def __call__(self):
        return round(self.second * S)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(tmp_path, clock):
    with SqliteLog(tmp_path / "test.tw", clock=clock) as opened:
        yield opened


def append(log, seconds):
    columns = pa.RecordBatch.from_pydict({"vehicle": pa.array([7] * len(seconds), pa.int32())})
    received = pa.array([round(second * S) for second in seconds], pa.int64())
    values = encode_columns(VehiclePosition, columns, event_time=received, ingestion_time=received)
    log.append(TOPIC, records(values, event_times=received))


def batches(log, clock, strategy):
    """The rows of each block, and the watermark of the batch that reads it."""
    offset = None
    for clock.second, received in BLOCKS:
        append(log, received)
        before = offset or first_offset(log, [TOPIC], "earliest", clock=0)
        offset = plan_batch(log, {TOPIC: strategy}, before, limit=None, clock=0, tick=0)
        [read] = log.read(TOPIC, 0, before.positions[TOPIC, 0])
        rows = pl.DataFrame(pl.from_arrow(decode_columns(VehiclePosition, read.records.column("value")).columns))
        appended = pl.Series("_append_time", read.records.column("append_time"))
        yield rows.with_columns(appended, pl.lit(None, pl.Binary).alias("_key")), offset.watermark


def counted(log, clock, **options):
    stream = tw.stream(log, TOPIC, type=VehiclePosition, **options)
    result = stream.window(tw.windows.tumbling("1 s")).aggregate(n=tw.agg.count())
    frames, watermarks = zip(*batches(log, clock, stream.input.watermark), strict=True)
    found = outputs_of(result, frames, watermarks)
    return found["results"]["n"].sum(), found["late"].height if "late" in found else 0


def test_messages_on_their_way_are_not_late(log, clock):
    assert counted(log, clock, time="ingestion_time") == (6, 0)


def test_a_watermark_without_delay_has_to_be_asked_for(log, clock):
    assert counted(log, clock, time="ingestion_time", watermark=tw.watermarks.arrival()) == (5, 1)


def test_a_running_query_goes_by_the_time_of_ingestion(spark, log, clock, tmp_path):
    for clock.second, received in BLOCKS:
        append(log, received)
    stream = tw.stream(log, TOPIC, type=VehiclePosition, time="ingestion_time")
    result = stream.window(tw.windows.tumbling("1 s")).aggregate(n=tw.agg.count())
    run = result.start(
        results=log.topic("analytics.received"), late=log.topic("late.received"), checkpoint=tmp_path / "c",
        spark=spark, available_now=True, max_events_per_batch=1, clock="log",
    )  # fmt: skip
    run.wait()
    found = {row["window_start"].second: row["n"] for row in read(log, "analytics.received").iter_rows(named=True)}
    assert found == {9: 1, 10: 2, 11: 2, 28: 1}
    assert log.topic_info("late.received").count == 0
