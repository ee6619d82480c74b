"""The outputs of a result as DataFrames: all in one, or one alone."""

from __future__ import annotations

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.errors import DefinitionError

PANE = ["pane_index", "pane_timing", "pane_first", "pane_last", "retraction", "event_time"]


@pytest.fixture(scope="module")
def counted(spark):
    table = spark.sql("SELECT 'a' AS key, IF(id = 3, NULL, timestamp_seconds(id)) AS at, id FROM range(12)")
    return tw.stream(table, time="at").key_by("key").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())


def test_one_output_has_its_columns_alone(counted):
    results = counted.df("results")
    assert results.columns == ["key", "window_start", "window_end", "n", *PANE, "batch_id"]
    assert [(row.key, row.n) for row in results.orderBy("window_start").collect()] == [("a", 9), ("a", 2)]
    late = counted.df("late")
    assert late.columns == ["key", "at", "id", "event_time", "late_reason", "late_by", "batch_id"]
    assert [(row.id, row.late_reason, row.late_by) for row in late.collect()] == [(3, "no event time", None)]
    assert sum(row.events for row in counted.df("metrics").collect()) == 12


def test_without_a_name_all_outputs_are_there(counted):
    both = counted.df()
    assert both.columns[:3] == ["output", "batch_id", "key"]
    assert both.columns[-2:] == ["late", "metrics"]
    assert {row.output for row in both.collect()} == {"results", "late", "metrics"}
    assert both.where("output = 'late'").select("late.id").collect()[0].id == 3


def test_a_table_has_no_micro_batches(counted):
    assert {row.batch_id for row in counted.df().collect()} == {None}


def test_by_how_much_a_row_is_late_is_a_number_of_seconds(counted):
    assert dict(counted.df("late").dtypes)["late_by"] == "double"
    assert "late_by:double" in dict(counted.df().dtypes)["late"]


def test_an_output_that_does_not_exist_is_refused_with_those_that_do(counted):
    with pytest.raises(DefinitionError, match="df: there is no output 'panes'; there are results, late, metrics"):
        counted.df("panes")


def test_a_session_is_not_taken_for_the_name_of_an_output(counted, spark):
    with pytest.raises(DefinitionError, match=r'such as df\("results"\).*a session is spark='):
        counted.df(spark)
    assert counted.df("results", spark=spark).count() == 2


def test_a_column_that_is_called_like_the_number_of_the_batch_is_refused_where_they_would_meet(spark):
    table = spark.sql("SELECT timestamp_seconds(id) AS at, id AS batch_id FROM range(12)")
    rows = tw.stream(table, time="at")
    once = rows.deduplicate("batch_id", horizon="1 h")
    for name in (None, "results", "late"):
        with pytest.raises(DefinitionError, match=r"has a column 'batch_id'.*number of the micro-batch; rename yours"):
            once.df(name)
    counted = rows.window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
    assert counted.df("results").count() == 2, "there the column does not come out"
    assert once.select("at", number=pl.col("batch_id")).df("results").count() == 12
