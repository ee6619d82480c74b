"""Rows that wait in a checkpoint are read by a stage whose input has got another column meanwhile."""

from __future__ import annotations

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.engine.operators.lookup_join import LookupJoin, LookupJoinOperator
from tidewheel.engine.operators.operator import REPORTS, RESULTS, BatchTime, MemoryStore
from tidewheel.engine.operators.patterns.dynamic_patterns import DynamicPatterns
from tidewheel.engine.operators.patterns.pattern import DynamicPatternsOperator
from tidewheel.engine.operators.process import ProcessOperator
from tidewheel.errors import CheckpointError
from tidewheel.model.process.process import Process
from tidewheel.patterns.serde.pattern_json import pattern_to_json

INSTANT = pl.Datetime("us", "UTC")
OLD = {"key": pl.String(), "value": pl.Int64(), "event_time": INSTANT}
NEW = {"key": pl.String(), "place": pl.String(), "value": pl.Int64(), "event_time": INSTANT}
OTHER = {**OLD, "value": pl.Float64()}


def row(schema, at, **values):
    frame = pl.DataFrame([values], schema={name: kind for name, kind in schema.items() if name != "event_time"})
    return frame.with_columns(
        pl.lit(at, pl.Int64).cast(INSTANT).alias("event_time"), pl.lit(at, pl.Int64).alias("__time")
    )


def echo(schema):
    return ProcessOperator(Process(lambda events, state, clock: (events, state), keys="key", state={}), schema)


def lookup(schema):
    depot = tw.Lookup("depot", keys={"key": pl.String}, returns={"depot": pl.String})
    return LookupJoinOperator(LookupJoin(depot, 10, 100, schema))


def book(schema):
    return DynamicPatternsOperator(DynamicPatterns("patterns", ("key",), schema), ("key",))


@pytest.mark.parametrize("made", [echo, lookup])
def test_what_was_not_known_of_a_row_that_waits_is_null(made):
    store = MemoryStore()
    made(OLD).step(store, row(OLD, 100, key="a", value=1), BatchTime(None, 50, 0))
    after = made(NEW)
    after.step(store, row(NEW, 101, key="a", value=2, place="here"), BatchTime(50, 60, 1))
    found = after.step(store, None, BatchTime(60, 1_000, 2))[RESULTS].select("key", "place", "value")
    assert found.rows() == [("a", None, 1), ("a", "here", 2)]


@pytest.mark.parametrize("made", [echo, lookup])
def test_what_is_gone_from_the_rows_is_gone_from_those_that_wait(made):
    store = MemoryStore()
    made(NEW).step(store, row(NEW, 100, key="a", value=1, place="here"), BatchTime(None, 50, 0))
    found = made(OLD).step(store, row(OLD, 101, key="a", value=2), BatchTime(50, 1_000, 1))[RESULTS]
    assert "place" not in found.columns
    assert found["value"].to_list() == [1, 2]


def test_patterns_from_a_topic_go_on_and_may_ask_for_the_new_column():
    rise = tw.pattern("low", pl.col("value") < 2).next("high", pl.col("value") > 1)
    here = tw.pattern("here", pl.col("place") == "here")
    definition = pattern_to_json(rise, {})
    control = pl.DataFrame({"name": ["rise"], "version": [1], "definition": [definition], REPORTS: [True]})
    store = MemoryStore()
    before = book(OLD)
    before.on_control(store, control, BatchTime(None, 50, 0))
    before.step(store, before.pre_aggregate(row(OLD, 100, key="a", value=1), None), BatchTime(None, 50, 0))
    after = book(NEW)
    after.on_control(
        store,
        control.with_columns(name=pl.lit("here"), definition=pl.lit(pattern_to_json(here, {}))),
        BatchTime(50, 60, 1),
    )
    rows = after.pre_aggregate(row(NEW, 101, key="a", value=2, place="here"), 50)
    found = after.step(store, rows, BatchTime(50, 1_000, 1))[RESULTS]
    assert sorted(found["pattern"]) == ["here", "rise"]


def test_segments_of_old_and_new_rows_become_one():
    store = MemoryStore()
    for number in range(8):
        echo(OLD).step(store, row(OLD, 100 + number, key="a", value=number), BatchTime(None, None, number))
    echo(NEW).step(store, row(NEW, 108, key="a", value=8, place="here"), BatchTime(None, None, 8))
    found = echo(NEW).step(store, None, BatchTime(None, 1_000, 9))[RESULTS]
    assert found["value"].to_list() == list(range(9))
    assert found["place"].to_list() == [None] * 8 + ["here"]


@pytest.mark.parametrize("made", [echo, lookup, book])
def test_a_column_of_another_type_is_refused_and_named(made):
    store = MemoryStore()
    made(OLD).step(store, row(OLD, 100, key="a", value=1), BatchTime(None, 50, 0))
    with pytest.raises(CheckpointError, match="'value' of type Int64, but it is Float64 now"):
        made(OTHER).step(store, row(OTHER, 101, key="a", value=2.0), BatchTime(50, 1_000, 1))
