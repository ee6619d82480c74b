"""Triggers as state machines; how they play together with windows is in reference/test_reference."""

from __future__ import annotations

import json

import pytest

from tidewheel.errors import DefinitionError
from tidewheel.model import triggers as t


class Asked:
    """A trigger in one window that never forgets: `add` and `at` say whether it fires, as a step would."""

    def __init__(self, trigger):
        self.trigger = trigger
        self.state = trigger.start()
        self.clock = 0
        self.passed = False
        self.finished = False

    def add(self, count=1, **expected):
        return self._ask(count, expected)

    def at(self, clock=None, *, passed=None):
        self.clock = self.clock if clock is None else clock
        self.passed = self.passed if passed is None else passed
        return self._ask(0, {})

    def _ask(self, count, expected):
        if self.finished:
            return False
        if count:
            self.trigger.on_elements(self.state, count, self.clock, expected)
        at = {"passed": self.passed, "clock": self.clock, "touched": count > 0}
        fires = self.trigger.should_fire(self.state, **at)
        if fires:
            self.finished = self.trigger.on_fire(self.state, **at)
        self.state = json.loads(json.dumps(self.state))  # what is remembered can be written down
        return fires


def adds(trigger, *counts):
    asked = Asked(trigger)
    return [asked.add(count) for count in counts]


def test_never_and_each_batch():
    assert adds(t.never(), 1, 5) == [False, False]
    asked = Asked(t.each_batch())
    assert [asked.add(), asked.at(), asked.add(3)] == [True, False, True]


def test_a_count_fires_once_for_a_bundle_and_is_finished():
    assert adds(t.after_count(2), 1, 4, 2) == [False, True, False]
    assert adds(t.repeatedly(t.after_count(2)), 1, 4, 1, 1) == [False, True, False, True]


def test_processing_time_counts_from_the_first_element_of_the_pane():
    asked = Asked(t.every("10 us"))
    assert not asked.at(100)
    assert not asked.add()
    asked.clock = 105
    assert not asked.add()
    assert not asked.at(109)
    assert asked.at(110)
    assert not asked.at(200)
    assert not asked.add()
    assert asked.trigger.deadline(asked.state) == 210


def test_an_aligned_deadline_is_strictly_later_and_the_delay_comes_on_top():
    aligned = t.after_processing_time(period="10 us", offset="3 us")
    assert [aligned.deadline_of(clock) for clock in (2, 3, 12, 13)] == [3, 13, 13, 23]
    assert t.after_processing_time("5 us", period="10 us", offset="3 us").deadline_of(3) == 18


def test_unchanged_fires_again_without_new_elements():
    asked = Asked(t.every("10 us", unchanged=True))
    assert not asked.at(50)
    asked.add()
    assert [asked.at(60), asked.at(65), asked.at(70), asked.at(95), asked.at(105)] == [True, False, True, True, True]


def test_completeness_fires_at_its_part_of_the_highest_expectation():
    asked = Asked(t.completeness(50, expected="all"))
    assert not asked.add(1)
    assert not asked.add(2, all=10)
    assert not asked.add(1, all=4)
    assert asked.add(1)
    assert adds(t.completeness(100, expected=3), 2, 1) == [False, True]
    assert t.any_of(t.completeness(1, expected="b"), t.completeness(1, expected="a")).inputs == ("a", "b")


def test_after_watermark_repeats_early_and_late_by_themselves():
    asked = Asked(t.after_watermark(early=t.after_count(2), late=t.after_count(3)))
    assert [asked.add(), asked.add(), asked.add(), asked.add(), asked.add()] == [False, True, False, True, False]
    assert asked.at(passed=True)
    assert [asked.add(), asked.add(), asked.add(), asked.add(3)] == [False, False, True, True]
    assert not asked.finished


def test_after_watermark_without_late_is_finished_by_the_watermark():
    asked = Asked(t.after_watermark(early=t.each_batch()))
    assert asked.add()
    assert not asked.finished
    assert asked.at(passed=True)
    assert asked.finished


def test_the_default_fires_for_the_watermark_and_then_for_whatever_comes():
    asked = Asked(t.default())
    assert [asked.add(), asked.at(passed=True), asked.add(), asked.add()] == [False, True, True, True]


def test_any_of_finishes_with_the_first_and_all_of_needs_all_at_once():
    assert adds(t.any_of(t.after_count(3), t.after_count(2)), 1, 1, 1) == [False, True, False]
    both = Asked(t.all_of(t.after_count(2), t.each_batch(), t.after_processing_time("10 us")))
    assert not both.add(2)
    assert not both.at(10)  # the batch that touched it was an earlier one
    assert both.add()
    assert both.finished


def test_in_order_counts_only_for_the_one_whose_turn_it_is():
    trigger = t.in_order(t.after_count(2), t.after_count(3))
    assert adds(trigger, 1, 3, 1, 1, 1, 5) == [False, True, False, False, True, False]


def test_or_finally_repeats_main_until_last_fires():
    assert adds(t.or_finally(t.after_count(2), t.after_count(5)), 1, 1, 1, 1, 1, 1, 1) == [
        False, True, False, True, True, False, False,
    ]  # fmt: skip


