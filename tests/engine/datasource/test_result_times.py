"""When results were written, and the clock of their batch, which is the same when the batch is repeated."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing

import polars as pl
import pytest
from pyspark import cloudpickle

import tidewheel as tw
from tests.engine.engine_data import positions
from tests.engine.topic_frames import CELL, values
from tidewheel.engine.datasource.output_encoding import OutputEncoding
from tidewheel.engine.datasource.result_encoder import encoded
from tidewheel.engine.jobs.batch import run_batch
from tidewheel.engine.runtime.exchange import ExchangeBatch
from tidewheel.engine.runtime.exchange_parts import Clock, Output
from tidewheel.model.time import now
from tidewheel.transport.events import codec
from tidewheel.transport.sqlite.schema import add_functions
from tidewheel.transport.topics.materialize import frames_of
from tidewheel_transit.transit_pb2 import VehiclePosition

pytestmark = pytest.mark.long

INPUT = "input.vehicle-position"

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@tw.job("counts", reads={INPUT: VehiclePosition})
def counts(rows: tw.Stream) -> tw.Result:
    """Positions in ten seconds."""
    return rows.window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())


@tw.job("pairs", reads={INPUT: VehiclePosition})
def pairs(rows: tw.Stream) -> tw.Result:
    """The most that ten seconds of a minute have: windows over windows."""
    tens = rows.window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
    return tens.window(tw.windows.tumbling("1 min")).aggregate(most=tw.agg.max("n"))


@tw.job("fast", reads={INPUT: VehiclePosition})
def fast(rows: tw.Stream) -> tw.Result:
    """Rows, without state."""
    return rows.filter(pl.col("speed") > 10).select("vehicle").each_row()


@tw.job("worked", reads={INPUT: VehiclePosition})
def worked(rows: tw.Stream) -> tw.Result:
    """When each row was worked on, by the clock of the task that did."""

    def work(events, state, clock):
        return events.select("vehicle", "event_time", worked_at=pl.lit(now(), pl.Int64)), state

    return rows.select("vehicle").key_by("vehicle").process(work, state={"seen": pl.Boolean})


def results(log, topic):
    """A topic's events, without markers."""
    events = [codec.decode(value) for value in values(log, topic)]
    return [event for event in events if not event.details.type_url.endswith("Punctuation")]


def times(log, topic, field):
    """The times of a topic's results."""
    events = results(log, topic)
    assert all(event.HasField(field) for event in events)
    return [getattr(event, field).ToMicroseconds() for event in events]


def appended(log, topic):
    """When the log took each of a topic's results."""
    found = [
        (time.value, codec.decode(value).details.type_url)
        for batch in log.read(topic, 0, 0)
        for time, value in zip(batch.records["append_time"], batch.records["value"].to_pylist(), strict=True)
    ]
    return [time for time, type_url in found if not type_url.endswith("Punctuation")]


def unstamped(values):
    """Events without the time at which they were written."""
    events = [codec.decode(value) for value in values]
    for event in events:
        event.ClearField("ingestion_time")
    return [codec.encode(event) for event in events]


def clocks(checkpoint):
    """The clock of each batch, as Spark keeps it."""
    files = sorted((checkpoint / "spark" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[-1])["clock"] for path in files]


def run(spark, log, folder, *jobs):
    done = tw.run(*jobs, log=log, checkpoint=folder, spark=spark, available_now=True, max_events_per_batch=100)
    done.wait()


def test_results_carry_the_clock_of_their_exchange_batch(log):
    exchange_batch = ExchangeBatch()
    exchange_batch.add(Clock(77))
    exchange_batch.add(
        Output("cells", "results"),
        pl.DataFrame({"event_time": [7], "vehicle": [1]}, schema_overrides={"vehicle": pl.Int32}),
    )
    target = OutputEncoding("analytics.cells", CELL, ("vehicle",), (), True)
    [(_, batch)] = encoded(exchange_batch.to_bytes(), {("cells", "results"): target}, log.address)
    event = codec.decode(batch["value"][0].as_py())
    assert (event.event_time.ToMicroseconds(), event.batch_time.ToMicroseconds()) == (7, 77)
    assert not event.HasField("ingestion_time"), "it is not written yet"


