"""The view against a model that takes one result after the other."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.serve.layers.layer import Cell, Layer, Value
from tidewheel.serve.view.view import LayerView, View

LAYER = Layer(topic="analytics.x", key=["key"], value=Value(field="n"), expiry=10, period=5, filters=["key"])
EXPIRY = 10_000
PERIOD = 5_000


def rows(*results):
    """Prepared rows of (key, event time, arrival, window end or None, retraction, value). Those of windows are early if
    their value is below 3."""
    names = ["@k", "@t", "@arrival", "@end", "@back", "n"]
    frame = pl.DataFrame([dict(zip(names, each, strict=True)) for each in results], schema=_SCHEMA)
    return frame.with_columns(
        pl.col("@k").alias("key"),
        pl.when(pl.col("@end").is_not_null()).then(pl.col("@end") - 30_000).alias("@start"),
        pl.when(pl.col("@end").is_not_null() & (pl.col("n") < 3)).then(pl.lit("EARLY")).alias("@timing"),
        pl.lit(None, pl.String).alias("@place"),
        pl.lit(None, pl.String).alias("@to"),
        pl.lit(None, pl.Float64).alias("@heading"),
        pl.lit(None, pl.Float64).alias("@lon"),
        pl.lit(None, pl.Float64).alias("@lat"),
    )


_SCHEMA = {
    "@k": pl.String,
    "@t": pl.Int64,
    "@arrival": pl.Int64,
    "@end": pl.Int64,
    "@back": pl.Boolean,
    "n": pl.Int64,
}


@dataclass
class Model:
    """What is shown, one result at a time, as the rules say it."""

    shown: dict = field(default_factory=dict)

    def apply(self, results, now, watermark):
        self.expire(now)
        for key, time, arrival, end, back, value in results:
            if arrival + EXPIRY <= now:
                continue  # it has expired before anybody saw it
            early = end is not None and value < 3
            if early and watermark is not None and end > watermark + PERIOD:
                continue  # of a window that is not the next to end
            here = self.shown.get(key)
            if back:
                if here is not None and (here[1] == end if end is not None or here[1] is not None else here[0] == time):
                    del self.shown[key]
            elif here is None or time >= here[0]:
                self.shown[key] = (time, end, arrival + EXPIRY, value)

    def expire(self, now):
        self.shown = {key: entry for key, entry in self.shown.items() if entry[2] > now}


results = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 4).map(lambda n: n * 1_000),
        st.integers(-12_000, 0),  # how long ago it came
        st.none() | st.integers(0, 4).map(lambda n: n * 5_000),
        st.booleans(),
        st.integers(0, 3),
    ),
    max_size=8,
)
steps = st.lists(
    st.tuples(st.integers(0, 6_000), results, st.none() | st.integers(0, 20_000), st.booleans()), max_size=12
)


def content(view):
    return {key: (item.t, json.loads(item.raw)["v"], item.expires) for key, item in view.items.items()}


@given(steps)
def test_the_view_is_what_the_rules_make_of_each_result_in_turn(steps):
    view, model, now = LayerView(LAYER), Model(), 0
    client: dict = {}
    for passed, found, watermark, look in steps:
        now += passed
        batch = [(key, time, now + ago, end, back, value) for key, time, ago, end, back, value in found]
        if batch:
            view.apply(rows(*batch), now=now, watermark=watermark)
            model.apply(batch, now, watermark)
        else:
            view.expire(now)
            model.expire(now)
        assert content(view) == {key: (time, value, expires) for key, (time, _, expires, value) in model.shown.items()}
        if look:  # who only takes the changes knows as much
            for old, new in view.changes():
                assert (None if old is None else old.raw) == client.pop((new or old).k, None)
                if new is not None:
                    client[new.k] = new.raw
            assert client == {key: item.raw for key, item in view.items.items()}


@given(steps)
def test_it_does_not_matter_how_results_are_divided_into_blocks(steps):
    whole, single = LayerView(LAYER), LayerView(LAYER)
    now = 0
    for passed, found, watermark, _ in steps:
        now += passed
        batch = [(key, time, now + ago, end, back, value) for key, time, ago, end, back, value in found]
        if batch:
            whole.apply(rows(*batch), now=now, watermark=watermark)
        for each in batch:
            single.apply(rows(each), now=now, watermark=watermark)
        whole.expire(now)
        single.expire(now)
        assert content(whole) == content(single)


def test_results_become_firm_though_panes_of_the_window_after_came_before():
    view = LayerView(LAYER)
    seen = []
    for key_time, end, value, watermark in [
        (9_999, 10_000, 1, 6_000),  # an early pane of the next window
        (14_999, 15_000, 2, 6_000),  # and of the one after, from the same event
        (9_999, 10_000, 3, 10_000),  # on time: the window after is next from here on
        (14_999, 15_000, 2, 10_500),  # what comes of it now is shown
    ]:
        view.apply(rows(("a", key_time, watermark, end, False, value)), now=watermark, watermark=watermark)
        seen.append(content(view)["a"][:2])
    assert seen == [(9_999, 1), (9_999, 1), (9_999, 3), (14_999, 2)]


def test_a_faster_replay_expires_faster():
    view = View(speed=4.0)
    view.add(LAYER)
    view["x"].apply(rows(("a", 1, 100_000, None, False, 1)), now=100_000)
    view.expire(102_499)
    assert len(view) == 1
    view.expire(102_500)
    assert len(view) == 0


def test_a_key_with_many_results_is_looked_at_once_until_it_expires():
    view = LayerView(LAYER)
    for time in range(1_000):
        view.apply(rows(("a", time, time, None, False, 1), ("b", time, time, None, False, 1)), now=time)
    assert len(view._due) == 2  # the memory of what is shown does not grow with what was
    view.expire(EXPIRY + 998)
    assert set(view.items) == {"a", "b"}
    view.expire(EXPIRY + 999)
    assert (view.items, view._due, view._looked_at) == ({}, [], {})


def test_a_cleared_view_reports_that_all_is_gone():
    view = LayerView(Layer(topic="analytics.x", geometry=Cell(), show="cells", expiry=10))
    view.apply(rows(("a", 1, 0, None, False, 1), ("b", 1, 0, None, False, 1)), now=0)
    view.changes()
    view.clear()
    assert sorted((old.k, new) for old, new in view.changes()) == [("a", None), ("b", None)]
    assert view.changes() == []