def test_the_deadline_is_the_earliest_that_is_waited_for():
    trigger = t.or_finally(t.any_of(t.every("10 us"), t.every("5 us")), t.in_order(t.after_count(1), t.every("1 us")))
    state = trigger.start()
    assert trigger.deadline(state) is None
    trigger.on_elements(state, 1, 100, {})
    assert trigger.deadline(state) == 105


def merged(trigger, *asked, passed=False):
    result = Asked(trigger)
    result.state = trigger.merge([one.state for one in asked], passed=passed)
    result.passed = passed
    return result


def test_counts_of_merged_windows_add_up_and_the_earliest_deadline_stays():
    trigger = t.any_of(t.after_count(5), t.every("10 us"))
    one, other = Asked(trigger), Asked(trigger)
    one.add(2)
    other.clock = 3
    other.add(2)
    result = merged(trigger, other, one)
    assert trigger.deadline(result.state) == 10
    assert result.add()


def test_the_furthest_of_merged_sequences_counts():
    trigger = t.in_order(t.after_count(2), t.after_count(2))
    one, other = Asked(trigger), Asked(trigger)
    assert one.add(2)
    one.add()
    other.add()
    result = merged(trigger, one, other)
    assert result.add()
    assert result.finished


@pytest.mark.parametrize(
    ("both_late", "passed", "late"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_merged_window_is_late_only_if_all_were_and_its_end_is_passed(both_late, passed, late):
    trigger = t.after_watermark(early=t.after_count(9), late=t.after_count(2))
    one, other = Asked(trigger), Asked(trigger)
    assert one.at(passed=True)
    one.add()
    if both_late:
        assert other.at(passed=True)
    result = merged(trigger, one, other, passed=passed)
    assert result.state["late"] is late
    if late:
        assert result.add()


def test_completeness_of_merged_windows_takes_the_highest_expectation():
    trigger = t.completeness(100, expected="n")
    one, other = Asked(trigger), Asked(trigger)
    one.add(1, n=3)
    other.add(1, n=2)
    result = merged(trigger, one, other)
    assert not result.at()
    assert result.add()


FACTS = {  # fires early, can finish early, can finish at all, fires after the pane for the watermark
    "never()": "....",
    "each_batch()": "e..l",
    "after_count(1)": "emf.",
    "after_processing_time(delay='1 s')": "emf.",
    "completeness(50, expected=10)": "emf.",
    "after_watermark()": "..f.",
    "after_watermark(early=after_count(1))": "e.f.",
    "after_watermark(late=after_count(1))": "...l",
    "after_watermark(late=never())": "....",
    "default()": "...l",
    "repeatedly(after_count(1))": "e..l",
    "any_of(after_count(1), after_watermark())": "emf.",
    "any_of(after_watermark())": "..f.",
    "all_of(after_count(1), after_watermark())": "..f.",
    "all_of(after_count(1), after_count(2))": "emf.",
    "in_order(after_count(1), after_count(2))": "emfl",
    "in_order(after_count(1), after_watermark())": "e.fl",
    "in_order(after_count(1), each_batch())": "e..l",
    "or_finally(after_count(1), after_watermark())": "e.fl",
    "or_finally(after_watermark(), after_count(1))": "emfl",
}


@pytest.mark.parametrize(("text", "facts"), FACTS.items())
def test_what_is_known_of_a_trigger_before_it_runs(text, facts):
    trigger = eval(text, vars(t))
    reported = (trigger.fires_early, trigger.may_finish, trigger.finishes, trigger.fires_late)
    assert "".join(letter if fact else "." for letter, fact in zip("emfl", reported, strict=True)) == facts


@pytest.mark.parametrize("text", [*FACTS, "after_processing_time(period='1 min', offset='5 s', unchanged=True)"])
def test_the_repr_can_be_typed_back(text):
    assert repr(eval(text, vars(t))) == text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: t.after_count(0), "after_count: the count must be a whole number from 1, got 0"),
        (lambda: t.after_count(1.5), "got 1.5"),
        (lambda: t.after_processing_time("-1 s"), "the delay must not be negative, got -1 s"),
        (lambda: t.after_processing_time(period=0), "the period must be longer than nothing"),
        (lambda: t.after_processing_time(offset="1 s"), "pass a period too"),
        (lambda: t.after_processing_time(unchanged=True), "would fire without end"),
        (lambda: t.every("-1 s"), "must not be negative"),
        (lambda: t.every(0, aligned=True), "the period must be longer than nothing"),
        (lambda: t.completeness(0, expected=10), "percent must be above 0 and at most 100, got 0"),
        (lambda: t.completeness(101, expected=10), "got 101"),
        (lambda: t.completeness(50, expected=0), "at least 1 element must be expected"),
        (lambda: t.completeness(50, expected=None), "a number of elements or the name of a column, got None"),
        (lambda: t.any_of(), "any_of needs at least one trigger, got none"),
        (lambda: t.all_of(), "all_of needs"),
        (lambda: t.in_order(), "in_order needs"),
        (lambda: t.any_of(t.never(), 3), "any_of: argument 2 must be a trigger like .*, got 3"),
        (lambda: t.repeatedly("1 s"), "repeatedly: its argument must be a trigger"),
        (lambda: t.after_watermark(early=3), "after_watermark: early must be a trigger"),
        (lambda: t.or_finally(t.never(), None), "or_finally: last must be a trigger"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_defined(wrong, message):
    with pytest.raises(DefinitionError, match=message):
        wrong()
