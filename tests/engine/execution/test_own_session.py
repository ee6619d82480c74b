"""A Spark session that somebody made without us, with nothing of what ours sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import tidewheel as tw
from tests.engine.engine_data import START, positions
from tests.engine.topic_frames import decoded, values
from tidewheel.engine.execution.session import SETTINGS
from tidewheel.java import find_java
from tidewheel.transport.events import codec
from tidewheel.transport.topics.materialize import materialize

pytestmark = [pytest.mark.slow, pytest.mark.long]

INPUT = "input.vehicle-position"
COUNT = 50
ROCKSDB = "spark.sql.streaming.stateStore.providerClass"

PROGRAM = """
import json, sys, warnings
from pathlib import Path
from pyspark.sql import SparkSession
import tidewheel as tw

spark = SparkSession.builder.master("local[2]").getOrCreate()

def counted(frame, time):
    return tw.stream(frame, time=time).window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())

def refusal(what):
    try:
        what()
    except Exception as error:
        return [type(error).__name__, str(error)]

table = spark.sql("SELECT timestamp_seconds(id) AS at FROM range(3)")
reported = {"table": refusal(lambda: counted(table, "at").df())}

log = tw.open_log(sys.argv[1])
folder = Path(sys.argv[2])
assert tw.session(spark) is spark

kind = "tidewheel.transit.v1.VehiclePosition"
rows = spark.readStream.format("tidewheel").option("topics", "input.vehicle-position").option("type", kind)
copy = rows.load(log.address).select("event_time", "vehicle").writeStream.format("tidewheel").option("type", kind)
copy = copy.option("topic", "copy").option("checkpointLocation", str(folder / "copy")).trigger(availableNow=True)
copy.start(log.address).awaitTermination()

positions = tw.stream(log, "input.vehicle-position", watermark=tw.watermarks.bounded("2 s", future=None))
counts = positions.key_by("mode").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count()).named("counts")

def run():
    tw.run(counts, log=log, checkpoint=folder / "counts", spark=spark, available_now=True, key_groups=2).wait()

reported |= {"run": refusal(run), "df": refusal(lambda: counts.df(spark=spark)), "made": (folder / "counts").exists()}
spark.conf.set("spark.sql.streaming.stateStore.providerClass", sys.argv[3])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    counted(spark.readStream.format("rate").load(), "timestamp").df(key_groups=4)
reported["warned"] = [str(each.message) for each in caught]
spark.conf.set("spark.sql.shuffle.partitions", "4")
run()
print(json.dumps(reported))
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    with tw.open_log(tmp_path_factory.mktemp("own") / "city.tw", sync="normal") as log:
        log.append(INPUT, positions(range(COUNT)))
        yield log


@pytest.fixture(scope="module")
def reported(log, tmp_path_factory):
    """The messages of a program with a session of its own that does all that can be done with a log."""
    # What whoever starts Spark sets; and the clock of the machine shows something else than UTC.
    own = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java().home), "TZ": "America/New_York"}
    arguments = [log.address, str(tmp_path_factory.mktemp("checkpoints")), SETTINGS[ROCKSDB]]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_stream_goes_from_log_to_log(log, reported):
    assert [message.vehicle for message in decoded(log, "copy")] == list(range(COUNT))
    times = [codec.decode(value).event_time.ToMicroseconds() for value in values(log, "copy")]
    assert times == [START + number * 1_000_000 for number in range(COUNT)]


def test_without_the_store_that_state_needs_the_error_says_what_to_set(reported):
    for way in ("run", "df"):
        kind, message = reported[way]
        assert kind == "SetupError"
        assert "HDFSBackedStateStoreProvider" in message
        assert f'spark.conf.set("{ROCKSDB}", "{SETTINGS[ROCKSDB]}")' in message
    assert not reported["made"], "a checkpoint would remember the store that is of no use"


def test_with_it_windows_work(log, reported):
    rows = materialize(log, "analytics.counts").rows.sort("window_start")
    first = START // 1_000_000
    assert [row["window_start"].timestamp() for row in rows.to_dicts()] == [first, first + 10, first + 20, first + 30]
    assert rows["n"].to_list() == [10] * 4


def test_that_it_has_200_partitions_which_are_sparks_default_is_reported_before_the_first_batch(reported):
    assert reported["table"] is None, "its workers find all that they need"
    (message,) = reported["warned"]
    assert "spark.sql.shuffle.partitions = 200, and the result 4 key groups" in message
    assert "196 of them empty" in message
    assert 'spark.conf.set("spark.sql.shuffle.partitions", "4")' in message
