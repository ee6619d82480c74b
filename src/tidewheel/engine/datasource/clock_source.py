"""A source of ticks: batches at regular times, for a streaming DataFrame whose query waits for the clock.

Spark runs no batch while no rows come, so a trigger or a timer in processing time would wait for the next ones. Beside
the rows such a query reads this source, from which every key group hears once a second that time has passed. (Spark's
own source `rate` does not know `availableNow`: with it all rows would come in one batch, and no watermark would move.)
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

__all__ = ["TickSource", "ticks"]


def ticks(spark: SparkSession, each_second: pa.RecordBatch, schema: str) -> DataFrame:
    """A stream that gives these rows about once a second."""
    spark.dataSource.register(TickSource)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, each_second.schema) as writer:
        writer.write_batch(each_second)
    rows = base64.b64encode(sink.getvalue().to_pybytes()).decode()
    return spark.readStream.format(TickSource.name()).option("columns", schema).option("rows", rows).load()


class TickSource(DataSource):
    """The same rows once a second. Options: `columns` (as DDL), and `rows` (an Arrow stream in base64)."""

    @classmethod
    def name(cls) -> str:
        return "tidewheel-ticks"

    def schema(self) -> StructType | str:
        return str(self.options["columns"])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _TickReader(str(self.options["rows"]))


class _TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader whose offsets are seconds: a repeated batch has the same ticks as before."""

    def __init__(self, rows: str) -> None:
        self._rows = rows
        self._until: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"second": int(time.time())}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = int(time.time())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        now = int(time.time()) if self._until is None else self._until
        return {"second": max(now, start["second"])}  # a clock may be set back

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from pa.ipc.open_stream(base64.b64decode(self._rows))

    def commit(self, end: dict[str, Any]) -> None:
        pass
