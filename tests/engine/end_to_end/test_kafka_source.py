"""A user's script over Spark's own Kafka source: sessions with early results and retractions, into SQLite."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka import connector_jars

pytestmark = [pytest.mark.long, pytest.mark.slow]

SCRIPT = """
import sqlite3, sys
import tidewheel as tw
from pyspark.sql import functions as F

address, jars, folder = sys.argv[1:]
spark = tw.session(settings={"spark.jars": jars})
spark.read.json(folder + "/orders.json").select(
    F.col("user").alias("key"), F.to_json(F.struct("user", "amount", "ts")).alias("value")
).write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", "orders").save()

orders = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", address)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 150)
    .load()
    .select(F.from_json(F.col("value").cast("string"), "user STRING, amount DOUBLE, ts TIMESTAMP").alias("order"))
    .select("order.*")
)
each = tw.triggers.each_batch()
sessions = (
    tw.stream(orders, time="ts", watermark="10 min")
    .key_by("user")
    .window(tw.windows.session("30 min"), lateness="1 d")
    .trigger(tw.triggers.after_watermark(early=each, late=each))
    .accumulate("retracting")
    .aggregate(orders=tw.agg.count(), revenue=tw.agg.sum("amount"))
)

def to_sqlite(rows, batch):
    found = rows.where("output = 'results'").select(
        "user", F.unix_micros("window_start").alias("start"), F.unix_micros("window_end").alias("end"),
        "orders", "revenue", "retraction",
    ).collect()
    with sqlite3.connect(folder + "/sessions.db") as table:
        for row in found:
            if row.retraction:
                table.execute("DELETE FROM sessions WHERE user = ? AND start = ? AND end = ?", row[:3])
            else:
                table.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)", row[:5])
        table.execute("INSERT INTO batches VALUES (?, ?)", (batch, sum(row.retraction for row in found)))

with sqlite3.connect(folder + "/sessions.db") as table:
    table.execute("CREATE TABLE sessions (user, start, end, orders, revenue, PRIMARY KEY (user, start, end))")
    table.execute("CREATE TABLE batches (number, retracted)")
query = (
    sessions.df().writeStream.foreachBatch(to_sqlite)
    .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
"""

ORACLE = """
WITH ordered AS (
    SELECT "user", ts, amount,
           ts - lag(ts) OVER (PARTITION BY "user" ORDER BY ts) >= INTERVAL 30 MINUTE AS begins
    FROM orders
), numbered AS (
    SELECT *, sum(coalesce(begins, true)::INT) OVER (PARTITION BY "user" ORDER BY ts ROWS UNBOUNDED PRECEDING) AS nth
    FROM ordered
)
SELECT "user", epoch_us(min(ts)), epoch_us(max(ts) + INTERVAL 30 MINUTE), count(*), sum(amount)
FROM numbered GROUP BY "user", nth ORDER BY 1, 2
"""


def write_orders(path: Path) -> None:
    """Orders of a day, out of order by up to some hours."""
    chance = random.Random(20)
    orders = [
        (f"user-{chance.randrange(12)}", chance.randrange(1, 500) / 4, chance.uniform(0, 86_400)) for _ in range(900)
    ]
    orders.sort(key=lambda order: order[2] + chance.expovariate(1 / 1_800))
    path.write_text(
        "".join(
            f'{{"user": "{user}", "amount": {amount}, "ts": "2026-03-01T{int(at // 3600):02}:{int(at // 60 % 60):02}:'
            f'{at % 60:09.6f}Z"}}\n'
            for user, amount, at in orders
        )
    )


def test_sessions_over_kafka_are_those_of_an_oracle(kafka, tmp_path):
    write_orders(tmp_path / "orders.json")
    jars = connector_jars()
    client = AdminClient({"bootstrap.servers": kafka.address})
    client.create_topics([NewTopic("orders", 2)])["orders"].result(60)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kafka.address, jars, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    orders = duckdb.sql(  # noqa: F841  (the oracle's statement reads it by its name)
        f"SELECT \"user\", amount, ts::TIMESTAMP AS ts FROM read_json('{tmp_path}/orders.json', "
        "columns={user: 'VARCHAR', amount: 'DOUBLE', ts: 'TIMESTAMP'})"
    )
    wanted = duckdb.sql(ORACLE).fetchall()
    with sqlite3.connect(tmp_path / "sessions.db") as table:
        found = table.execute("SELECT * FROM sessions ORDER BY 1, 2").fetchall()
        batches, retracted = table.execute("SELECT count(*), sum(retracted) FROM batches").fetchone()
    assert found == wanted
    assert batches >= 6, "several micro-batches"
    assert retracted > 10, "early results that were retracted"
