"""Spark against the reference interpreter: generated windowings and scripts, many in one query."""

from __future__ import annotations

import sys
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from tests.engine import windowing_cases
from tests.engine.windowing_cases import AGGREGATES, SCHEMA, Step, frame_of, on_reference, panes_of, scripts, windowings
from tests.support.on_spark import Found, run_cases
from tidewheel.engine.operators.operator import METRICS
from tidewheel.engine.operators.window_operation import WindowOperation
from tidewheel.engine.runtime.flow import Stage
from tidewheel.model import windows as wn
from tidewheel.model.windowing import Windowing

pytestmark = pytest.mark.long

cloudpickle.register_pickle_by_value(sys.modules[windowing_cases.__name__])  # custom windows are functions of it

Case = tuple[Windowing, list[Step]]
COUNTED = st.builds(
    lambda every, more: Windowing(wn.count(every + more, every=every), AGGREGATES), st.integers(1, 3), st.integers(0, 2)
)


def drawn(cases: st.SearchStrategy[Case], number: int) -> list[Case]:
    """So many windowings with scripts, the same each time."""
    found: list[Case] = []

    @seed(20_260_101)
    @settings(
        max_examples=number,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def draw(case: Case) -> None:
        found.append(case)

    draw()
    return found


def plain(step: Found) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """What a step gave, as `on_reference` tells it."""
    late = []
    if step.late is not None:
        numbers = step.late.with_columns(pl.col("event_time", "late_by").cast(pl.Int64))
        late = [
            (row["event_time"], (row["key"],), row["value"], row["late_reason"], row["late_by"])
            for row in numbers.iter_rows(named=True)
        ]
    panes = [] if step.results is None else panes_of(step.results, list(AGGREGATES))
    return panes, sorted(late, key=repr)


def counted(step: Found) -> tuple[int, int, int]:
    """Rows that came, were accepted and were late, as the engine counts them."""
    reported = step.outputs.get(METRICS)
    return (0, 0, 0) if reported is None else reported.select(pl.sum("events", "accepted", "late")).row(0)


@pytest.fixture(scope="module")
def compared(spark):
    """The cases, what the reference gives for each, and what Spark gives."""
    cases = [
        *drawn(st.tuples(windowings(), scripts()), 300),
        *drawn(st.tuples(COUNTED, scripts()), 20),
    ]
    expected = [on_reference(windowing, script) for windowing, script in cases]
    # Many scripts end before anything comes out; an example of each is enough.
    telling = [number for number, steps in enumerate(expected) if any(panes for panes, _ in steps)]
    telling += [number for number in range(len(cases)) if number not in telling][:10]
    questions = [
        (
            Stage((), ("key",), WindowOperation(windowing), SCHEMA),
            [(frame_of(elements), watermark, clock) for elements, watermark, clock in script],
        )
        for windowing, script in (cases[number] for number in telling)
    ]
    found = run_cases(spark, questions)
    return [
        (cases[number], expected[number], [plain(step) for step in steps], [counted(step) for step in steps])
        for number, steps in zip(telling, found, strict=True)
    ]


def test_every_generated_case_gives_the_panes_of_the_reference(compared):
    wrong = [(case, expected, got) for case, expected, got, _ in compared if got != expected]
    assert not wrong, f"{len(wrong)} of {len(compared)} differ; the first: {wrong[0]}"


def test_every_row_is_accepted_or_late(compared):
    for (windowing, script), expected, _, counts in compared:
        for (elements, _, _), (_, late), (events, accepted, rejected) in zip(script, expected, counts, strict=True):
            assert (events, accepted, rejected) == (len(elements), len(elements) - len(late), len(late)), windowing


def test_the_generated_cases_are_worth_comparing(compared):
    panes = [pane for _, expected, _, _ in compared for came, _ in expected for pane in came]
    kinds = {type(windowing.windows).__name__ for (windowing, _), _, _, _ in compared}
    assert len(compared) >= 150
    assert len(panes) > 500
    assert {pane.timing.value for pane in panes} == {"EARLY", "ON_TIME", "LATE"}
    assert any(pane.retraction for pane in panes)
    assert kinds == {"Sliding", "Session", "Global", "Custom", "Count"}
    assert any(late for _, expected, _, _ in compared for _, late in expected)
    triggers = " ".join(repr(windowing.trigger) for (windowing, _), _, _, _ in compared)
    for kind in ("after_watermark", "after_count", "after_processing_time", "each_batch", "repeatedly", "any_of"):
        assert f"{kind}(" in triggers, kind
    for kind in ("all_of", "in_order", "or_finally", "never", "default", "completeness"):
        assert f"{kind}(" in triggers, kind
