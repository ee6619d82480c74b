"""Exact repeats are told apart at once and in any batches; what is skipped is counted."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orders import INPUT, put

import tidewheel as tw
from tidewheel.engine.halves import Dealer, Rows, SecondHalf
from tidewheel.engine.operator import RESULTS, MemoryStore, Tick
from tidewheel.engine.repeats import RepeatsOperator
from tidewheel.errors import DefinitionError
from tidewheel.model.deduplicate import DUPLICATES
from tidewheel.model.repeats import Repeats, RepeatsReference
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
    repeats = Repeats(("key", "x"), horizon * SECOND)
    reference = RepeatsReference(repeats)
    operator, store, before = RepeatsOperator(repeats, SCHEMA), MemoryStore(), None
    for rows, watermark in batches:
        frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
        kept, again, late = reference.step(frame.to_dicts(), watermark=watermark)
        sound, rejected = operator.judge(frame, before)
        found = operator.step(store, sound, Tick(before, watermark, 0))
        assert as_text(found.get(RESULTS)) == sorted(map(repr, kept))
        assert as_text(found.get(DUPLICATES)) == sorted(map(repr, again))
        assert (0 if rejected is None else rejected.height) == len(late)
        before = max((mark for mark in (before, watermark) if mark is not None), default=None)


def as_text(frame):
    return [] if frame is None else sorted(map(repr, frame.to_dicts()))


def test_rows_behind_the_horizon_are_forgotten():
    operator, store = RepeatsOperator(Repeats(("key",), 5 * SECOND), SCHEMA), MemoryStore()
    frame = pl.DataFrame([("a", 1.0, 3 * SECOND)], schema=SCHEMA, orient="row")
    operator.step(store, frame, Tick(None, 10 * SECOND, 0))
    assert len(store.frames) == 1
    operator.step(store, None, Tick(10 * SECOND, 20 * SECOND, 0))
    assert store.frames == {}


def test_a_window_behind_it_still_gets_late_rows():
    script = (
        Script().add(at="12:00:01", k="a").watermark("12:00:10").add(at="12:00:02", k="a").add(at="12:00:02", k="a")
    )
    found = script.run(lambda rows: rows.deduplicate("event_time", "k", horizon="1 min"))
    assert found == [row(at="12:00:01", k="a"), row(at="12:00:02", k="a")]
    assert found.outputs["duplicates"] == [row(at="12:00:02", k="a")]
    assert found.late == []


def test_two_stages_with_an_output_of_one_name_are_refused():
    def twice(rows):
        once = rows.deduplicate("event_time", "k", horizon="1 s")
        return once.deduplicate("event_time", "k", horizon="1 s")

    with pytest.raises(DefinitionError, match="a stage before it has an output 'duplicates'"):
        Script().add(at="12:00:01", k="a").run(twice)


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
    parcels = {}
    Dealer([flow], 1).deal(parcels, flow.name, [Rows(frame)], None)
    half = SecondHalf([flow], 0, 1)
    out, _ = half.step(_State(), 0, [parcels[0].to_bytes()], Tick(None, None, 0))
    metrics = pl.concat(frame for _, port, frame in out if port == "metrics")
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
