"""Outputs of a streaming result, each into a sink of its own, from one query."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass

import polars as pl
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

import tidewheel as tw
from tests.engine.order_files import disordered, read_orders, write_orders
from tidewheel.errors import DefinitionError

pytestmark = pytest.mark.long

FILES = disordered(5, files=5, size=20)
EARLY_AND_LATE = tw.triggers.after_watermark(early=tw.triggers.each_batch(), late=tw.triggers.each_batch())


def sessions(orders):
    rows = tw.stream(orders, time="ordered_at", watermark=tw.watermarks.bounded("10 min", future=None))
    windows = rows.key_by("customer").window(tw.windows.session(gap="10 min"), lateness="20 min")
    counted = windows.trigger(EARLY_AND_LATE).accumulate("retracting")
    return counted.aggregate(orders=tw.agg.count(), revenue=tw.agg.sum("amount"))


class Kept:
    """A sink that keeps the rows of each micro-batch."""

    def __init__(self):
        self.batches = {}

    def __call__(self, rows, batch_id):
        self.batches.setdefault(batch_id, []).append([row.asDict() for row in rows.collect()])

    @property
    def rows(self):
        """All rows; each micro-batch came once."""
        assert all(len(times) == 1 for times in self.batches.values())
        return [row for number in sorted(self.batches) for row in self.batches[number][0]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of orders."""
    folder = tmp_path_factory.mktemp("sinks") / "orders"
    write_orders(folder, FILES)
    return folder


@pytest.fixture
def orders(spark, folder):
    return read_orders(spark, folder)


def start(result, tmp_path, **sinks):
    query = result.writeStream(checkpoint=tmp_path / "checkpoint", available_now=True, key_groups=2, **sinks)
    query.awaitTermination()
    return query


@dataclass
class Ran:
    """A query that has ended, and what its sinks have."""

    query: StreamingQuery
    results: Kept
    late: DataFrame
    metrics: Kept


@pytest.fixture(scope="module")
def ran(spark, folder, tmp_path_factory):
    """A query with a sink for each output."""
    results, metrics = Kept(), Kept()
    place = tmp_path_factory.mktemp("ran")
    late = {"format": "parquet", "path": place / "late", "compression": "zstd"}
    query = start(sessions(read_orders(spark, folder)), place, results=results, late=late, metrics=metrics)
    return Ran(query, results, spark.read.parquet(str(place / "late")), metrics)


def test_each_output_goes_to_its_sink_from_one_query_that_computes_everything_once(ran):
    results, metrics, kept = ran.results, ran.metrics, ran.late
    read = sum(progress.numInputRows for progress in ran.query.recentProgress)
    assert read == sum(map(len, FILES)), "who computes a micro-batch twice reads it twice"
    assert sum(row["events"] for row in metrics.rows) == read
    assert list(results.batches) == list(range(len(FILES) + 1)), "a last one without rows moves the time on"
    assert all(row["batch_id"] == number for number, [rows] in results.batches.items() for row in rows)

    assert kept.count() == sum(row["late"] for row in metrics.rows) > 0
    assert set(kept.columns) >= {"customer", "amount", "late_reason", "late_by", "batch_id"}
    assert kept.agg(f.min("late_by")).first()[0] > 20 * 60, "seconds behind the watermark, beyond the lateness"
    rejected = kept.agg(f.sum("amount")).first()[0]
    signed = sum(row["revenue"] * (-1 if row["retraction"] else 1) for row in results.rows)
    assert signed + rejected == sum(amount for orders in FILES for _, _, amount in orders)


def test_a_retraction_comes_before_what_replaces_it(ran):
    results = ran.results
    shown = {}
    taken_back = 0
    for row in results.rows:
        window = (row["customer"], row["window_start"], row["window_end"])
        value = (row["orders"], row["revenue"])
        if row["retraction"]:
            assert shown.pop(window) == value, "what is retracted was there"
            taken_back += 1
        else:
            assert window not in shown, "what was there is retracted before"
            shown[window] = value
    assert taken_back > 10
    order = [(number, row["pane_index"], row["retraction"]) for number, row in enumerate(results.rows)]
    for window in {(row["batch_id"], row["customer"], row["window_start"], row["window_end"]) for row in results.rows}:
        mine = [
            order[number][1:]
            for number, row in enumerate(results.rows)
            if (row["batch_id"], row["customer"], row["window_start"], row["window_end"]) == window
        ]
        assert mine == sorted(mine), "so batch_id, pane_index, retraction is the order of a window's results"


def test_a_plain_frame_knows_its_micro_batch(spark, orders, ran, tmp_path):
    frame = sessions(orders).df("results", key_groups=2)
    assert frame.isStreaming
    query = frame.writeStream.format("memory").queryName("numbered").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "plain")).start()
    query.awaitTermination()
    found = pl.DataFrame(pl.from_arrow(spark.table("numbered").toArrow()))
    spark.catalog.dropTempView("numbered")
    expected = pl.DataFrame(ran.results.rows, infer_schema_length=None)
    same = ["batch_id", "customer", "orders", "revenue", "pane_index", "retraction"]
    assert sorted(found.select(same).rows()) == sorted(expected.select(same).rows())
    assert found["batch_id"].n_unique() > 2


