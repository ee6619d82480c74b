"""What windowing means: the reference interpreter, step by step."""

from __future__ import annotations

import pytest

from tests.model.windowing_support import Run, at
from tidewheel.model import triggers as t
from tidewheel.model import windows as w
from tidewheel.model.panes import (
    ABSURD_TIME,
    END_OF_TIME,
    FINISHED,
    NO_TIME,
    NO_WINDOW,
    START_OF_TIME,
    TOO_LATE,
    Timing,
    Window,
)

TEN = w.tumbling("10 us")
EARLY_AND_LATE = t.after_watermark(early=t.each_batch(), late=t.each_batch())


def test_a_window_comes_out_when_the_watermark_reaches_its_end():
    run = Run(TEN)
    assert run.step(at(1, "a"), at(12, "c"), at(9, "b"), watermark=9) == []
    assert run.step(watermark=10) == [(0, 10, "ab", "ON_TIME 0")]
    assert run.step(watermark=100) == [(10, 20, "c", "ON_TIME 0")]


def test_panes_come_in_the_order_of_their_windows_and_keys():
    run = Run(w.sliding("10 us", every="5 us"))
    panes = run.panes(at(7, key="b"), at(7, key=None), at(12, key="a"), watermark=100)
    assert [(*pane.window, *pane.key) for pane in panes] == [
        (0, 10, None), (0, 10, "b"), (5, 15, None), (5, 15, "a"), (5, 15, "b"), (10, 20, "a"),
    ]  # fmt: skip


def test_an_element_is_late_by_the_watermark_before_its_bundle():
    run = Run(TEN)
    assert run.step(at(1, "a"), watermark=50) == [(0, 10, "a", "ON_TIME 0")]
    assert run.step(at(2, "b"), watermark=50) == []
    assert run.late == [("b", TOO_LATE, 48)]


def test_neither_watermark_nor_clock_ever_falls():
    run = Run(TEN, t.after_watermark(early=t.every("10 us")))
    run.step(at(1, "a"), watermark=5, clock=100)
    assert run.step(at(11, "b"), watermark=2, clock=50) == []
    assert run.step(watermark=None, clock=110) == [(0, 10, "a", "EARLY 0"), (10, 20, "b", "EARLY 0")]


def test_a_window_takes_elements_until_the_watermark_is_at_its_end_and_the_lateness():
    run = Run(TEN, lateness=5)
    run.step(at(1, "a"), watermark=14)
    [late] = run.panes(at(2, "b"))
    assert (late.values["v"], late.timing, late.last) == (["a", "b"], Timing.LATE, False)
    assert run.step(watermark=15) == []
    assert run.step(at(3, "c")) == []
    assert run.late == [("c", TOO_LATE, 12)]
    assert run.reference.live_windows() == []


def test_what_comes_with_the_watermark_that_closes_its_window_is_in_the_last_pane():
    run = Run(TEN, lateness=5)
    run.step(at(1, "a"), watermark=14)
    [pane] = run.panes(at(2, "b"), watermark=15)
    assert (pane.values["v"], pane.last) == (["a", "b"], True)


def test_an_element_that_is_too_late_for_some_windows_is_in_the_others():
    run = Run(w.sliding("10 us", every="5 us"))
    run.step(watermark=11)
    assert run.step(at(7, "a"), watermark=15) == [(5, 15, "a", "ON_TIME 0")]
    assert run.late == []


def test_elements_that_cannot_be_placed_come_out_with_the_reason():
    run = Run(w.sliding("5 us", every="10 us", allow_gaps=True))
    run.step(at(None, "a"), at(END_OF_TIME, "b"), at(START_OF_TIME - 1, "c"), at(7, "d"), at(4, "e"))
    assert run.late == [
        ("a", NO_TIME, None),
        ("b", ABSURD_TIME, None),
        ("c", ABSURD_TIME, None),
        ("d", NO_WINDOW, None),
    ]


