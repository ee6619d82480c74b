"""A window of which all was retracted is as if it had never been."""

from __future__ import annotations

import pickle

import polars as pl
import pytest

from tidewheel.errors import DefinitionError
from tidewheel.model import aggregates as agg
from tidewheel.model import triggers as t
from tidewheel.model import windows as w
from tidewheel.model.aggregates.retractable import WEIGHT, retractable
from tidewheel.model.panes import FINISHED, Element
from tidewheel.model.reference.windows import Reference
from tidewheel.model.windowing import Windowing

TEN = w.tumbling("10 us")
V = {"v": retractable(agg.collect("v"), {"v": pl.String(), WEIGHT: pl.Int8()})}
EAGER = t.after_watermark(early=t.each_batch(), late=t.each_batch())


class Run:
    """Steps of elements like `"a 3"` (the value a of time 3) or `"-a 3"` (retracted); panes in short."""

    def __init__(self, windows, **options):
        options = {"lateness": 50, "allow_loss": True, **options}
        self.reference = Reference(Windowing(windows, V, weighted=True, **options))
        self.late = []

    def __call__(self, *elements, mark=None):
        given = []
        for text in elements:
            value, time = text.split()
            weight = -1 if value.startswith("-") else 1
            given.append(Element(int(time), (), {"v": value.removeprefix("-"), WEIGHT: weight}))
        output = self.reference.step(given, watermark=mark, clock=0)
        self.late += [late.reason for late in output.late]
        return [
            f"{'-' * pane.retraction}{pane.timing.value} {pane.index} {tuple(pane.window)}: {''.join(pane.values['v'])}"
            for pane in output.panes
        ]


@pytest.mark.parametrize("mode", ["delta", "value", "retracting"])
def test_what_nobody_has_seen_gives_nothing(mode):
    run = Run(TEN, mode=mode, trigger=EAGER)
    assert run("a 1", "-a 1", "b 11") == ["EARLY 0 (10, 20): b"]
    assert run(mark=12) == []
    assert run("c 2", "-c 2") == []
    assert run("d 3") == ["ON_TIME 0 (0, 10): d"], "its first"


@pytest.mark.parametrize("mode", ["value", "retracting"])
def test_what_was_shown_is_taken_back_and_nothing_follows(mode):
    run = Run(TEN, mode=mode)
    assert run("a 1", "b 2", mark=12) == ["ON_TIME 0 (0, 10): ab"]
    before = ["-ON_TIME 0 (0, 10): ab"] if mode == "retracting" else []
    assert run("-b 2") == [*before, "LATE 1 (0, 10): a"]
    assert run("-a 1") == ["-LATE 1 (0, 10): a"]
    assert run("c 3", "-c 3") == [], "it is retracted already"
    assert run("d 4") == ["LATE 2 (0, 10): d"], "numbers go on"
    assert run(mark=90) == []


def test_deltas_add_up_to_nothing():
    run = Run(TEN, mode="delta")
    assert run("a 1", mark=12) == ["ON_TIME 0 (0, 10): a"]
    assert run("-a 1") == ["LATE 1 (0, 10): "]


@pytest.mark.parametrize("mode", ["value", "retracting"])
def test_it_is_taken_back_when_the_trigger_fires_or_the_window_closes(mode):
    run = Run(TEN, mode=mode, trigger=t.after_watermark(late=t.after_count(5)))
    assert run("a 1", mark=12) == ["ON_TIME 0 (0, 10): a"]
    assert run("-a 1") == []
    assert run(mark=60) == ["-ON_TIME 0 (0, 10): a"]


def test_a_trigger_that_fires_for_nothing_begins_anew():
    run = Run(TEN, trigger=t.after_count(2))
    assert run("a 1", "-a 1") == []
    assert run("b 2") == []
    assert run("c 3") == ["EARLY 0 (0, 10): bc"], "two, and it is finished"
    assert run("d 4") == []
    assert run.late == [FINISHED]


def test_a_trigger_that_finishes_by_taking_back_is_finished():
    run = Run(TEN, trigger=t.in_order(t.after_count(1), t.after_count(1)))
    assert run("a 1") == ["EARLY 0 (0, 10): a"]
    assert run("-a 1") == ["-EARLY 0 (0, 10): a"]
    assert run("b 2") == []
    assert run.late == [FINISHED]


@pytest.mark.parametrize("mode", ["value", "retracting"])
def test_of_sessions_that_became_one_all_are_retracted(mode):
    run = Run(w.session(gap="5 us"), mode=mode, trigger=EAGER)
    assert run("a 1", "b 7") == ["EARLY 0 (1, 6): a", "EARLY 0 (7, 12): b"]
    assert run("-a 1", "-b 7", "c 4", "-c 4") == ["-EARLY 0 (1, 6): a", "-EARLY 0 (7, 12): b"]
    assert run(mark=30) == []


def test_a_session_that_was_shown_since_it_grew_alone_is_retracted():
    run = Run(w.session(gap="5 us"), mode="value", trigger=EAGER)
    assert run("a 1") == ["EARLY 0 (1, 6): a"]
    assert run("b 4") == ["EARLY 0 (1, 9): ab"], "it has grown: nothing is retracted in this mode"
    assert run("-a 1", "-b 4") == ["-EARLY 0 (1, 9): ab"]


def test_deltas_of_a_session_that_grew_retract_what_it_was():
    run = Run(w.session(gap="5 us"), mode="delta", trigger=EAGER)
    assert run("a 1") == ["EARLY 0 (1, 6): a"]
    assert run("-a 1", "b 4") == ["EARLY 0 (1, 9): b"]


def test_a_session_that_nobody_has_seen_draws_no_others_to_it():
    run = Run(w.session(gap="5 us"), trigger=EAGER)
    assert run("a 1", "-a 1") == []
    assert run("b 4") == ["EARLY 0 (4, 9): b"]


def test_without_weights_an_empty_pane_is_one():
    reference = Reference(Windowing(TEN, {"n": agg.count()}, mode="delta", lateness=50, trigger=EAGER))
    first = reference.step([Element(1, (), {})], watermark=None, clock=0)
    second = reference.step([], watermark=10, clock=0)
    assert [pane.values["n"] for pane in first.panes + second.panes] == [1, 0]


@pytest.mark.parametrize(
    ("retracts", "options"),
    [
        (True, {"mode": "retracting"}),
        (False, {"mode": "delta", "trigger": EAGER}),
        (True, {"lateness": 5}),
        (True, {"trigger": EAGER}),
        (False, {}),
        (False, {"lateness": 5, "trigger": t.after_watermark()}),
        (True, {"lateness": 5, "trigger": t.after_watermark(), "windows": w.session(gap="5 us")}),
        (False, {"windows": w.session(gap="5 us")}),
    ],
)
def test_it_is_known_whether_results_may_be_retracted(retracts, options):
    options = {"windows": TEN, "allow_loss": True, **options}
    windowing = Windowing(aggregates=V, weighted=True, **options)
    assert windowing.retracts == retracts
    assert Windowing(aggregates=V, **options).retracts == (options.get("mode") == "retracting")
    assert pickle.loads(pickle.dumps(windowing)) == windowing
    assert repr(windowing).endswith("weighted=True)")


def test_windows_of_so_many_elements_cannot_follow():
    with pytest.raises(DefinitionError, match="weighted must be False"):
        Windowing(w.count(3), V, weighted=True)
