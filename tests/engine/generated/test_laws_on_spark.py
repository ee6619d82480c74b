"""What holds whatever the windows, the trigger and the order of the events, in a running query of Spark: sessions, and
windows of functions with and without a merge, beside those of a grid.

The measure is a plain group-by, or a run of events without a gap: nothing that knows of streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.engine.generated.test_generated_on_spark import drawn, plain
from tests.engine.generated.test_laws import (
    EARLY_AND_LATE,
    ENDLESS,
    FOR_EVER,
    befores,
    expected_of,
    last_values,
    windowing,
)
from tests.engine.windowing_cases import BURSTS, DAYS, SCHEMA, Step, frame_of, scripts
from tests.support.on_spark import run_cases
from tidewheel.engine.operators.window_operation import WindowOperation
from tidewheel.engine.runtime.flow import Stage
from tidewheel.model import triggers as tr
from tidewheel.model import windows as wn
from tidewheel.model.panes import END_OF_TIME, Element, Pane, Window

pytestmark = pytest.mark.long

GAP = 5
SESSIONS = wn.session(gap=f"{GAP} us")
MODES = ("delta", "value", "retracting")
EVENT_BY_EVENT = [tr.each_batch(), EARLY_AND_LATE]


@dataclass(frozen=True)
class Ran:
    """A windowing in one mode over a script: what came of each step."""

    windows: Any
    trigger: Any
    lateness: int
    mode: str
    script: list[Step]
    steps: list[tuple[list[Pane], list[tuple[Any, ...]]]]

    @property
    def panes(self) -> list[Pane]:
        return [pane for panes, _ in self.steps for pane in panes]

    @property
    def late(self) -> set[int]:
        return {row[2] for _, late in self.steps for row in late}


def numbered(script: list[Step]) -> list[Step]:
    """The same with an end, and a value of its own for each event."""
    numbers = iter(range(1_000))
    steps = [
        ([replace(one, values={**one.values, "value": next(numbers)}) for one in elements], watermark, clock)
        for elements, watermark, clock in script
    ]
    return [*steps, ([], END_OF_TIME, steps[-1][2] + 1)]


@pytest.fixture(scope="module")
def runs(spark) -> list[dict[str, Ran]]:
    """Each drawn case by mode, all of them in one query."""
    windows = st.sampled_from([SESSIONS, BURSTS, DAYS, wn.tumbling("10 us"), wn.sliding("10 us", every="4 us")])
    cases = drawn(
        st.tuples(windows, st.sampled_from(ENDLESS), st.sampled_from([0, 3, 3, FOR_EVER]), scripts(odd_times=False)),
        50,
    )
    cases += drawn(st.tuples(windows, st.sampled_from(EVENT_BY_EVENT), st.just(FOR_EVER), scripts(odd_times=False)), 15)
    asked = [(kind, trigger, lateness, numbered(script)) for kind, trigger, lateness, script in cases]
    questions = [
        (
            Stage(
                (),
                ("key",),
                WindowOperation(windowing(kind, trigger=trigger, lateness=lateness, mode=mode, allow_loss=True)),
                SCHEMA,
            ),
            [(frame_of(elements), watermark, clock) for elements, watermark, clock in script],
        )
        for kind, trigger, lateness, script in asked
        for mode in MODES
    ]
    found = iter(run_cases(spark, questions))
    return [{mode: Ran(*case[:3], mode, case[3], list(map(plain, next(found)))) for mode in MODES} for case in asked]


def elements_of(script: Sequence[Step]) -> list[tuple[Element, int | None]]:
    """All events, each with the watermark when it came."""
    return [
        (element, before)
        for (elements, _, _), before in zip(script, befores(script), strict=True)
        for element in elements
    ]


def sessions_of(elements: Sequence[Element]) -> list[tuple[str, Window, Element]]:
    """Each event with the run of its key's events that it is in."""
    found = []
    for key in sorted({element.key[0] for element in elements}):
        runs: list[list[Element]] = []
        for element in sorted((one for one in elements if one.key[0] == key), key=lambda one: one.time or 0):
            if runs and element.time < runs[-1][-1].time + GAP:
                runs[-1].append(element)
            else:
                runs.append([element])
        for run in runs:
            window = Window(run[0].time, run[-1].time + GAP)
            found += [(key, window, element) for element in run]
    return found


def followed(panes: Sequence[Pane]) -> dict[tuple[str, Window], dict[str, Any]]:
    """What somebody has who retracts what is retracted."""
    view: dict[tuple[str, Window], dict[str, Any]] = {}
    for pane in panes:
        place = (pane.key[0], pane.window)
        if pane.retraction:
            assert view.pop(place) == pane.values
        else:
            assert place not in view
            view[place] = dict(pane.values)
    return view