def test_what_comes_after_the_trigger_has_finished_is_not_lost_in_silence():
    run = Run(TEN, t.after_count(2))
    assert run.step(at(1, "a"), at(2, "b"), at(3, "c")) == [(0, 10, "abc", "EARLY 0")]
    assert run.step(at(4, "d"), watermark=6) == []
    assert run.step(at(5, "e"), at(7, "f")) == []
    assert run.late == [("d", FINISHED, 0), ("e", FINISHED, 1), ("f", FINISHED, 0)]


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("delta", [["a"], ["b"], [""], ["c"]]),
        ("value", [["a"], ["ab"], ["ab"], ["abc"]]),
        ("retracting", [["a"], ["-a", "ab"], ["-ab", "ab"], ["-ab", "abc"]]),
    ],
)
def test_a_pane_has_what_is_new_or_everything_or_takes_the_last_one_back(mode, wanted):
    run = Run(TEN, EARLY_AND_LATE, mode=mode, lateness=5)
    steps = [run.panes(at(1, "a")), run.panes(at(2, "b")), run.panes(watermark=10), run.panes(at(3, "c"))]
    assert [["-" * pane.retraction + "".join(pane.values["v"]) for pane in panes] for panes in steps] == wanted


def test_a_retraction_is_the_old_pane_word_for_word():
    run = Run(TEN, EARLY_AND_LATE, mode="retracting", timestamp="latest")
    [first] = run.panes(at(3, "a"))
    [old, new] = run.panes(at(5, "b"), watermark=20)
    assert (old.retraction, new.retraction) == (True, False)
    fields = ("key", "window", "values", "index", "timing", "first", "last", "event_time")
    assert [getattr(old, name) for name in fields] == [getattr(first, name) for name in fields]
    assert (first.first, first.last, first.event_time) == (True, False, 3)
    assert (new.first, new.last, new.event_time, new.timing) == (False, True, 5, Timing.ON_TIME)


def test_the_last_pane_is_the_one_after_which_nothing_is_accepted():
    run = Run(TEN, EARLY_AND_LATE, lateness=5)
    found = [run.panes(at(1)), run.panes(watermark=14), run.panes(at(1)), run.panes(at(1), watermark=15)]
    assert [[pane.last for pane in panes] for panes in found] == [[False], [False], [False], [True]]
    finishing = Run(TEN, t.after_count(1))
    assert finishing.panes(at(1))[0].last


def test_what_no_pane_has_shown_comes_out_when_the_window_closes():
    run = Run(TEN, t.after_watermark(late=t.after_count(3)), lateness=5)
    run.step(at(1, "a"), watermark=10)
    assert run.step(at(2, "b"), watermark=14) == []
    assert run.step(watermark=15) == [(0, 10, "ab", "LATE 1")]
    assert run.step(watermark=16) == []
    assert run.reference.live_windows() == []
    silent = Run(TEN, t.never())
    assert silent.step(at(1, "a"), watermark=10) == [(0, 10, "a", "ON_TIME 0")]


def test_a_window_fires_and_closes_with_one_pane():
    run = Run(TEN, t.after_count(1))
    assert run.step(at(1, "a"), watermark=10) == [(0, 10, "a", "ON_TIME 0")]


def test_the_end_of_the_input_closes_all_windows_even_where_late_elements_would_be_accepted():
    run = Run(w.global_(), t.repeatedly(t.after_count(2)), lateness="1 h")
    assert run.step(at(1, "a"), watermark=END_OF_TIME - 1) == []
    [pane] = run.panes(watermark=END_OF_TIME)
    assert (pane.values, pane.timing, pane.last) == ({"v": ["a"]}, Timing.ON_TIME, True)


def test_a_deadline_is_kept_without_new_elements_and_without_a_watermark():
    run = Run(TEN, t.every("10 us"))
    run.step(at(1, "a"), clock=100)
    assert run.step(clock=109) == []
    assert run.step(clock=110) == [(0, 10, "a", "EARLY 0")]
    assert run.step(clock=200) == []


def test_only_the_next_window_of_a_key_gives_early_panes_if_so_asked():
    run = Run(w.sliding("10 us", every="5 us"), EARLY_AND_LATE, early_windows="next")
    assert run.step(at(7, "a")) == [(0, 10, "a", "EARLY 0")]
    assert run.step(at(8, "b"), watermark=10) == [(0, 10, "ab", "ON_TIME 1"), (5, 15, "ab", "EARLY 0")]
    assert [pane.key[0] for pane in run.panes(at(22, "c", key="other"))] == ["other"]
    assert run.step(watermark=15) == [(5, 15, "ab", "ON_TIME 1")]


