"""Whole flows on Spark, many in one query, against the interpreters of their stages, one behind the other: generated
windows over windows; process functions with timers and a time to live; and windows before and behind these."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st
from pyspark import cloudpickle

import tidewheel as tw
from tests.engine import process_functions
from tests.engine.generated.test_generated_on_spark import drawn
from tests.engine.windowing_cases import TRIGGERS, windows_in
from tidewheel.model import triggers as tr
from tidewheel.testing import Script
from tidewheel.testing.rows import MIDNIGHT
from tidewheel.testing.runner import run_on_spark

pytestmark = pytest.mark.long

# Spark's workers cannot import what is beside this file.
cloudpickle.register_pickle_by_value(process_functions)

SIZES = st.sampled_from([0, 0, 3, 10])
EAGER = tr.after_watermark(early=tr.each_batch(), late=tr.each_batch())
WHEN = st.one_of(st.just(tr.default()), st.just(EAGER), TRIGGERS)
MODES = st.sampled_from(["delta", "value", "retracting", "retracting"])
DRAWN, CHAINS, SCRIPTS = 75, 15, 2


def over(rows, windows, lateness, trigger, mode, **aggregates):
    """A stage of windows."""
    return (
        rows.window(windows, lateness=timedelta(microseconds=lateness))
        .trigger(trigger, allow_loss=True)
        .accumulate(mode)
        .aggregate(**aggregates)
    )


@st.composite
def chains(draw: Any) -> Any:
    """A pipeline of two or three stages of windows, the first per key, the second per key, by what the first found
    (then a result that changes moves from one window to another), or over all keys."""
    stages = [
        (draw(windows_in(1)), draw(SIZES), draw(WHEN), draw(MODES)) for _ in range(draw(st.sampled_from([2, 2, 3])))
    ]
    by = draw(st.sampled_from(["key", "level", "level", None]))

    def pipeline(rows):
        first, second, *third = stages
        found = over(
            rows.key_by("key"),
            *first,
            n=tw.agg.count(),
            total=tw.agg.sum("value"),
            most=tw.agg.max("value"),
            goal=tw.agg.max("goal"),
        )
        found = found.with_columns(level=pl.col("most") // 3)
        found = found if by is None else found.key_by(by)
        found = over(
            found, *second,
            panes=tw.agg.count(), n=tw.agg.sum("n"), total=tw.agg.sum("total"), most=tw.agg.max("most"),
            goal=tw.agg.max("goal"),
        )  # fmt: skip
        for stage in third:
            found = over(found, *stage, n=tw.agg.sum("n"), most=tw.agg.max("most"), goal=tw.agg.max("goal"))
        return found

    pipeline.__doc__ = f"by {by}: {stages}"
    return pipeline


def processed(name, ttl):
    """A process function of the operator's tests."""
    made = process_functions.process(name, ttl)
    return lambda rows: rows.key_by("key").process(
        made.function, state=made.state, ttl=None if ttl is None else f"{ttl} us"
    )


def counts(rows, **options):
    return rows.window(tw.windows.tumbling("7 us"), **options).aggregate(n=tw.agg.count(), total=tw.agg.sum("value"))


PROCESSES = {
    **{
        f"{name}, ttl {ttl}": processed(name, ttl)
        for name in ("totals", "alarms", "sessions", "flushes")
        for ttl in (None, 9)
    },
    "previous": lambda rows: rows.key_by("key").previous("value", "event_time"),
    "previous, ttl": lambda rows: rows.key_by("key").previous("value", ttl="6 us"),
    "previous, late rows": lambda rows: counts(
        rows.key_by("key").previous("value", lateness="5 us").key_by("key"), lateness="5 us"
    ),
    "previous, late rows, ttl": lambda rows: (
        rows.key_by("key")
        .previous("value", "event_time", ttl="6 us", lateness="8 us")
        .key_by("previous_value")
        .window(tw.windows.sliding("9 us", every="3 us"), lateness="8 us")
        .accumulate("retracting")
        .aggregate(n=tw.agg.count(), most=tw.agg.max("value"), all=tw.agg.sum("value"))
    ),
    "first of equal rows": lambda rows: rows.deduplicate("key", "value", horizon="12 us"),
    "exact repeats": lambda rows: rows.deduplicate("event_time", "key", "value", horizon="12 us"),
    "windows over exact repeats": lambda rows: counts(
        rows.deduplicate("event_time", "key", "value", horizon="12 us").key_by("key"), lateness="5 us"
    ),
    "windows over totals": lambda rows: counts(processed("totals", None)(rows).key_by("key")),
    "totals over windows": lambda rows: (
        counts(rows.key_by("key")).select("key", "event_time", value="total").key_by("key").previous("value")
    ),
}


