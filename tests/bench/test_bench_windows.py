"""The benchmark of windows measures what it says: both sides compute the same, in the same batches."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from bench.__main__ import main
from bench.profiles import inside, profile
from bench.shared_query import PeakMemory
from bench.streams import BATCHES, TOPIC, dataset, readings
from bench.window_baselines import spark_windows, with_settings
from bench.window_queries import drained, exchange_batches, ours
from tidewheel.engine.operators.operator import RESULTS
from tidewheel.engine.runtime.exchange import ExchangeBatch
from tidewheel.model.windows import sliding, tumbling

pytestmark = pytest.mark.long

EVENTS = 8_000
SPAN = 100_000_000


@pytest.fixture
def data(tmp_path):
    data = dataset(tmp_path, EVENTS, 20)
    yield data
    data.log.close()


def collected(frame, name, folder):
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return frame.sparkSession.table(name).collect()


@pytest.mark.parametrize(
    ("windows", "size", "every"),
    [(tumbling("10 s"), "10 seconds", None), (sliding("30 s", every="5 s"), "30 seconds", "5 seconds")],
)
def test_both_sides_give_the_same_results(spark, data, tmp_path, windows, size, every):
    name = size.replace(" ", "_")
    found = set()
    for row in collected(exchange_batches(spark, data, [ours(data, windows)]), f"ours_{name}", tmp_path):
        for _, output, frame in ExchangeBatch.outputs(bytes(row.batch_bytes)):
            if output == RESULTS:
                times = frame.select("key", pl.col("window_start").dt.epoch("s"), "events", "total")
                found |= set(times.iter_rows())
    theirs = collected(spark_windows(data.parquet(spark), size, every), f"theirs_{name}", tmp_path)
    expected = {(row.key, int(row.window.start.timestamp()), row.events, row.total) for row in theirs}
    assert len(expected) > BATCHES * 20
    assert found == expected


def test_every_batch_but_the_first_is_measured(spark, data, tmp_path):
    measured = drained(spark_windows(data.from_log(spark), "10 seconds"), data, tmp_path)
    assert [report["batchId"] for report in measured.progress] == list(range(1, BATCHES))
    assert [report["numInputRows"] for report in measured.progress] == [EVENTS // BATCHES] * (BATCHES - 1)
    assert measured.events == EVENTS - EVENTS // BATCHES
    assert measured.state > 0


def test_the_log_and_the_files_hold_the_same_events_in_order(data):
    files = pl.concat([pl.read_parquet(data.files / f"{batch}.parquet") for batch in range(BATCHES)])
    assert files.height == EVENTS == data.log.topic_info(TOPIC).count
    blocks = data.log.blocks(TOPIC, 0, 0)
    highest = [block.summary.max_event_time for block in blocks]
    per_batch = files["event_time"].cast(pl.Int64).to_numpy().reshape(BATCHES, -1)
    assert highest == per_batch.max(axis=1).tolist()


def test_event_times_are_out_of_order_by_less_than_a_second():
    times = readings(10_000, 5, span=SPAN)["event_time"].cast(pl.Int64)
    behind = (times.cum_max() - times).max()
    assert 0 < behind < 1_000_000


def test_a_profile_averages_the_phases_of_batches():
    state = {"allUpdatesTimeMs": 4, "commitTimeMs": 0, "numRowsTotal": 7, "customMetrics": {"rocksdbGetLatency": 2}}
    progress = [
        {"durationMs": {"addBatch": 100, "walCommit": 0}, "stateOperators": [state]},
        {"durationMs": {"addBatch": 300, "walCommit": 50}, "stateOperators": [state]},
    ]
    assert {(figure.name, figure.value) for figure in profile("group", progress)} == {
        ("addBatch", 200),
        ("walCommit", 25),
        ("state operator 0: allUpdatesTimeMs", 4),
        ("state operator 0: rocksdbGetLatency", 2),
        ("state operator 0: rows", 7),
    }


def test_the_work_is_timed_without_spark_too(data):
    figures = inside("group", data, ours(data, tumbling("10 s")))
    assert len(figures) == 5
    assert all(figure.value > 0 for figure in figures)


def test_settings_are_put_back(spark):
    names = ["spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"]
    before = [spark.conf.get(name, None) for name in names]
    with with_settings(spark, dict(zip(names, ["7", "false"], strict=True))):
        assert [spark.conf.get(name) for name in names] == ["7", "false"]
    assert [spark.conf.get(name, None) for name in names] == before


def test_the_memory_of_child_processes_is_seen():
    code = "x = b'x' * 200_000_000; print('ready', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        with PeakMemory() as memory:
            assert child.stdout.readline() == b"ready\n"
        child.communicate(b"\n")
    assert memory.peak >= 200_000_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["windows", "--only", "z"], "there is no part 'z'"),
        (["--only", "a"], "--only is for windows, patterns, transit"),
        (["windows", "--events", "5"], "at least 10,000"),
    ],
)
def test_a_wrong_argument_is_explained(arguments, said, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err