def test_a_deadline_waits_until_its_window_is_the_next():
    run = Run(w.sliding("10 us", every="5 us"), t.after_watermark(early=t.every("10 us")), early_windows="next")
    run.step(at(7, "a"))
    assert run.step(clock=10) == [(0, 10, "a", "EARLY 0")]
    assert run.step(watermark=10) == [(0, 10, "a", "ON_TIME 1"), (5, 15, "a", "EARLY 0")]


@pytest.mark.parametrize(
    ("mode", "timestamp", "wanted"),
    [
        ("value", "end", [9, 9]),
        ("value", "latest", [5, 6]),
        ("delta", "latest", [5, 6]),
        ("value", "earliest", [4, 4]),
        ("delta", "earliest", [4, 6]),
    ],
)
def test_the_event_time_of_a_pane(mode, timestamp, wanted):
    run = Run(TEN, EARLY_AND_LATE, mode=mode, timestamp=timestamp)
    run.step(watermark=3)
    panes = [*run.panes(at(5), at(2), at(4)), *run.panes(at(6), at(1))]
    assert [pane.event_time for pane in panes] == wanted


def test_elements_behind_the_watermark_and_empty_panes_do_not_decide_the_event_time():
    run = Run(TEN, EARLY_AND_LATE, mode="delta", timestamp="earliest")
    run.step(watermark=8)
    assert [pane.event_time for pane in run.panes(at(2))] == [9]
    latest = Run(TEN, EARLY_AND_LATE, mode="delta", timestamp="latest")
    assert [pane.event_time for pane in [*latest.panes(at(2)), *latest.panes(watermark=10)]] == [2, 9]


def test_custom_windows_may_change_the_earliest_time():
    custom = w.custom(lambda time: [(0, 10)], timestamp=lambda window, time: window.end + time)
    run = Run(custom, timestamp="earliest")
    assert run.panes(at(3), at(2), watermark=10)[0].event_time == 12


def test_completeness_reads_what_is_expected_from_the_elements():
    run = Run(TEN, t.after_watermark(early=t.completeness(50, expected="n")))
    assert run.step(at(1, "a", n=None)) == []
    assert run.step(at(1, "b", n=6)) == []
    assert run.step(at(1, "c", n=2)) == [(0, 10, "abc", "EARLY 0")]
    assert run.step(at(1, "d", n=2), at(1, "e", n=2)) == []
    assert run.step(at(1, "f", n=2)) == [(0, 10, "abcdef", "EARLY 1")]


# Windows that merge -----------------------------------------------------------------------------------------

SESSION = w.session(gap="10 us")


def test_sessions_merge_before_the_trigger_is_asked():
    run = Run(SESSION, t.after_watermark(early=t.after_count(3)))
    assert run.step(at(0, "a")) == []
    assert run.step(at(15, "b")) == []
    assert run.step(at(8, "c")) == [(0, 25, "abc", "EARLY 0")]


def test_a_session_that_grows_begins_again_at_index_0_and_one_that_does_not_goes_on():
    run = Run(SESSION, EARLY_AND_LATE)
    assert run.step(at(0, "a"), at(5, "b")) == [(0, 15, "ab", "EARLY 0")]
    assert run.step(at(3, "c")) == [(0, 15, "abc", "EARLY 1")]
    assert run.step(at(6, "d")) == [(0, 16, "abcd", "EARLY 0")]


def test_retractions_of_vanished_sessions_come_before_the_merged_one_under_their_old_windows():
    run = Run(SESSION, EARLY_AND_LATE, mode="retracting")
    assert run.step(at(0, "a"), at(15, "b")) == [(0, 10, "a", "EARLY 0"), (15, 25, "b", "EARLY 0")]
    assert run.step(at(8, "c")) == [(0, 10, "a", "-EARLY 0"), (15, 25, "b", "-EARLY 0"), (0, 25, "abc", "EARLY 0")]
    assert run.step(watermark=30) == [(0, 25, "abc", "-EARLY 0"), (0, 25, "abc", "ON_TIME 1")]


