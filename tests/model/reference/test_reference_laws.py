"""What holds for windowing whatever the windows, the trigger and the order of the elements."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.model.windowing_support import Run, at
from tidewheel.model import triggers as t
from tidewheel.model import windows as w
from tidewheel.model.panes import END_OF_TIME, TOO_LATE, Timing

TEN = w.tumbling("10 us")
SESSION = w.session(gap="10 us")
EARLY_AND_LATE = t.after_watermark(early=t.each_batch(), late=t.each_batch())

WINDOWS = [TEN, w.sliding("10 us", every="4 us"), SESSION, w.global_(), w.calendar("hour")]
ENDLESS = [
    t.default(),
    t.never(),
    t.each_batch(),
    EARLY_AND_LATE,
    t.repeatedly(t.after_count(3)),
    t.after_watermark(early=t.every("7 us"), late=t.after_count(2)),
    t.repeatedly(t.any_of(t.after_count(4), t.every("5 us", unchanged=True))),
    t.repeatedly(t.all_of(t.after_count(2), t.after_processing_time("3 us"))),
    t.repeatedly(t.in_order(t.after_count(2), t.after_processing_time("5 us"), t.after_watermark())),
    t.repeatedly(t.or_finally(t.after_count(2), t.after_count(5))),
]
FINISHING = [
    t.after_count(3),
    t.after_watermark(early=t.after_count(2)),
    t.or_finally(t.every("5 us"), t.after_count(7)),
]
bundles = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 60), st.sampled_from("pq")), max_size=6),
        st.one_of(st.none(), st.integers(0, 80)),
        st.integers(0, 10),
    ),
    max_size=12,
)


def run_all(bundles, windows, trigger, **options):
    """The panes of each step, numbered elements in, with the end of the input last."""
    run = Run(windows, trigger, **options)
    number, clock, found = 0, 0, []
    for times, watermark, passing in bundles:
        elements = [at(time, number + place, key) for place, (time, key) in enumerate(times)]
        number += len(elements)
        clock += passing
        found.append(run.panes(*elements, watermark=watermark, clock=clock))
    found.append(run.panes(watermark=END_OF_TIME))
    return run, number, found


@given(bundles, st.sampled_from(WINDOWS), st.sampled_from(ENDLESS + FINISHING), st.sampled_from([0, 5, 1_000]))
def test_every_element_is_in_a_pane_or_late_and_never_both(bundles, windows, trigger, lateness):
    run, number, found = run_all(bundles, windows, trigger, lateness=lateness, mode="delta")
    shown = {value for panes in found for pane in panes for value in pane.values["v"]}
    late = [value for value, _, _ in run.late]
    assert len(late) == len(set(late))
    assert not shown & set(late)
    assert shown | set(late) == set(range(number))
    if trigger in ENDLESS:
        assert {reason for _, reason, _ in run.late} <= {TOO_LATE}


@given(
    bundles,
    st.sampled_from([TEN, w.sliding("10 us", every="4 us")]),
    st.sampled_from(ENDLESS),
    st.sampled_from([0, 5]),
)
def test_all_deltas_of_a_window_together_are_its_value(bundles, windows, trigger, lateness):
    _, _, values = run_all(bundles, windows, trigger, lateness=lateness)
    _, _, deltas = run_all(bundles, windows, trigger, lateness=lateness, mode="delta")
    so_far: Counter = Counter()
    total: dict = {}
    for value_panes, delta_panes in zip(values, deltas, strict=True):
        assert [(p.key, p.window, p.index, p.timing, p.last) for p in value_panes] == [
            (p.key, p.window, p.index, p.timing, p.last) for p in delta_panes
        ]
        for value, delta in zip(value_panes, delta_panes, strict=True):
            total.setdefault((value.key, value.window), []).extend(delta.values["v"])
            assert sorted(total[value.key, value.window]) == sorted(value.values["v"])
            assert value.index == so_far[value.key, value.window]
            assert value.first == (value.index == 0)
            so_far[value.key, value.window] += 1


@given(bundles, st.sampled_from(WINDOWS), st.sampled_from(ENDLESS + FINISHING), st.sampled_from([0, 5]))
def test_whoever_follows_retractions_has_each_accepted_element_once_in_each_of_its_windows(
    bundles, windows, trigger, lateness
):
    run, number, found = run_all(bundles, windows, trigger, lateness=lateness, mode="retracting")
    view: dict = {}
    for pane in (pane for panes in found for pane in panes):
        place = (pane.key, pane.window)
        if pane.retraction:
            assert view.pop(place) == pane.values["v"]
        else:
            assert place not in view
            view[place] = pane.values["v"]
    if not windows.merging:
        _, _, plain = run_all(bundles, windows, trigger, lateness=lateness)
        assert view == {(pane.key, pane.window): pane.values["v"] for panes in plain for pane in panes}
    if windows in (TEN, SESSION):
        late = {value for value, _, _ in run.late}
        assert sorted(value for values in view.values() for value in values) == sorted(set(range(number)) - late)


@given(bundles, st.sampled_from([TEN, w.sliding("10 us", every="4 us"), SESSION]), st.sampled_from([0, 5]))
def test_timing_shows_where_the_watermark_was(bundles, windows, lateness):
    _, _, found = run_all(bundles, windows, EARLY_AND_LATE, lateness=lateness)
    watermark = None
    on_time: set = set()
    for panes, mark in zip(found, [*(mark for _, mark, _ in bundles), END_OF_TIME], strict=True):
        watermark = mark if watermark is None else watermark if mark is None else max(watermark, mark)
        for pane in panes:
            passed = watermark is not None and watermark >= pane.window.end
            assert (pane.timing is Timing.EARLY) == (not passed)
            if pane.timing is Timing.ON_TIME and windows is not SESSION:
                assert (pane.key, pane.window) not in on_time
                on_time.add((pane.key, pane.window))


@given(
    bundles,
    st.sampled_from(WINDOWS),
    st.sampled_from(ENDLESS + FINISHING),
    st.sampled_from([0, 5, 1_000]),
    st.sampled_from(["value", "delta", "retracting"]),
)
def test_after_a_pane_that_says_so_no_other_of_its_window_comes(bundles, windows, trigger, lateness, mode):
    _, _, found = run_all(bundles, windows, trigger, lateness=lateness, mode=mode)
    over: set = set()
    for pane in (pane for panes in found for pane in panes):
        place = (pane.key, pane.window)
        if pane.retraction and windows.merging and trigger in FINISHING:
            continue  # a session whose trigger has finished may still become part of another
        assert place not in over
        if pane.last:
            over.add(place)


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from("pq")), max_size=30), st.randoms(use_true_random=False))
def test_for_what_is_not_late_the_default_gives_the_same_in_any_order_and_any_bundles(times, random):
    def final(order, size):
        run = Run(SESSION)
        for start in range(0, len(order), size):
            run.panes(*(at(time, time, key) for time, key in order[start : start + size]))
        panes = run.panes(watermark=END_OF_TIME)
        return [(pane.key, pane.window, sorted(pane.values["v"])) for pane in panes]

    shuffled = random.sample(times, len(times))
    assert final(times, 3) == final(shuffled, 7) == final(sorted(times), 1)


@given(bundles, st.integers(1, 4), st.integers(1, 4))
def test_count_windows_are_the_same_however_the_elements_come(bundles, size, every):
    windows = w.count(max(size, every), every=min(size, every))
    run, number, found = run_all(bundles, windows, t.default())
    late = {value for value, _, _ in run.late}
    elements = [one for times, _, _ in bundles for one in times]
    for key in "pq":
        accepted = [n for n in range(number) if n not in late and elements[n][1] == key]
        ordered = sorted(accepted, key=lambda n: elements[n][0])
        wanted = [ordered[start : start + windows.size] for start in range(0, len(ordered), windows.every)]
        got = [pane.values["v"] for panes in found for pane in panes if pane.key == (key,)]
        assert sorted(got) == sorted(wanted)
