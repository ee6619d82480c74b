"""A function from DataFrames to a DataFrame as a job: run, stopped, gone on with, refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from pyspark.sql import DataFrame

import tidewheel as tw
from tests.engine.engine_data import positions
from tests.engine.topic_frames import decoded
from tidewheel.errors import CheckpointError, DefinitionError
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import Arrival, VehiclePosition

INPUT, RESULTS = "input.vehicle-position", "analytics.slow"


def slow(rows: DataFrame, *, least: int = 0) -> DataFrame:
    return rows.where(rows.vehicle >= least).select(
        "event_time", "operator", "vehicle", (rows.speed / 2).alias("speed")
    )


def started(log, folder, spark, function=slow, **options):
    reads = options.pop("reads", {INPUT: VehiclePosition})
    return tw.run_dataframe(
        function,
        log=log,
        reads=reads,
        writes=VehiclePosition,
        name="slow",
        key=("operator", "vehicle"),
        checkpoint=folder,
        spark=spark,
        **options,
    )


def run_to_end(log, folder, spark, function=slow, **options):
    run = started(log, folder, spark, function, available_now=True, **options)
    run.wait()
    return run.progress()


def vehicles(log):
    return sorted(message.vehicle for message in decoded(log, RESULTS))


def test_it_goes_on_where_it_was_and_writes_a_repeated_batch_once(spark, log, tmp_path):
    log.append(INPUT, positions(range(100)))
    log.append(INPUT, records([b"junk"]))
    assert run_to_end(log, tmp_path / "c", spark).lag == 0
    log.append(INPUT, positions(range(100, 150)))
    run_to_end(log, tmp_path / "c", spark)
    assert vehicles(log) == list(range(150))
    (done,) = (path for path in (tmp_path / "c" / "spark" / "commits").iterdir() if path.name == "1")
    done.unlink()  # as if it had been killed between the sink's commit and Spark's
    log.append(INPUT, positions(range(150, 160)))
    run_to_end(log, tmp_path / "c", spark)
    assert vehicles(log) == list(range(160))
    assert [message.raw for message in decoded(log, "dead.slow")] == [b"junk"]
    assert log.committed("slow") == {(INPUT, 0): 161}
    batch = next(log.read(RESULTS, 0, 0))
    assert {b"1/0", b"1/99"} <= set(batch.records["key"].to_pylist())


def signalled(run, **options):
    """Wait for the run in the main thread, which a signal interrupts."""
    soon = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    soon.start()
    assert run.wait(**options)
    soon.join()


def by_call(run):
    run.stop()


def by_a_signal(run):
    before = signal.getsignal(signal.SIGTERM)
    signalled(run, stop_on={signal.SIGTERM})
    assert signal.getsignal(signal.SIGTERM) is before


def by_a_handler(run):
    before = signal.signal(signal.SIGTERM, lambda *_: run.stop())
    try:
        signalled(run)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("stop", [by_call, by_a_signal, by_a_handler])
def test_it_is_stopped_between_batches(spark, log, tmp_path, stop):
    run = started(log, tmp_path / "c", spark, max_events_per_batch=100)
    for number in range(20):
        log.append(INPUT, positions(range(number * 100, number * 100 + 100)))
    assert log.wait({(RESULTS, 0): 0}, 60)
    stop(run)
    assert not run.active
    begun, done = (
        {path.name for path in (tmp_path / "c" / "spark" / kind).iterdir() if path.name.isdigit()}
        for kind in ("offsets", "commits")
    )
    assert begun == done
    run_to_end(log, tmp_path / "c", spark)
    assert vehicles(log) == list(range(2_000))


JAVA_IS_KILLED = """
import os, signal, sys
import tidewheel as tw
from tidewheel_transit.transit_pb2 import VehiclePosition
from tidewheel.engine.execution.running_query import java_pid

with tw.open_log(sys.argv[1]) as log:
    spark = tw.session()
    run = tw.run_dataframe(
        lambda rows: rows.select("event_time", "vehicle"), log=log, reads={"input.vehicle-position": VehiclePosition},
        writes=VehiclePosition, name="slow", checkpoint=sys.argv[2], spark=spark,
    )
    assert log.wait({("analytics.slow", 0): 0}, 60)
    os.kill(java_pid(spark), signal.SIGKILL)
    try:
        run.wait()
    except tw.errors.JobError as error:
        print(error)
    os._exit(0)
"""


@pytest.mark.long
def test_that_java_is_gone_is_reported(log, tmp_path):
    log.append(INPUT, positions(range(10)))
    command = [sys.executable, "-c", JAVA_IS_KILLED, log.address, str(tmp_path / "c")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.stdout.startswith("job slow: Spark ended under it"), done.stderr


def test_waiting_may_be_limited(spark, log, tmp_path):
    run = started(log, tmp_path / "c", spark)
    assert not run.wait(0.05, stop_on={signal.SIGTERM})
    assert run.active
    run.stop()
    assert run.wait(0.05)


def test_a_checkpoint_that_does_not_fit_is_refused(spark, log, tmp_path):
    log.append(INPUT, positions(range(5)))
    folder = tmp_path / "c"
    run_to_end(log, folder, spark, parameters={"least": 3})
    assert vehicles(log) == [3, 4]
    with pytest.raises(CheckpointError, match="parameter least: 3 → 4"):
        run_to_end(log, folder, spark, parameters={"least": 4})
    with pytest.raises(CheckpointError, match="column speed: double → not set"):
        run_to_end(log, folder, spark, lambda rows, least: slow(rows).drop("speed"), parameters={"least": 3})
    reads = {INPUT: VehiclePosition, "input.arrival": Arrival}
    with pytest.raises(CheckpointError, match=r"input topic input\.arrival: not set → .*Arrival"):
        run_to_end(log, folder, spark, lambda rows, more, least: slow(rows), reads=reads, parameters={"least": 3})
    with open_log(tmp_path / "other.tw") as other, pytest.raises(CheckpointError, match="made on another log"):
        run_to_end(other, folder, spark, parameters={"least": 3})


def test_topics_may_be_joined(spark, log, tmp_path):
    log.append(INPUT, positions(range(5)))
    log.append("more", positions(range(3, 9)))

    def both(rows: DataFrame, more: DataFrame) -> DataFrame:
        return slow(rows.join(more.select("vehicle", "operator").distinct(), ["operator", "vehicle"]))

    run_to_end(log, tmp_path / "c", spark, both, reads={INPUT: VehiclePosition, "more": VehiclePosition})
    assert vehicles(log) == [3, 4]


@pytest.mark.parametrize("function", [lambda rows: None, lambda rows: rows.sparkSession.range(3)])
def test_a_function_that_does_not_give_a_stream_is_refused(spark, log, tmp_path, function):
    with pytest.raises(DefinitionError, match=r"run_dataframe slow: its function must give a DataFrame made of those"):
        started(log, tmp_path / "c", spark, function)
    with pytest.raises(DefinitionError, match="name a topic to read"):
        started(log, tmp_path / "c", spark, function, reads={})


def test_columns_that_the_message_lacks_are_named_before_a_checkpoint_is_made(spark, log, tmp_path):
    with pytest.raises(DefinitionError, match="has no field 'wings'"):
        run_to_end(log, tmp_path / "c", spark, lambda rows: slow(rows).withColumnRenamed("speed", "wings"))
    assert not (tmp_path / "c").exists()
