"""Exact repeats are told apart at once and in any batches; what is skipped is counted."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidewheel as tw
from tests.engine.orders import INPUT, put
from tidewheel.engine.operators.dedup import DedupOperator
from tidewheel.engine.operators.operator import RESULTS, BatchTime, MemoryStore
from tidewheel.engine.runtime.exchange import Partitioner, Rows
from tidewheel.engine.runtime.stage_runner import StatefulStage
from tidewheel.errors import DefinitionError
from tidewheel.model.process.deduplicate import DUPLICATES
from tidewheel.model.process.exact_duplicates import ExactDuplicates, ExactDuplicatesReference
from tidewheel.testing import Script, row

SCHEMA = {"key": pl.String(), "x": pl.Float64(), "__time": pl.Int64()}
SECOND = 1_000_000
ROW = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.sampled_from([0.5, None, float("nan")]),
    st.one_of(st.none(), st.integers(0, 60).map(lambda second: second * SECOND)),
)
BATCH = st.tuples(st.lists(ROW, max_size=8), st.one_of(st.none(), st.integers(0, 70).map(lambda s: s * SECOND)))


@settings(max_examples=100)
@given(batches=st.lists(BATCH, max_size=6), horizon=st.sampled_from([0, 5, 30]))
def test_columns_give_what_one_row_after_the_other_gives(batches, horizon):
    dedup = ExactDuplicates(("key", "x"), horizon * SECOND)
    reference = ExactDuplicatesReference(dedup)
    operator, store, before = DedupOperator(dedup, SCHEMA), MemoryStore(), None
    for rows, watermark in batches:
        frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
        kept, again, late = reference.step(frame.to_dicts(), watermark=watermark)
        sound, rejected = operator.split_late(frame, before)
        found = operator.step(store, sound, BatchTime(before, watermark, 0))
        assert as_text(found.get(RESULTS)) == sorted(map(repr, kept))
        assert as_text(found.get(DUPLICATES)) == sorted(map(repr, again))
        assert (0 if rejected is None else rejected.height) == len(late)
        before = max((mark for mark in (before, watermark) if mark is not None), default=None)


def as_text(frame):
    return [] if frame is None else sorted(map(repr, frame.to_dicts()))


def test_rows_behind_the_horizon_are_forgotten():
    operator, store = DedupOperator(ExactDuplicates(("key",), 5 * SECOND), SCHEMA), MemoryStore()
    frame = pl.DataFrame([("a", 1.0, 3 * SECOND)], schema=SCHEMA, orient="row")
    operator.step(store, frame, BatchTime(None, 10 * SECOND, 0))
    assert len(store.frames) == 1
    operator.step(store, None, BatchTime(10 * SECOND, 20 * SECOND, 0))
    assert store.frames == {}


def test_a_window_behind_it_still_gets_late_rows():
    script = (
        Script().add(at="12:00:01", k="a").watermark("12:00:10").add(at="12:00:02", k="a").add(at="12:00:02", k="a")
    )
    found = script.run(lambda rows: rows.deduplicate("event_time", "k", horizon="1 min"))
    assert found == [row(at="12:00:01", k="a"), row(at="12:00:02", k="a")]
    assert found.outputs["duplicates"] == [row(at="12:00:02", k="a")]
    assert found.late == []


def test_two_stages_with_an_output_of_one_name_keep_them_apart():
    def twice(rows):
        once = rows.deduplicate("event_time", "k", horizon="1 s")
        return once.deduplicate("event_time", horizon="1 s")

    script = Script().add(at="12:00:01", k="a").add(at="12:00:01", k="a").add(at="12:00:01", k="b")
    found = script.run(twice)
    assert found.outputs["duplicates"] == [row(at="12:00:01", k="a")]
    assert found.outputs["duplicates_2"] == [row(at="12:00:01", k="b")]


def test_what_is_skipped_is_counted_by_its_first_reason(log):
    put(log, (1, "fi", 5), (2, "se", 7), (3, "fi", 1))
    orders = tw.stream(log, INPUT)
    skipping = orders.skip(
        small=pl.col("amount") < 6, finnish=pl.col("country") == "fi", unknown=pl.lit(None, pl.Boolean)
    )
    flow = skipping.key_by("country").window(tw.windows.tumbling("1 s")).aggregate(n=tw.agg.count()).flow()
    frame = pl.DataFrame({"country": ["fi", "se", "fi"], "amount": [5, 7, 8]}).with_columns(
        event_time=pl.lit(1).cast(pl.Datetime("us", "UTC"))
    )
    exchange_batches = {}
    Partitioner([flow], 1).partition(exchange_batches, flow.name, [Rows(frame)], None)
    stateful_stage = StatefulStage([flow], 0, 1)
    out, _ = stateful_stage.step(_State(), 0, [exchange_batches[0].to_bytes()], BatchTime(None, None, 0))
    metrics = pl.concat(frame for _, output, frame in out if output == "metrics")
    assert sorted(metrics.select("events", "accepted", "skipped", "skipped_reason").rows(), key=str) == [
        (1, 0, 1, "finnish"),
        (1, 0, 1, "small"),
        (1, 1, 0, None),
    ]


class _State:
    def store(self, prefix):
        return MemoryStore()


def test_skip_wants_a_condition(log):
    put(log, (1, "fi", 5))
    with pytest.raises(DefinitionError, match="give a condition by name"):
        tw.stream(log, INPUT).skip()


@pytest.mark.parametrize("on", ["reference", "spark"])
@pytest.mark.parametrize("name", ["output", "stream"])
def test_rows_keep_a_column_that_is_called_like_something_of_ours(name, on):
    script = Script().add(at="12:00:01", k="a", **{name: "x"}).add(at="12:00:03", k="a", **{name: "y"}).end()
    found = script.run(lambda rows: rows.deduplicate("k", horizon="1 min"), on=on)
    assert [each[name] for each in found] == ["x"]
    assert [each[name] for each in found.outputs["duplicates"]] == ["y"]