def moving(windows, trigger, mode, *, on=False):
    """Where each key was last, counted by that: a late row takes something away from one window, often all of it."""

    def pipeline(rows):
        latest = over(
            rows.key_by("key"),
            tw.windows.tumbling("10 us"),
            30,
            EAGER,
            "retracting",
            level=tw.agg.last(pl.col("value") // 3),
        )
        found = over(latest.key_by("level"), windows, 30, trigger, mode, n=tw.agg.count(), levels=tw.agg.max("level"))
        return over(found, tw.windows.tumbling("20 us"), 30, EAGER, "value", n=tw.agg.sum("n")) if on else found

    return pipeline


MOVES = {
    f"{mode} of {windows!r}, {trigger!r}{', and on' * on}": moving(windows, trigger, mode, on=on)
    for mode in ("value", "retracting", "delta")
    for windows, trigger, on in (
        (tw.windows.tumbling("10 us"), tr.default(), False),
        (tw.windows.sliding("20 us", every="10 us"), EAGER, False),
        (tw.windows.session(gap="12 us"), EAGER, mode != "value"),
    )
}


@st.composite
def scripts(draw: Any) -> Script:
    """Bundles with disorder; watermark and clock rise now and then, and the input ends."""
    script, watermark, clock = (
        Script(columns={"value": pl.Int64, "key": pl.String, "goal": pl.Int64}),
        MIDNIGHT,
        MIDNIGHT,
    )
    row = st.tuples(st.integers(0, 40), st.sampled_from("abc"), st.integers(-5, 5), st.none() | st.integers(1, 4))
    for _ in range(8):
        clock += draw(st.integers(0, 4))
        script = script.clock(clock)
        for time, key, value, goal in draw(st.lists(row, min_size=2, max_size=8)):
            script = script.add(at=MIDNIGHT + time, key=key, value=value, goal=goal)
        watermark += draw(st.integers(0, 12))
        script = script.watermark(watermark)
    return script.end()


def reported(outcome):
    """Panes and late rows, which have no order among keys and windows; and the panes of each of these in theirs."""
    outputs = {"results": outcome, "late": outcome.late, **outcome.outputs}
    ordered: dict[str, list[str]] = {}
    for text in map(repr, outcome):
        if text.startswith("pane("):
            ordered.setdefault(",".join(text.split(",")[:3]), []).append(text)  # key, start and end
    return ordered, {name: Counter(map(repr, rows)) for name, rows in outputs.items() if rows}


@pytest.fixture(scope="module")
def compared(spark):
    """Each flow's name, and what its interpreters and Spark give, with each script."""
    given = drawn(st.tuples(chains(), scripts()), DRAWN)
    chosen = [script for _, script in given[-SCRIPTS:]]
    pipelines = PROCESSES | MOVES | {pipeline.__doc__: pipeline for pipeline, _ in given[: 3 * CHAINS]}
    expected = {name: [script.run(pipeline) for script in chosen] for name, pipeline in pipelines.items()}
    # Little comes of many triggers; those of which most does tell most.
    others = pipelines.keys() - PROCESSES.keys() - MOVES.keys()
    telling = sorted(others, key=lambda name: -sum(map(len, expected[name])))[:CHAINS]
    names = [*PROCESSES, *MOVES, *telling]
    found = [run_on_spark(script, [pipelines[name] for name in names], spark) for script in chosen]
    return [
        (name, expected[name][number], found[number][place])
        for number in range(len(chosen))
        for place, name in enumerate(names)
    ]


def test_every_flow_gives_what_its_interpreters_give(compared):
    wrong = [case for case in compared if reported(case[1]) != reported(case[2])]
    assert not wrong, f"{len(wrong)} of {len(compared)} differ; the first: {wrong[0]}"


def test_the_flows_are_worth_comparing(compared):
    for name in PROCESSES:
        assert any(expected for reported_name, expected, _ in compared if reported_name == name), (
            f"nothing comes of {name}"
        )
    panes = [pane for name, expected, _ in compared if name not in PROCESSES for pane in expected]
    assert len(panes) > 500
    assert {pane["timing"] for pane in panes} == {"EARLY", "ON_TIME", "LATE"}
    assert any(pane["retraction"] for pane in panes)
    for moved in MOVES:
        found = [pane for name, expected, _ in compared if name == moved for pane in expected]
        assert any(pane["retraction"] for pane in found) == (not moved.startswith("delta")), moved
    assert any(expected.late for _, expected, _ in compared)
    assert any(expected.outputs.get("late_2") for _, expected, _ in compared)
