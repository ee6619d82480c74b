"""Streams over DataFrames of Spark Connect, whose client has no Java and no context."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.engine.order_files import START, disordered, write_orders
from tidewheel.engine.execution.session import SETTINGS
from tidewheel.java import find_java

pytestmark = [pytest.mark.slow, pytest.mark.long]

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
import tidewheel as tw
from tidewheel.engine.execution.dataframe.watermark import has_watermark

store, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
spark.conf.set("spark.sql.shuffle.partitions", "2")
seen = {"session": type(spark).__module__}

def counts(frame):
    windows = tw.stream(frame, time="at").window(tw.windows.tumbling("10 s"))
    return windows.aggregate(n=tw.agg.count()).df().where("output = 'results'").select("n")

table = spark.sql("SELECT timestamp_seconds(1760000000 + id) AS at FROM range(35)")
seen["counted"] = sorted(row.n for row in counts(table).collect())
table.write.parquet(folder + "/rows")
stream = spark.readStream.schema("at TIMESTAMP").parquet(folder + "/rows")
marked = stream.withWatermark("at", "1 second")
query = counts(marked).writeStream.format("memory").queryName("counts").trigger(availableNow=True)
query.option("checkpointLocation", folder + "/counts").start().awaitTermination()
seen["counted by its watermark"] = [row.n for row in spark.table("counts").collect()]
seen["known"] = [has_watermark(frame) for frame in (stream, marked, marked.selectExpr("1 AS x"))]

def hourly(orders):
    rows = tw.stream(orders, time="ordered_at", watermark="2 h")
    return rows.key_by("customer").window(tw.windows.tumbling("1 h")).aggregate(revenue=tw.agg.sum("amount"))

def to_parquet(rows, batch_id):
    rows.write.mode("overwrite").parquet(f"{folder}/results/{batch_id}")

def revenue(frame):
    return sorted(map(list, frame.selectExpr("customer", "unix_seconds(window_start)", "revenue").collect()))

schema = "ordered_at TIMESTAMP, customer STRING, amount BIGINT"
static = hourly(spark.read.schema(schema).parquet(folder + "/orders")).df("results")
seen["frame"] = type(static).__module__
seen["revenue"] = revenue(static)
orders = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder + "/orders")
hourly(orders).writeStream(results=to_parquet, checkpoint=folder + "/hourly", available_now=True).awaitTermination()
seen["revenue to a sink"] = revenue(spark.read.parquet(folder + "/results/*"))
print(json.dumps(seen))
"""
FILES = [*disordered(31, files=4, size=30), [(90_000, "z", 1)]]
"""Orders, and one that is far ahead."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What a client sees of tables and streams."""
    folder = tmp_path_factory.mktemp("connect")
    write_orders(folder / "orders", FILES)
    store = SETTINGS["spark.sql.streaming.stateStore.providerClass"]
    own = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java().home)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, store, str(folder)],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["session"] == "pyspark.sql.connect.session"
    assert ".connect." in seen["frame"]
    return seen


def test_a_stream_that_has_a_watermark_goes_on_with_it(seen):
    assert seen["counted"] == [5, 10, 10, 10]
    assert seen["counted by its watermark"] == [10, 10, 10], "the last one is still open"
    assert seen["known"] == [False, True, True]


def test_a_table_and_a_stream_to_a_sink_give_what_the_orders_add_up_to(seen):
    sums = {}
    for second, customer, amount in (row for some in FILES[:-1] for row in some):
        hour = (START + second) // 3_600 * 3_600
        sums[customer, hour] = sums.get((customer, hour), 0) + amount
    wanted = sorted([customer, hour, total] for (customer, hour), total in sums.items())
    assert seen["revenue to a sink"] == wanted, "the last one is still open"
    last = (START + 90_000) // 3_600 * 3_600
    assert seen["revenue"] == [*wanted, ["z", last, 1]]
