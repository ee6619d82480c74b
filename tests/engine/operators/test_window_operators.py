"""The operators in columns against the reference interpreter, on generated windowings and scripts."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.windowing_cases import AGGREGATES, SCHEMA, WINDOWS, on_operator, on_reference, scripts, us, windowings
from tidewheel.engine.operators.operator import RESULTS, BatchTime, MemoryStore
from tidewheel.engine.operators.window import WindowOperator
from tidewheel.engine.operators.windows import state_layout
from tidewheel.model import aggregates as agg
from tidewheel.model import triggers as tr
from tidewheel.model import windows as wn
from tidewheel.model.aggregates.buffered_aggregate import buffered
from tidewheel.model.panes import Element
from tidewheel.model.windowing import Windowing


@settings(max_examples=200, deadline=None)
@given(windowing=windowings(), script=scripts(), parts=st.integers(1, 3))
def test_every_window_and_trigger_gives_the_panes_of_the_reference(windowing, script, parts):
    assert on_operator(windowing, script, cut=lambda rows: parts) == on_reference(windowing, script)


UNALIGNED = st.one_of(
    st.builds(lambda gap: wn.session(gap=us(gap)), st.integers(1, 10)),
    st.just(wn.global_()),
    st.just(wn.custom(lambda time: [(time // 7 * 7, time // 7 * 7 + 9)], name="nines")),
    st.just(wn.custom(lambda time: [(time, time + 5)], merge=wn.session(gap="5 us").merge, name="bursts")),
)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(windowing=windowings(windows=UNALIGNED), script=scripts(), few=st.integers(0, 4))
def test_windows_in_many_frames_give_the_panes_of_the_reference(windowing, script, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_layout, "FEW", few)
        store = MemoryStore()
        assert on_operator(windowing, script, store=store) == on_reference(windowing, script)


def test_retractions_that_wait_stay_while_other_frames_are_touched(monkeypatch):
    monkeypatch.setattr(state_layout, "FEW", 0)
    windowing = Windowing(
        wn.session(gap="6 us"), AGGREGATES, trigger=tr.repeatedly(tr.after_count(2)), mode="retracting", lateness=50
    )

    def bundle(*given):
        return [Element(at, (key,), {"value": 1, "goal": None}) for key, at in given], None, 100

    shown = bundle(("a", 0), ("a", 0), ("a", 10), ("a", 10))
    script = [shown, bundle(("a", 5)), bundle(("b", 0)), bundle(("a", 6))]
    found = on_operator(windowing, script)
    assert found == on_reference(windowing, script)
    assert [pane.retraction for pane in found[-1][0]] == [True, True, False]


class CountingStore(MemoryStore):
    """Counts the rows that are read and written."""

    def __init__(self):
        super().__init__()
        self.rows = 0

    def get(self, name):
        found = super().get(name)
        self.rows += 0 if found is None else found.height
        return found

    def put(self, name, frame):
        self.rows += frame.height
        super().put(name, frame)


@pytest.mark.parametrize("windows", [wn.session(gap="1 h"), wn.global_()], ids=repr)
def test_a_row_touches_few_of_many_windows(windows):
    windowing = Windowing(windows, AGGREGATES, trigger=tr.repeatedly(tr.each_batch()), allow_loss=True)

    def step(store, keys, number):
        rows = pl.DataFrame({"key": keys, "value": [1] * len(keys), "__time": [number] * len(keys)})
        found = operator.step(store, operator.pre_aggregate(rows, None), BatchTime(None, None, number))
        return found[RESULTS].select("key", "n").rows()

    operator = WindowOperator(windowing, ["key"])
    store = CountingStore()
    keys = [f"k{number}" for number in range(20_000)]
    step(store, keys, 0)
    store.rows = 0
    assert step(store, ["k7"], 1) == [("k7", 2)]
    assert store.rows < 20_000 // 16 * 3, "about a frame read, a frame written, and the list of frames"


@pytest.mark.parametrize(
    ("trigger", "lateness", "as_they_are"),
    [
        (tr.after_watermark(early=tr.each_batch()), 0, False),
        (tr.after_watermark(early=tr.each_batch()), 3, True),
        (tr.after_watermark(early=tr.each_batch(), late=tr.each_batch()), 3, False),
        (tr.all_of(tr.after_watermark(), tr.after_count(2)), 0, False),
        (tr.any_of(tr.after_watermark(), tr.after_count(2)), 0, True),
        (tr.repeatedly(tr.any_of(tr.after_watermark(), tr.after_count(2))), 3, False),
    ],
)
def test_rows_are_aggregated_before_the_shuffle_unless_a_window_may_finish_before_it_closes(
    trigger, lateness, as_they_are
):
    windowing = Windowing(wn.tumbling("5 us"), AGGREGATES, trigger=trigger, lateness=lateness, allow_loss=True)
    operator = WindowOperator(windowing, ["key"])
    rows = pl.DataFrame({"key": ["a"] * 3, "value": [1] * 3, "__time": [1, 2, 3]})
    assert operator.pre_aggregate(rows, None).height == (3 if as_they_are else 1)


FINISHING = st.sampled_from(
    [
        tr.after_watermark(early=tr.each_batch()),
        tr.after_watermark(early=tr.repeatedly(tr.after_count(2))),
        tr.all_of(tr.after_watermark(), tr.after_count(2)),
        tr.or_finally(tr.repeatedly(tr.after_count(2)), tr.after_watermark()),
    ]
)


@settings(max_examples=100, deadline=None)
@given(windowing=windowings(triggers=FINISHING), script=scripts(), parts=st.integers(1, 3))
def test_triggers_that_finish_with_the_watermark_give_the_panes_of_the_reference(windowing, script, parts):
    assert on_operator(windowing, script, cut=lambda rows: parts) == on_reference(windowing, script)


@settings(max_examples=100, deadline=None)
@given(
    windowing=windowings(
        triggers=st.sampled_from([tr.default(), tr.after_watermark(late=tr.each_batch())]),
        windows=st.builds(
            lambda every, more: wn.sliding(us(every + more), every=us(every)), st.integers(1, 6), st.integers(0, 20)
        ),
    ),
    script=scripts(odd_times=False),
)
def test_slices_give_the_panes_of_the_reference(windowing, script):
    assert on_operator(windowing, script) == on_reference(windowing, script)


MIDDLE = agg.custom(
    partial={"middle": pl.col("value").median(), "all": pl.len()}, finish=pl.col("middle") * pl.col("all")
)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(
    windowing=windowings(windows=WINDOWS.filter(lambda windows: not windows.merging)),
    script=scripts(),
    parts=st.integers(1, 3),
)
def test_an_aggregate_that_cannot_be_merged_gives_the_panes_of_the_reference(windowing, script, parts):
    kept = replace(windowing, aggregates={**AGGREGATES, "middle": buffered(MIDDLE, SCHEMA)})
    asked = replace(windowing, aggregates={**AGGREGATES, "middle": MIDDLE})
    assert on_operator(kept, script, cut=lambda rows: parts) == on_reference(asked, script)
