"""Lookups over any DataFrame that has an end: the answers are those that the log has now."""

from __future__ import annotations

from datetime import datetime, timezone

import polars as pl
import pytest
from pyspark.sql import Row

import tidewheel as tw
from tidewheel.errors import DefinitionError
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import LookupOutcome
from tidewheel.transport.log.log_types import records

DEPOT = tw.Lookup("depot", keys={"line": pl.String}, returns={"depot": pl.String})


def say(log, line, answer="", reason=""):
    message = LookupOutcome(key=DEPOT.key_text((line,)), answer=answer, reason=reason)
    log.append(DEPOT.topic, records([codec.encode(codec.pack(message, event_time=0))]))


@pytest.fixture
def rows(spark):
    at = [datetime(2026, 1, 1, 12, 0, second, tzinfo=timezone.utc) for second in range(4)]
    return spark.createDataFrame([Row(at=time, line=line) for time, line in zip(at, "abca", strict=True)])


def test_rows_of_a_table_get_the_answers_that_the_log_has(log, rows):
    say(log, "a", reason="gone")
    say(log, "a", answer='{"depot":"north"}')
    say(log, "b", answer='{"depot":"south"}')
    say(log, "b", reason="gone")
    result = tw.stream(rows, time="at", lookups=log).lookup(DEPOT)
    found = result.df(key_groups=2).collect()
    reported = sorted((row.line, row.depot) for row in found if row.output == "results")
    assert reported == [("a", "north"), ("a", "north"), ("b", "south"), ("c", None)]
    assert [(row.failed.line, row.failed.reason) for row in found if row.output == "failed"] == [
        ("c", "no answer in time")
    ]


def test_answers_need_a_log(log, rows, spark):
    with pytest.raises(DefinitionError, match="name the log that has the answers"):
        tw.stream(rows, time="at").lookup(DEPOT)
    assert tw.stream(rows, time="at", lookups=log).lookup(DEPOT).schema["depot"] == pl.String
    streaming = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "at").selectExpr("at", "'a' line")
    with pytest.raises(DefinitionError, match="streaming DataFrame"):
        tw.stream(streaming, time="at", lookups=log).lookup(DEPOT)
    with pytest.raises(DefinitionError, match="a log has its answers in topics of its own"):
        tw.stream(log, "x", type="tidewheel.transit.v1.VehiclePosition", lookups=log)
