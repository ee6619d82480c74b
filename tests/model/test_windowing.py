from __future__ import annotations

import pickle

import pytest

from tests.model.windowing_support import Values
from tidewheel.errors import DefinitionError
from tidewheel.model import triggers as t
from tidewheel.model import windows as w
from tidewheel.model.panes import END_OF_TIME, Window
from tidewheel.model.windowing import Windowing

TEN = w.tumbling("10 s")
V = {"v": Values()}


@pytest.mark.parametrize(
    "trigger",
    [
        t.default(),
        t.after_watermark(),
        t.after_watermark(early=t.after_count(3)),
        t.never(),
        t.repeatedly(t.after_count(1)),
        t.all_of(t.after_count(3), t.after_watermark()),
        t.in_order(t.after_count(3), t.after_watermark()),
        t.or_finally(t.every("1 s"), t.after_watermark()),
    ],
    ids=repr,
)
def test_without_lateness_a_trigger_may_finish_with_the_watermark(trigger):
    assert Windowing(TEN, V, trigger=trigger).trigger == trigger


@pytest.mark.parametrize(
    "trigger",
    [
        t.after_count(3),
        t.after_processing_time("1 s"),
        t.completeness(90, expected=10),
        t.any_of(t.after_count(3), t.after_watermark()),
        t.in_order(t.after_count(3), t.after_count(3)),
        t.or_finally(t.default(), t.after_count(3)),
    ],
    ids=repr,
)
def test_a_trigger_that_finishes_early_is_refused(trigger):
    with pytest.raises(DefinitionError, match=r"finishes before the window is over.*repeatedly.*allow_loss=True"):
        Windowing(TEN, V, trigger=trigger)
    assert Windowing(TEN, V, trigger=trigger, allow_loss=True).trigger == trigger


@pytest.mark.parametrize(
    "trigger",
    [
        t.after_watermark(),
        t.after_watermark(early=t.each_batch()),
        t.all_of(t.after_count(3), t.after_watermark()),
        t.in_order(t.after_watermark(), t.after_count(3)),
    ],
    ids=repr,
)
def test_with_lateness_a_trigger_that_finishes_with_the_watermark_is_refused(trigger):
    with pytest.raises(DefinitionError, match=r"lateness of 5 s would not be shown.*late=each_batch\(\).*allow_loss"):
        Windowing(TEN, V, trigger=trigger, lateness=5_000_000)
    assert Windowing(TEN, V, trigger=trigger, lateness=5_000_000, allow_loss=True).lateness == 5_000_000


@pytest.mark.parametrize(
    "trigger", [t.default(), t.never(), t.each_batch(), t.after_watermark(late=t.after_count(3))], ids=repr
)
def test_with_lateness_a_trigger_that_goes_on_is_taken(trigger):
    assert Windowing(TEN, V, trigger=trigger, lateness="5 s").lateness == 5_000_000


@pytest.mark.parametrize(
    "options",
    [
        {"trigger": t.each_batch()},
        {"lateness": 1},
        {"mode": "delta"},
        {"mode": "retracting"},
        {"early_windows": "next"},
        {"timestamp": "earliest"},
    ],
    ids=repr,
)
def test_count_windows_take_no_options_that_would_mean_nothing(options):
    [name] = options
    with pytest.raises(DefinitionError, match=rf"count\(3\) gives each window once.*{name} must be"):
        Windowing(w.count(3), V, **options)


def test_aggregates_that_cannot_be_merged_are_refused_where_windows_merge():
    with pytest.raises(DefinitionError, match=r"aggregate v: .* cannot be merged, but session\(gap='1 s'\) merges"):
        Windowing(w.session(gap="1 s"), {"v": Values(mergeable=False)})
    assert Windowing(TEN, {"v": Values(mergeable=False)}).aggregates == {"v": Values(mergeable=False)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"windows": "10 s"}, r"expected windows like windows.tumbling\(\"10 s\"\), got '10 s'"),
        ({"aggregates": {}}, "at least one is needed"),
        ({"aggregates": {"v": 3}}, "aggregate v: expected an aggregate like"),
        ({"aggregates": {"__v": Values()}}, "does not begin with __, got '__v'"),
        ({"trigger": None}, "expected a trigger like"),
        ({"mode": "sum"}, "mode must be one of delta, value, retracting, got 'sum'"),
        ({"early_windows": 1}, "early_windows must be one of all, next, got 1"),
        ({"timestamp": "first"}, "timestamp must be one of end, earliest, latest, got 'first'"),
        ({"lateness": "-1 s"}, "lateness must not be negative, got -1 s"),
        ({"lateness": None}, 'lateness must be a duration like "5 s", got None'),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_defined(given, message):
    with pytest.raises(DefinitionError, match=message):
        Windowing(**{"windows": TEN, "aggregates": V, **given})


def test_the_end_of_the_input_closes_every_window():
    windowing = Windowing(w.global_(), V, lateness="1 d")
    assert windowing.closes_at(Window(0, 10)) == 10 + 86_400_000_000
    assert windowing.closes_at(Window(0, END_OF_TIME)) == END_OF_TIME


def test_a_windowing_can_be_sent_to_another_process_and_its_repr_typed_back():
    windowing = Windowing(
        w.sliding("10 s", every="5 s"),
        V,
        trigger=t.after_watermark(early=t.every("1 s"), late=t.each_batch()),
        mode="retracting",
        lateness="5 s",
        early_windows="next",
        timestamp="latest",
        allow_loss=True,
    )
    assert pickle.loads(pickle.dumps(windowing)) == windowing
    names = {**vars(w), **vars(t), "Windowing": Windowing, "Values": Values}
    assert eval(repr(windowing), names) == windowing