def test_retractions_wait_through_several_merges_until_there_is_a_pane():
    run = Run(SESSION, t.repeatedly(t.after_count(3)), mode="retracting")
    assert run.step(at(0, "a"), at(0, "b"), at(0, "c")) == [(0, 10, "abc", "EARLY 0")]
    assert run.step(at(5, "d")) == []
    assert run.step(at(12, "e")) == []
    assert run.step(watermark=50) == [(0, 10, "abc", "-EARLY 0"), (0, 22, "abcde", "ON_TIME 0")]


def test_a_delta_of_merged_sessions_has_what_none_of_them_has_shown():
    run = Run(SESSION, t.repeatedly(t.after_count(2)), mode="delta")
    assert run.step(at(0, "a"), at(0, "b")) == [(0, 10, "ab", "EARLY 0")]
    assert run.step(at(15, "c")) == []
    assert run.step(at(8, "d")) == [(0, 25, "cd", "EARLY 0")]


def test_a_session_that_merges_into_finished_ones_only_is_finished():
    run = Run(SESSION, t.after_count(2))
    assert run.step(at(0, "a"), at(0, "b")) == [(0, 10, "ab", "EARLY 0")]
    assert run.step(at(5, "c")) == []
    assert run.late == [("c", FINISHED, 0)]
    assert [(live.window, live.finished) for live in run.reference.live_windows()] == [(Window(0, 15), True)]


def test_a_session_that_merges_a_finished_and_an_unfinished_one_goes_on_and_counts_anew():
    run = Run(SESSION, t.after_count(2), mode="retracting")
    assert run.step(at(0, "a"), at(0, "b"), at(15, "c")) == [(0, 10, "ab", "EARLY 0")]
    assert run.step(at(8, "d")) == [(0, 10, "ab", "-EARLY 0"), (0, 25, "abcd", "EARLY 0")]
    other = Run(SESSION, t.after_count(3))
    assert other.step(at(0, "a"), at(0, "b"), at(0, "c"), at(15, "d")) == [(0, 10, "abc", "EARLY 0")]
    assert other.step(at(8, "e")) == []


def test_a_merge_may_make_windows_shorter():
    def until_the_next(given):
        starts = sorted({window.start for window in given})
        ends = [*starts[1:], max(window.end for window in given)]
        return [
            (Window(start, end), [window for window in given if window.start == start])
            for start, end in zip(starts, ends, strict=True)
        ]

    run = Run(w.custom(lambda time: [(time, 100)], merge=until_the_next), mode="retracting")
    assert run.step(at(10, "a"), at(40, "b"), watermark=20) == []
    assert run.step(at(20, "c"), watermark=40) == [(10, 20, "a", "ON_TIME 0"), (20, 40, "c", "ON_TIME 0")]
    assert run.step(watermark=100) == [(40, 100, "b", "ON_TIME 0")]


# Windows of so many elements --------------------------------------------------------------------------------


def test_count_windows_number_the_elements_by_time_once_the_watermark_has_passed_them():
    run = Run(w.count(2))
    assert run.step(at(5, "c"), at(1, "a"), at(3, "b"), watermark=3) == []
    assert run.step(at(4, "x"), at(3, "y"), watermark=5) == [(1, 4, "ab", "ON_TIME 0"), (3, 5, "yx", "ON_TIME 0")]
    assert run.step(at(4, "late"), watermark=6) == []
    assert run.late == [("late", TOO_LATE, 1)]
    [pane] = run.panes(watermark=END_OF_TIME)
    assert (pane.values["v"], pane.window, pane.event_time, pane.first, pane.last) == (["c"], (5, 6), 5, True, True)


def test_sliding_count_windows_overlap_and_the_end_brings_out_the_incomplete_ones():
    run = Run(w.count(3, every=2))
    elements = [at(time, name) for time, name in enumerate("abcde")]
    assert run.step(*elements, watermark=5) == [(0, 3, "abc", "ON_TIME 0"), (2, 5, "cde", "ON_TIME 0")]
    assert run.step(watermark=END_OF_TIME) == [(4, 5, "e", "ON_TIME 0")]
