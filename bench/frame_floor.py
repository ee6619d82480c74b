"""What Spark alone takes to bring the rows of a DataFrame to Python, and from there to a state operator in Python.

Both do nothing: over a DataFrame no engine that is written in Python can be faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import Row

__all__ = ["does_nothing"]


def does_nothing(frame: DataFrame, *, key_groups: int) -> DataFrame:
    """The rows, counted by whoever gets them, with a state operator of so many keys behind."""

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pylist([{"key_group": number, "rows": rows} for number in range(key_groups)])

    counts = frame.mapInArrow(counted, "key_group BIGINT, rows BIGINT")
    return counts.groupBy("key_group").transformWithState(
        _Nothing(), outputStructType="rows BIGINT", outputMode="append", timeMode="None"
    )


class _Nothing(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._held = handle.getValueState("held", "rows BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        yield Row(rows=sum(row.rows for row in rows))
