"""What is said of a query is what it does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from windowing_cases import AGGREGATES, TRIGGERS

import tidewheel as tw
from tidewheel.apps.transit.transit_pb2 import VehiclePosition
from tidewheel.model import triggers as tr
from tidewheel.model import windows as wn
from tidewheel.model.panes import Element
from tidewheel.model.reference import Reference
from tidewheel.model.windowing import Windowing

TEN = 10


@settings(max_examples=300)
@given(trigger=TRIGGERS, counts=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_trigger_that_is_on_time_fires_when_the_watermark_passes_unless_it_has_finished(trigger, counts):
    reference = Reference(Windowing(wn.fixed(TEN), AGGREGATES, trigger=trigger, lateness=5, allow_loss=True))
    panes = []
    for number, count in enumerate(counts):
        elements = [Element(1, (), {"value": 1, "goal": None})] * count
        panes += reference.step(elements, watermark=None, clock=number).panes
    finished = any(pane.last for pane in panes)
    found = reference.step([], watermark=TEN, clock=len(counts)).panes
    if trigger.fires_on_time and not finished:
        assert len(found) == 1


def when(log, trigger, **options):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    window = moves.window(wn.fixed("10 s"), **options).trigger(trigger, allow_loss=True)
    [line] = [line for line in window.aggregate(n=tw.agg.count()).explain().splitlines() if "When:" in line]
    return line.partition(f"{trigger!r}: ")[2]


@pytest.mark.parametrize(
    ("trigger", "lateness", "said"),
    [
        (tr.default(), "0 s", "a result in the batch in which the watermark passes the window's end; none after that."),
        (
            tr.repeatedly(tr.after_count(100)),
            "1 h",
            "results when it fires; the rest in the batch in which the watermark is 1 h past the window's end.",
        ),
        (
            tr.never(),
            "0 s",
            "everything in the batch in which the watermark passes the window's end.",
        ),
        (
            tr.after_count(3),
            "0 s",
            "results when it fires; once it has finished, rows go to the output late; the rest in the batch in which "
            "the watermark passes the window's end.",
        ),
        (
            tr.after_watermark(early=tr.each_batch(), late=tr.each_batch()),
            "1 h",
            "early results before the watermark passes the window; a result in the batch in which the watermark passes "
            "the window's end; later ones when late rows come.",
        ),
    ],
    ids=repr,
)
def test_it_is_said_when_results_come(log, trigger, lateness, said):
    assert when(log, trigger, lateness=lateness) == said


@pytest.mark.parametrize(
    ("mode", "lateness", "noted"), [("value", "1 h", True), ("value", 0, False), ("delta", "1 h", False)]
)
def test_it_is_said_that_a_window_behind_another_sees_results_that_are_replaced(log, mode, lateness, noted):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    first = moves.window(wn.fixed("10 s"), lateness=lateness).accumulate(mode).aggregate(n=tw.agg.count())
    text = first.window(wn.fixed("1 min")).aggregate(n=tw.agg.sum("n")).explain()
    assert ("Note: the next stage sees every result of a window" in text) == noted
