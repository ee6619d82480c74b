"""What is known of Spark's watermark where rows are read, and what travels for it."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import Row

import tidewheel as tw
from tidewheel.engine.execution.dataframe.watermark_hint import expect, expected
from tidewheel.engine.runtime.exchange import ExchangeBatch, Partitioner, Rows
from tidewheel.engine.runtime.exchange_parts import MaybeLateRows, StageRows

pytestmark = pytest.mark.long

SECOND = 1_000_000
START = 1_760_000_000 * SECOND


def instants(seconds: list[int]) -> pl.Series:
    return (pl.Series("at", seconds) * SECOND + START).cast(pl.Datetime("us", "UTC"))


def files(spark: SparkSession, folder: Path, frames: list[pl.DataFrame], schema: str) -> DataFrame:
    """A stream of which each of these frames is a batch."""
    folder.mkdir()
    for number, frame in enumerate(frames):
        path = folder / f"{number}.parquet"
        frame.write_parquet(path)
        os.utime(path, (START // SECOND + number, START // SECOND + number))
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def drained(frame: DataFrame, name: str, checkpoint: Path) -> pl.DataFrame:
    query = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    spark = frame.sparkSession
    found = pl.DataFrame(pl.from_arrow(spark.table(name).toArrow()))
    spark.catalog.dropTempView(name)
    return found


def test_the_next_batch_of_the_same_run_knows_what_was_expected_and_no_other(spark, tmp_path):
    class Reported(StatefulProcessor):
        """Says what the tasks before it knew, and expects ten seconds more than the row says."""

        def init(self, handle):
            pass

        def handleInputRows(self, key, rows, timerValues):
            for row in rows:
                expect(row.number * 10_000_000)
                yield Row(number=row.number, bound=row.bound)

        def close(self):
            pass

    def known(batches):
        import pyarrow as pa

        for batch in batches:
            yield batch.append_column("bound", pa.array([expected()] * batch.num_rows, pa.int64()))

    numbers = files(spark, tmp_path / "in", [pl.DataFrame({"number": [n]}) for n in (1, 2, 3)], "number BIGINT")
    schema = "number BIGINT, bound BIGINT"
    reported = numbers.mapInArrow(known, schema).groupBy("number")
    result = reported.transformWithState(Reported(), outputStructType=schema, outputMode="append", timeMode="None")
    for run in (1, 2):  # the second one begins anew, on a checkpoint of its own
        found = drained(result, "known", tmp_path / f"checkpoint{run}")
        assert found.sort("number").rows() == [(1, None), (2, 10_002_000), (3, 20_002_000)]


def test_outside_of_a_batch_nothing_is_known():
    expect(1)
    assert expected() is None


@pytest.mark.parametrize(
    ("bound", "travel"),
    [(None, [1, 12, 25]), (0, []), (9, []), (10, [1]), (19, [1]), (20, [1, 12]), (99, [1, 12, 25])],
)
def test_only_rows_that_may_be_late_travel_beside_their_aggregates(spark, tmp_path, bound, travel):
    (tmp_path / "none").mkdir()
    empty = spark.readStream.schema("at TIMESTAMP, value BIGINT").parquet(str(tmp_path / "none"))
    rows = tw.stream(empty, time="at", watermark=tw.watermarks.bounded("1 s"))
    flow = rows.window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count()).flow()
    exchange_batches: dict[int, ExchangeBatch] = {}
    seconds = [25, 1, 12]
    frame = pl.DataFrame({"at": instants(seconds), "value": seconds})
    known = None if bound is None else START + bound * SECOND
    Partitioner([flow], 1, watermark_known=False).partition(
        exchange_batches, flow.name, [Rows(frame)], None, bound=known
    )
    sent = [each for data in exchange_batches.values() for each in ExchangeBatch.read(data.to_bytes())]
    assert sorted(v for part, frame in sent if isinstance(part, MaybeLateRows) for v in frame["value"]) == travel
    assert sum(frame["__n"].sum() for part, frame in sent if isinstance(part, StageRows)) == 3


def test_a_watermark_beyond_what_was_expected_is_refused(spark, tmp_path):
    """Another stream in the same query may be ahead of ours, and Spark may be told to follow it."""
    moments = [instants([n]).to_frame() for n in (1, 2, 3)]
    later = [instants([n + 3_600]).to_frame() for n in (1, 2, 3)]
    rows = files(spark, tmp_path / "ours", moments, "at TIMESTAMP")
    ahead = files(spark, tmp_path / "ahead", later, "at TIMESTAMP").withWatermark("at", "1 second")
    stream = tw.stream(rows, time="at", watermark=tw.watermarks.bounded("1 s"))
    result = stream.window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
    both = result.df().select("event_time").union(ahead)
    policy = "spark.sql.streaming.multipleWatermarkPolicy"
    try:
        spark.conf.set(policy, "max")
        with pytest.raises(StreamingQueryException, match="multipleWatermarkPolicy to "):
            drained(both, "beyond", tmp_path / "max")
    finally:
        spark.conf.unset(policy)
    assert drained(both, "within", tmp_path / "min").height >= 3
