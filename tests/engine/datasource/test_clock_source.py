"""The source that tells time, without Spark."""

from __future__ import annotations

import base64
import time

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from tidewheel.engine.datasource.clock_source import TickSource

ROWS = pa.RecordBatch.from_pydict({"key_group": [3, 5]})


def reader():
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS.schema) as writer:
        writer.write_batch(ROWS)
    rows = base64.b64encode(sink.getvalue().to_pybytes()).decode()
    source = TickSource({"columns": "key_group LONG", "rows": rows})
    assert source.schema() == "key_group LONG"
    return source.streamReader(StructType())


def test_it_gives_its_rows_and_has_more_when_a_second_has_passed(monkeypatch):
    found = reader()
    monkeypatch.setattr(time, "time", lambda: 100.7)
    start = found.initialOffset()
    assert found.latestOffset(start, ReadAllAvailable()) == start == {"second": 100}
    monkeypatch.setattr(time, "time", lambda: 101.2)
    assert found.latestOffset(start, ReadAllAvailable()) == {"second": 101}
    assert found.latestOffset({"second": 500}, ReadAllAvailable()) == {"second": 500}, "a clock was set back"
    assert len(found.partitions(start, {"second": 101})) == 1
    assert [batch.to_pydict() for batch in found.read(InputPartition(None))] == [{"key_group": [3, 5]}]


def test_a_run_that_reads_what_is_there_ends(monkeypatch):
    found = reader()
    monkeypatch.setattr(time, "time", lambda: 100.0)
    start = found.initialOffset()
    found.prepareForTriggerAvailableNow()
    monkeypatch.setattr(time, "time", lambda: 200.0)
    assert found.latestOffset(start, ReadAllAvailable()) == start
