"""Streams over DataFrames of Spark Connect, whose client has no Java and no context."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tidewheel.engine.execution.session import SETTINGS
from tidewheel.engine.spark.java import find_java, spark_home

pytestmark = [pytest.mark.slow, pytest.mark.long]

PROGRAM = """
import json, sys, time
from pyspark.sql import SparkSession
import tidewheel as tw
from tidewheel.engine.execution.dataframe.watermark import has_watermark

store, folder = sys.argv[1:]
name = "spark.sql.streaming.stateStore.providerClass"
builder = SparkSession.builder.remote("local[2]").config("spark.ui.showConsoleProgress", "false")
spark = builder.config(name, store).config("spark.sql.shuffle.partitions", "1").getOrCreate()

def counts(frame):
    return tw.stream(frame, time="at").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())

def results(frame):
    return counts(frame).df().where("output = 'results'").select("n")

table = spark.sql("SELECT timestamp_seconds(1760000000 + id) AS at FROM range(35)")
rows = [row.n for row in results(table).collect()]
table.write.parquet(folder + "/rows")
stream = spark.readStream.schema("at TIMESTAMP").parquet(folder + "/rows")
marked = stream.withWatermark("at", "1 second")
query = results(marked).writeStream.format("memory").queryName("counts").trigger(availableNow=True)
query.option("checkpointLocation", folder + "/checkpoint").start().awaitTermination()
streamed = [row.n for row in spark.table("counts").collect()]
known = [has_watermark(frame) for frame in (stream, marked, marked.selectExpr("1 AS x"))]
print(json.dumps([type(spark).__module__, sorted(rows), streamed, known]))
"""


def test_windows_over_tables_and_over_streams_that_have_a_watermark(tmp_path):
    store = SETTINGS["spark.sql.streaming.stateStore.providerClass"]
    own = {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(spark_home(find_java()))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, store, str(tmp_path)],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    module, rows, streamed, known = json.loads(done.stdout.splitlines()[-1])
    assert module == "pyspark.sql.connect.session"
    assert rows == [5, 10, 10, 10]
    assert streamed == [10, 10, 10], "the last one is still open"
    assert known == [False, True, True]