def test_a_sink_that_fails_is_named_and_the_micro_batch_is_repeated_with_its_number(spark, orders, ran, tmp_path):
    results = Kept()
    broken = [True]

    def fails_once(rows, batch_id):
        if batch_id == 2 and broken.pop():
            raise OSError("no room")

    late = {"format": "json", "path": tmp_path / "late"}
    with pytest.raises(
        StreamingQueryException, match="the sink of 'metrics' failed in micro-batch 2: OSError: no room"
    ):
        start(sessions(orders), tmp_path, results=results, late=late, metrics=fails_once)
    broken.append(False)
    start(sessions(orders), tmp_path, results=results, late=late, metrics=fails_once)
    first, again = results.batches[2]
    assert first == again
    assert [len(results.batches[number]) for number in range(len(FILES) + 1)] == [1, 1, 2, 1, 1, 1]
    assert spark.read.json(str(tmp_path / "late")).count() == ran.late.count() > 0, "the repeated one is there once"


def test_a_log_goes_into_sinks_likewise(spark, log, tmp_path):
    from tests.engine.orders import INPUT, put

    for second in range(0, 60, 5):
        put(log, (float(second), "fi", 1))
    rows = tw.stream(log, INPUT, watermark=tw.watermarks.bounded("1 s", future=None))
    counted = rows.key_by("country").window(tw.windows.tumbling("20 s")).aggregate(n=tw.agg.count())
    results = Kept()
    start(counted, tmp_path, results=results)
    assert [row["n"] for row in results.rows] == [4, 4]


def test_what_makes_no_sense_is_refused_when_it_is_defined(spark, orders, folder, tmp_path):
    result = sessions(orders)
    checkpoint = tmp_path / "checkpoint"

    def refused(message, **given):
        with pytest.raises(DefinitionError, match=message):
            result.writeStream(checkpoint=checkpoint, **given)

    refused("name an output and its sink.*the outputs are results, late, metrics")
    refused("there is no output 'panes'; there are results, late, metrics", panes=print)
    refused("the sink of 'results' must be a function .*got 'out'", results="out")
    refused("has the format 'jdbc'.*give a function", results={"format": "jdbc", "url": "x"})
    refused("needs one path, got", results={"format": "parquet"})
    refused("needs one path, or table, got", results={"format": "delta", "path": "a", "table": "b"})
    refused("available_now or trigger, not both", results=print, available_now=True, trigger="10 s")
    static = spark.read.schema(orders.schema).parquet(str(folder))
    with pytest.raises(DefinitionError, match=r'not streaming; write it with df\("results"\).write'):
        sessions(static).writeStream(results=print, checkpoint=checkpoint)
    named = tw.stream(orders.withColumnRenamed("amount", "batch_id"), time="ordered_at")
    with pytest.raises(DefinitionError, match="'late' has a column 'batch_id'"):
        named.deduplicate("customer", horizon="1 h").writeStream(late=print, checkpoint=checkpoint)
    assert not checkpoint.exists()


def test_a_query_has_its_name_and_trigger(orders, tmp_path):
    query = sessions(orders).writeStream(
        results=Kept(), checkpoint=tmp_path / "checkpoint", name="named_sessions", trigger="100 ms"
    )
    try:
        assert query.name == "named_sessions"
        query.processAllAvailable()
        assert query.isActive, "it waits for more"
    finally:
        query.stop()


def test_a_transaction_that_notes_the_number_has_every_micro_batch_once(orders, ran, tmp_path):
    """The pattern that the guide shows: what was written is there, and the sink is called again for it."""
    path = tmp_path / "sums.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE sums (revenue INTEGER)")
        connection.execute("CREATE TABLE batches (id INTEGER PRIMARY KEY)")
    failed = []

    def add(rows, batch_id):
        with closing(sqlite3.connect(path)) as connection, connection:
            if connection.execute("SELECT 1 FROM batches WHERE id = ?", [batch_id]).fetchone():
                return
            connection.execute("INSERT INTO batches VALUES (?)", [batch_id])
            values = [(-row.revenue if row.retraction else row.revenue,) for row in rows.collect()]
            connection.executemany("INSERT INTO sums VALUES (?)", values)
        if batch_id in (1, 4) and batch_id not in failed:
            failed.append(batch_id)
            raise ConnectionError("after the commit")

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="after the commit"):
            start(sessions(orders), tmp_path, results=add)
    start(sessions(orders), tmp_path, results=add)
    assert failed == [1, 4]
    with closing(sqlite3.connect(path)) as connection:
        [(total,)] = connection.execute("SELECT sum(revenue) FROM sums")
    assert total + sum(row.amount for row in ran.late.collect()) == sum(
        amount for some in FILES for _, _, amount in some
    )


def test_a_folder_is_not_overwritten_by_micro_batches_of_another_checkpoint_or_of_an_older_one(spark, tmp_path):
    def rows():
        return sorted(map(tuple, spark.read.parquet(str(tmp_path / "out")).collect()))

    def refused(message, into, checkpoint):
        query = sessions(read_orders(spark, tmp_path / "orders")).writeStream(
            results={"format": "parquet", "path": tmp_path / into}, checkpoint=tmp_path / checkpoint,
            available_now=True, key_groups=2,
        )  # fmt: skip
        with pytest.raises(StreamingQueryException, match=message):
            query.awaitTermination()

    out = {"format": "parquet", "path": tmp_path / "out"}
    write_orders(tmp_path / "orders", FILES[:2])
    start(sessions(read_orders(spark, tmp_path / "orders")), tmp_path, results=out)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    write_orders(tmp_path / "orders", FILES)
    start(sessions(read_orders(spark, tmp_path / "orders")), tmp_path, results=out)
    written = rows()
    assert len(written) > 10

    refused("out, holds results of another run", "out", "new")
    refused(r"holds micro-batch \d+, and the checkpoint goes on with \d+: it is older", "out", "older")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("not ours")
    refused("theirs, holds files that no run of writeStream put there", "theirs", "newer")
    assert rows() == written