def test_a_results_ingestion_time_is_when_it_was_written_not_when_its_batch_was_planned(spark, log, tmp_path):
    for number in range(3):
        log.append(INPUT, positions(range(number * 100, number * 100 + 100)))
    run(spark, log, tmp_path / "c", worked)
    topic = "analytics.worked"
    read = pl.concat(frames_of(log, topic))
    assert read.height > 200
    assert {*times(log, topic, "batch_time")} <= {*clocks(tmp_path / "c")}
    steps = zip(
        times(log, topic, "batch_time"),
        read["worked_at"].to_list(),
        times(log, topic, "ingestion_time"),
        appended(log, topic),
        strict=True,
    )
    for planned, task, written, stored in steps:
        assert planned < task < written <= stored


def test_results_carry_the_clock_of_their_batch_and_a_repeated_batch_gives_the_same_but_for_when_it_was_written(
    spark, log, tmp_path
):
    for number in range(3):
        log.append(INPUT, positions(range(number * 100, number * 100 + 100)))
    run(spark, log, tmp_path / "c", counts, pairs, fast)
    topics = [f"analytics.{job.name}" for job in (counts, pairs, fast)] + ["metrics.counts"]
    known = clocks(tmp_path / "c")
    assert len(set(known)) == len(known) >= 3
    for topic in topics:
        assert {*times(log, topic, "batch_time")} <= {*known}
    assert len({*times(log, "analytics.fast", "batch_time")}) == 3, "each batch has its own"
    before = {topic: values(log, topic) for topic in topics}
    # The last batch is run again, for a sink that does not know it yet.
    last = len(known) - 1
    for name in (str(last), f".{last}.crc"):
        (tmp_path / "c" / "spark" / "commits" / name).unlink(missing_ok=True)
    with closing(sqlite3.connect(log.address, isolation_level=None)) as connection:
        add_functions(connection)  # the checksums of its rows
        connection.execute("UPDATE producer SET sequence = sequence - 1 WHERE name LIKE 'spark:%'")
    run(spark, log, tmp_path / "c", counts, pairs, fast)
    again = {topic: values(log, topic)[len(before[topic]) :] for topic in topics}
    assert any(again.values())
    for topic in topics:
        first = before[topic][len(before[topic]) - len(again[topic]) :]
        assert unstamped(again[topic]) == unstamped(first)
    since = max(times(log, "metrics.counts", "ingestion_time")[: len(before["metrics.counts"])])
    assert times(log, "metrics.counts", "ingestion_time")[-1] > since, "it was written later than the first time"


def test_a_result_on_time_comes_in_the_batch_that_moves_the_watermark(spark, log, tmp_path):
    for number in range(8):
        log.append(INPUT, positions(range(number * 100, number * 100 + 100)))
    run(spark, log, tmp_path / "c", counts)
    files = sorted((tmp_path / "c" / "spark" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offsets = [json.loads(path.read_text().splitlines()[-1]) for path in files]
    found = results(log, "analytics.counts")
    assert len(found) >= 5
    for event in found:
        end = event.event_time.ToMicroseconds() + 1
        passed = next(offset for offset in offsets if offset["watermark"] >= end)
        assert event.batch_time.ToMicroseconds() == passed["clock"]


def test_results_of_a_batch_run_carry_the_time_of_the_last_append(spark, log):
    for number in range(3):
        log.append(INPUT, positions(range(number * 100, number * 100 + 100)))
    began = now()
    run_batch(counts, log=log, spark=spark)
    (last,) = [info.last_append for info in log.topics() if info.name == INPUT]
    assert {*times(log, "analytics.counts", "batch_time")} == {last}
    assert min(times(log, "analytics.counts", "ingestion_time")) > began
