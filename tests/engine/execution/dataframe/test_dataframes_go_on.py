"""Streaming DataFrames of results go on from their checkpoint, or are refused where its state means nothing to them."""

from __future__ import annotations

import polars as pl
import pytest
from pyspark.errors import StreamingQueryException

import tidewheel as tw
from tests.engine.orders import INPUT, put

pytestmark = pytest.mark.long

SCHEMA = "at TIMESTAMP, country STRING, amount BIGINT"


class Sums:
    """Sums of orders, from files or from a log, batch by batch on one checkpoint."""

    def __init__(self, spark, folder, log=None):
        self.spark, self.log = spark, log
        self.folder, self.checkpoint = folder / "files", folder / "checkpoint"
        self.folder.mkdir()
        self.number = 0

    def put(self, *orders):
        if self.log is not None:
            put(self.log, *orders)
            return
        frame = pl.DataFrame(orders, schema=["at", "country", "amount"], orient="row")
        at = (pl.col("at") * 1_000_000).cast(pl.Int64).cast(pl.Datetime("us", "UTC"))
        self.number += 1
        frame.with_columns(at).write_parquet(self.folder / f"{self.number}.parquet")

    def rows(self):
        watermark = tw.watermarks.bounded("1 s", future=None)
        if self.log is not None:
            return tw.stream(self.log, INPUT, watermark=watermark)
        return tw.stream(self.spark.readStream.schema(SCHEMA).parquet(str(self.folder)), time="at", watermark=watermark)

    def run(self, *, key_groups, size="10 s"):
        result = self.rows().key_by("country").window(tw.windows.tumbling(size)).aggregate(total=tw.agg.sum("amount"))
        out = result.df(key_groups=key_groups).writeStream.format("noop").trigger(availableNow=True)
        out.option("checkpointLocation", str(self.checkpoint)).start().awaitTermination()


CHANGES = [
    ({"key_groups": 2}, r"CheckpointError: .*made with 3 key groups, and now there are 2"),
    ({"key_groups": 5}, r"CheckpointError: .*made with 3 key groups, and now there are 5"),
    ({"key_groups": 3, "size": "20 s"}, "CheckpointError: .*made by other steps"),
]


@pytest.mark.parametrize("source", ["files", "log"])
def test_another_number_of_key_groups_and_other_windows_are_refused(spark, tmp_path, request, source):
    sums = Sums(spark, tmp_path, request.getfixturevalue("log") if source == "log" else None)
    sums.put((1.0, "fi", 5))  # one key: most key groups keep nothing
    sums.run(key_groups=3)
    sums.put((2.0, "fi", 7), (30.0, "se", 1))
    for changed, message in CHANGES:
        with pytest.raises(StreamingQueryException, match=message):
            sums.run(**changed)
    sums.run(key_groups=3)
