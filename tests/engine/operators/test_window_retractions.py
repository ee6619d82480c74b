"""Windows over elements that may be retracted: a window of which all was retracted is as if it had never been, in the
reference and in the operators."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.windowing_cases import AGGREGATES, SCHEMA, Step, on_operator, on_reference, scripts, us, windowings
from tidewheel.engine.operators.windows import state_layout
from tidewheel.model import triggers as tr
from tidewheel.model import windows as wn
from tidewheel.model.aggregates.retractable import WEIGHT, retractable
from tidewheel.model.panes import END_OF_TIME, Element, Pane, Window
from tidewheel.model.windowing import Windowing

pytestmark = pytest.mark.long

WEIGHTED = {name: retractable(given, SCHEMA | {WEIGHT: pl.Int8}) for name, given in AGGREGATES.items()}
EAGER = tr.after_watermark(early=tr.each_batch(), late=tr.each_batch())
ENDLESS = [
    tr.default(),
    tr.each_batch(),
    EAGER,
    tr.repeatedly(tr.after_count(3)),
    tr.after_watermark(early=tr.every("3 us"), late=tr.after_count(2)),
]
GRIDS = [
    wn.tumbling("10 us"),
    wn.sliding("10 us", every="4 us"),
    wn.sliding("12 us", every="4 us").staggered(),
    wn.global_(),
]


def weighted(element: Element, weight: int) -> Element:
    return replace(element, values={**element.values, WEIGHT: weight})


@st.composite
def taken_back(draw: Any, *, odd_times: bool = True, ends: bool = False) -> list[Step]:
    """A script in which elements that came are retracted, in the same step or a later one, often all of a window's."""
    steps: list[Step] = []
    there: list[Element] = []
    for elements, watermark, clock in draw(scripts(odd_times=odd_times)):
        there += elements
        gone = [number for number in reversed(range(len(there))) if draw(st.integers(0, 2)) == 0]
        given = [weighted(element, 1) for element in elements]
        given += [weighted(there.pop(number), -1) for number in gone]
        steps.append((given, watermark, clock))
    return [*steps, ([], END_OF_TIME, steps[-1][2] + 1)] if ends else steps


def over(windowing: Windowing) -> Windowing:
    return replace(windowing, aggregates=WEIGHTED, weighted=True)


@settings(max_examples=120, deadline=None)
@given(windowing=windowings(), script=taken_back(), parts=st.integers(1, 3), few=st.integers(0, 9))
def test_the_operators_give_the_panes_of_the_reference(windowing, script, parts, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_layout, "FEW", few * 1_000)
        found = on_operator(over(windowing), script, cut=lambda rows: parts)
    assert found == on_reference(over(windowing), script)


@settings(max_examples=60, deadline=None)
@given(
    windowing=windowings(
        triggers=st.sampled_from([tr.default(), tr.repeatedly(tr.after_watermark())]),
        windows=st.builds(
            lambda every, more: wn.sliding(us(every + more), every=us(every)), st.integers(1, 6), st.integers(0, 20)
        ),
    ).map(lambda windowing: replace(windowing, timestamp="end")),
    script=taken_back(odd_times=False),
)
def test_slices_give_the_panes_of_the_reference(windowing, script):
    assert on_operator(over(windowing), script) == on_reference(over(windowing), script)


def panes_of(windowing: Windowing, script: list[Step]) -> list[Pane]:
    return [pane for panes, _ in on_operator(windowing, script) for pane in panes]


def left(panes: list[Pane]) -> dict[tuple[Any, Window], dict[str, Any]]:
    """What a reader is left with that keeps the last result of each window; those of one window are numbered, and a
    retraction is of the last."""
    table: dict[tuple[Any, Window], dict[str, Any]] = {}
    count: Counter = Counter()
    for pane in panes:
        place = (pane.key, pane.window)
        if pane.retraction:
            assert table.pop(place) == pane.values
            assert (pane.index, pane.last) == (count[place] - 1, False)
        else:
            table[place] = dict(pane.values)
            assert pane.index == count[place]
            count[place] += 1
    return table


@settings(max_examples=25, deadline=None)
@given(taken_back(odd_times=False, ends=True), st.sampled_from(GRIDS), st.sampled_from(ENDLESS))
def test_the_final_table_is_that_of_what_was_not_retracted(script, windows, trigger):
    came: Counter = Counter()
    for elements, _, _ in script:
        for element in elements:
            came[element.time, element.key, element.values["value"]] += element.values[WEIGHT]
    expected: dict[Any, list[int]] = {}
    for (time, key, value), number in came.items():
        for window in windows.assign(time, key):
            expected.setdefault((key, window), []).extend([value] * number)
    whole = {place: sorted(values) for place, values in expected.items() if values}
    windowing = Windowing(windows, WEIGHTED, trigger=trigger, lateness=END_OF_TIME, weighted=True)
    for mode in ("value", "retracting"):
        table = left(panes_of(replace(windowing, mode=mode), script))
        assert {place: values["values"] for place, values in table.items()} == whole
        assert all(values["n"] == len(values["values"]) > 0 for values in table.values())
    deltas: Counter = Counter()
    for pane in panes_of(replace(windowing, mode="delta"), script):
        assert not pane.retraction
        deltas[pane.key, pane.window] += pane.values["n"]
    assert +deltas == Counter({place: len(values) for place, values in whole.items()})


@settings(max_examples=25, deadline=None)
@given(
    taken_back(odd_times=False, ends=True), st.sampled_from(GRIDS), st.sampled_from(ENDLESS), st.sampled_from([0, 3])
)
def test_deltas_values_and_retractions_add_up_to_the_same(script, windows, trigger, lateness):
    windowing = Windowing(windows, WEIGHTED, trigger=trigger, lateness=lateness, weighted=True, allow_loss=True)
    table = left(panes_of(windowing, script))
    assert left(panes_of(replace(windowing, mode="retracting"), script)) == table
    deltas: Counter = Counter()
    for pane in panes_of(replace(windowing, mode="delta"), script):
        deltas[pane.key, pane.window] += pane.values["n"]
    assert +deltas == Counter({place: values["n"] for place, values in table.items()})