def test_the_cases_are_worth_looking_at(runs):
    merged = [ran for case in runs for ran in case.values() if ran.windows.merging and ran.lateness == 3]
    assert {type(ran.windows).__name__ for ran in merged} == {"Session", "Custom"}
    assert any(pane.retraction for ran in merged for pane in ran.panes)
    assert any(ran.late for ran in merged)
    assert any(case["value"].windows == DAYS and case["value"].late for case in runs)
    assert {pane.timing.value for case in runs for ran in case.values() for pane in ran.panes} == {
        "EARLY",
        "ON_TIME",
        "LATE",
    }


def test_every_event_is_shown_or_late_and_never_both(runs):
    for ran in (ran for case in runs for ran in case.values()):
        shown = {value for pane in ran.panes for value in pane.values["values"]}
        assert not shown & ran.late
        assert shown | ran.late == {element.values["value"] for element, _ in elements_of(ran.script)}, ran


def test_after_a_pane_that_says_so_no_other_of_its_window_comes(runs):
    for ran in (ran for case in runs for ran in case.values()):
        over: set[Any] = set()
        for pane in ran.panes:
            assert (pane.key, pane.window) not in over, ran
            if pane.last:
                over.add((pane.key, pane.window))


def test_final_values_are_those_of_a_group_by_over_what_was_accepted(runs):
    cases = [case for case in runs if not case["value"].windows.merging]
    assert len(cases) > 20
    for case in cases:
        ran = case["value"]
        accepted = [
            (element.key[0], window, element)
            for element, before in elements_of(ran.script)
            for window in ran.windows.assign(element.time, element.key)
            if before is None or before < min(window.end + ran.lateness, END_OF_TIME)
        ]
        assert last_values(ran.panes) == followed(case["retracting"].panes) == expected_of(accepted), ran


def test_final_sessions_are_runs_without_a_gap_of_what_was_accepted(runs):
    cases = [case["retracting"] for case in runs if case["retracting"].windows.merging]
    assert len(cases) > 20
    for ran in cases:
        came = {element.values["value"]: (element, before) for element, before in elements_of(ran.script)}
        view = followed(ran.panes)
        for (key, window), values in view.items():
            members = [came[value][0] for value in values["values"]]
            assert sessions_of(members)[0][:2] == (key, window), ran
            assert expected_of([(key, window, element) for element in members]) == {(key, window): values}
        assert sorted(value for values in view.values() for value in values["values"]) == sorted({*came} - ran.late)
        for (key, one), (differs_in, two) in ((a, b) for a in view for b in view if a < b):
            if key == differs_in and one.start < two.end and two.start < one.end:
                # Only one that was closed is left alone by events that come within its gap.
                first, second = sorted((one, two), key=lambda window: window.end)
                afterwards = [came[value][1] for value in view[key, second]["values"]]
                assert any(before is not None and before >= first.end + ran.lateness for before in afterwards), ran


def test_deltas_values_and_retractions_add_up_to_the_same(runs):
    def summed(ran: Ran, name: str) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for pane in ran.panes:
            place = pane.key if ran.windows.merging else (pane.key, pane.window)
            found[place] += (pane.values[name] or 0) * (-1 if pane.retraction else 1)
        return +found

    for case in runs:
        for name in ("n", "total"):
            assert summed(case["delta"], name) == summed(case["retracting"], name), case["delta"]


def test_values_after_every_batch_are_those_of_a_group_by_over_the_input_so_far(runs):
    cases = [case for case in runs if case["value"].lateness == FOR_EVER and case["value"].trigger in EVENT_BY_EVENT]
    assert {case["value"].windows.merging for case in cases} == {True, False}
    for case in cases:
        ran = case["retracting"]
        panes: list[Pane] = []
        replaced: dict[tuple[str, Window], dict[str, Any]] = {}
        so_far: list[Element] = []
        for (elements, _, _), (came, _), (values, _) in zip(ran.script, ran.steps, case["value"].steps, strict=True):
            so_far += elements
            panes += came
            replaced |= last_values(values)
            if ran.windows.merging:
                wanted = sessions_of(so_far)
            else:
                wanted = [
                    (one.key[0], window, one) for one in so_far for window in ran.windows.assign(one.time, one.key)
                ]
            assert followed(panes) == expected_of(wanted), ran
            if not ran.windows.merging:  # what merged windows replace, values alone do not say
                assert replaced == expected_of(wanted), ran
