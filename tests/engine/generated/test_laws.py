"""What holds for the operators whatever the windows, the trigger and the order of the events."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.windowing_cases import AGGREGATES, INSTANT, SCHEMA, WINDOWS, Step, frame_of, on_operator, scripts
from tidewheel.engine.operators.operator import LATE, METRICS, RESULTS, BatchTime, MemoryStore
from tidewheel.engine.operators.window_operation import WindowOperation
from tidewheel.engine.runtime.exchange import ExchangeBatch, Partitioner, Rows
from tidewheel.engine.runtime.flow import Flow, Stage, prepared
from tidewheel.engine.runtime.stage_runner import StatefulStage
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries
from tidewheel.model import triggers as tr
from tidewheel.model import windows as wn
from tidewheel.model.panes import END_OF_TIME, Element, Pane, Window
from tidewheel.model.windowing import Windowing

pytestmark = pytest.mark.long

FOR_EVER = END_OF_TIME
GRIDS = [
    wn.tumbling("10 us"),
    wn.sliding("10 us", every="4 us"),
    wn.sliding("12 us", every="4 us").staggered(),
    wn.global_(),
]
SESSIONS = wn.session(gap="5 us")
EARLY_AND_LATE = tr.after_watermark(early=tr.each_batch(), late=tr.each_batch())
LASTING = [
    tr.default(),
    tr.each_batch(),
    EARLY_AND_LATE,
    tr.repeatedly(tr.after_count(3)),
    tr.after_watermark(early=tr.every("3 us"), late=tr.after_count(2)),
    tr.repeatedly(tr.any_of(tr.after_count(4), tr.every("2 us"))),
]
"""Triggers that show every event that is accepted."""

any_script = scripts(odd_times=False).map(lambda steps: [*steps, ([], END_OF_TIME, steps[-1][2] + 1)])
"""Bundles, and the end of the input."""


REPORTED = ("events", "accepted", "late", "results")


def windowing(windows: Any, **options: Any) -> Windowing:
    return Windowing(windows, AGGREGATES, **options)


def befores(script: Sequence[Step]) -> list[int | None]:
    """The watermark in force when the events of each step come."""
    found: list[int | None] = [None]
    for _, watermark, _ in script:
        last = found[-1]
        found.append(watermark if last is None else last if watermark is None else max(last, watermark))
    return found[:-1]


def expected_of(pairs: Sequence[tuple[str, Window, Element]]) -> dict[tuple[str, Window], dict[str, Any]]:
    """A plain group-by: the aggregates of each key and window, by a query that knows nothing of streams."""
    if not pairs:
        return {}
    frame = pl.DataFrame(
        [(key, *window, element.time, element.values["value"]) for key, window, element in pairs],
        schema=["key", "start", "end", "time", "value"],
        orient="row",
    )
    grouped = frame.group_by("key", "start", "end").agg(
        n=pl.len(),
        total=pl.col("value").sum(),
        values=pl.col("value").sort(),
        least=pl.col("value").min(),
        newest=pl.col("value").sort_by("time", maintain_order=True).last(),
    )
    return {(row.pop("key"), Window(row.pop("start"), row.pop("end"))): row for row in grouped.iter_rows(named=True)}


def last_values(panes: Sequence[Pane]) -> dict[tuple[str, Window], dict[str, Any]]:
    return {(pane.key[0], pane.window): dict(pane.values) for pane in panes if not pane.retraction}


def flat(outputs: Sequence[tuple[list[Pane], Any]]) -> list[Pane]:
    return [pane for panes, _ in outputs for pane in panes]


@settings(max_examples=50, deadline=None)
@given(any_script, st.sampled_from(GRIDS), st.sampled_from(LASTING), st.sampled_from([0, 3, FOR_EVER]))
def test_final_values_are_those_of_a_group_by_over_what_was_accepted(script, windows, trigger, lateness):
    accepted = [
        (element.key[0], window, element)
        for (elements, _, _), before in zip(script, befores(script), strict=True)
        for element in elements
        for window in windows.assign(element.time, element.key)
        if before is None or before < min(window.end + lateness, END_OF_TIME)
    ]
    found = on_operator(windowing(windows, trigger=trigger, lateness=lateness, allow_loss=True), script)
    assert last_values(flat(found)) == expected_of(accepted)


@settings(max_examples=50, deadline=None)
@given(any_script, st.sampled_from(LASTING))
def test_final_sessions_are_the_runs_of_events_without_a_gap(script, trigger):
    by_key: dict[str, list[Element]] = {}
    for elements, _, _ in script:
        for element in elements:
            by_key.setdefault(element.key[0], []).append(element)
    accepted = []
    for key, elements in by_key.items():
        runs: list[list[Element]] = []
        for element in sorted(elements, key=lambda element: element.time):
            if runs and element.time < runs[-1][-1].time + SESSIONS.gap:
                runs[-1].append(element)
            else:
                runs.append([element])
        for run in runs:
            window = Window(run[0].time, run[-1].time + SESSIONS.gap)
            # The last of equal times is the one that came last.
            accepted += [(key, window, element) for element in elements if element in run]
    found = on_operator(
        windowing(SESSIONS, trigger=trigger, lateness=FOR_EVER, mode="retracting", allow_loss=True), script
    )
    view: dict[tuple[str, Window], dict[str, Any]] = {}
    for pane in flat(found):
        place = (pane.key[0], pane.window)
        if pane.retraction:
            assert view.pop(place) == pane.values
        else:
            view[place] = dict(pane.values)
    assert view == expected_of(accepted)


@settings(max_examples=50, deadline=None)
@given(any_script, st.sampled_from([*GRIDS, SESSIONS]), st.sampled_from(LASTING), st.sampled_from([0, 3, FOR_EVER]))
def test_deltas_values_and_retractions_add_up_to_the_same(script, windows, trigger, lateness):
    def panes(mode: str) -> list[Pane]:
        return flat(
            on_operator(windowing(windows, trigger=trigger, lateness=lateness, mode=mode, allow_loss=True), script)
        )

    def summed(panes: Sequence[Pane], name: str) -> Counter:
        found: Counter = Counter()
        for pane in panes:
            # Windows that merge change their bounds; what is left of their keys must still add up.
            place = pane.key if windows.merging else (pane.key, pane.window)
            found[place] += (pane.values[name] or 0) * (-1 if pane.retraction else 1)
        return Counter({place: value for place, value in found.items() if value})

    retracting = panes("retracting")
    for name in ("n", "total"):
        assert summed(panes("delta"), name) == summed(retracting, name)
        if not windows.merging:
            lasting = {(pane.key, pane.window): pane for pane in panes("value")}
            assert summed(list(lasting.values()), name) == summed(retracting, name)


def through_stages(stage: Stage, script: Sequence[Step], *, watermark_known: bool) -> Iterator[dict[str, pl.DataFrame]]:
    """What comes out of both sides of the exchange, batch by batch, by output."""
    flow = Flow("law", ("topic",), (stage,))
    partitioner, stateful_stage = (
        Partitioner([flow], 2, watermark_known=watermark_known),
        StatefulStage([flow], 0, 2, watermark_known=watermark_known),
    )
    key_groups = [MemoryEntries(), MemoryEntries()]
    for (elements, watermark, clock), before in zip(script, befores(script), strict=True):
        after = watermark if before is None else before if watermark is None else max(before, watermark)
        exchange_batches: dict[int, ExchangeBatch] = {}
        cut = len(elements) // 2
        given = [Rows(frame_of(elements[:cut])), Rows(frame_of(elements[cut:]))]
        partitioner.partition(exchange_batches, "law", given, before if watermark_known else None, spare=clock % 2)
        found: dict[str, list[pl.DataFrame]] = {}
        for number, entries in enumerate(key_groups):
            state = KeyGroupState(entries)
            mine = [exchange_batches[number].to_bytes()] if number in exchange_batches else []
            out, _ = stateful_stage.step(state, number, mine, BatchTime(before, after, clock))
            state.save()
            for _, output, frame in out:
                found.setdefault(output, []).append(frame)
        yield {output: pl.concat(frames, how="diagonal") for output, frames in found.items()}


@settings(max_examples=50, deadline=None)
@given(
    scripts(),
    st.sampled_from([*GRIDS, SESSIONS]),
    st.sampled_from([*LASTING, tr.after_count(2)]),
    st.sampled_from([0, 3]),
    st.booleans(),
)
def test_every_event_is_accepted_or_late(script, windows, trigger, lateness, watermark_known):
    stage = Stage(
        (), ("key",), WindowOperation(windowing(windows, trigger=trigger, lateness=lateness, allow_loss=True)), SCHEMA
    )
    for (elements, _, _), out in zip(
        script, through_stages(stage, script, watermark_known=watermark_known), strict=True
    ):
        reported, results = out.get(METRICS, pl.DataFrame()), out.get(RESULTS, pl.DataFrame())
        late = out.get(LATE, pl.DataFrame()).height
        sums = reported.sum().row(0, named=True) if reported.height else dict.fromkeys(REPORTED, 0)
        assert {name: sums[name] for name in REPORTED} == {
            "events": len(elements),
            "accepted": len(elements) - late,
            "late": late,
            "results": results.height,
        }


@settings(max_examples=100, deadline=None)
@given(
    scripts(),
    WINDOWS,
    st.sampled_from([*LASTING, tr.after_count(2)]),
    st.sampled_from([0, 3]),
    st.sampled_from(["end", "earliest", "latest"]),
)
def test_what_is_late_may_be_reported_before_or_after_aggregating(script, windows, trigger, lateness, timestamp):
    what = windowing(windows, trigger=trigger, lateness=lateness, timestamp=timestamp, allow_loss=True)
    stage = Stage((), ("key",), WindowOperation(what), SCHEMA)
    before, after = (
        list(through_stages(stage, script, watermark_known=watermark_known)) for watermark_known in (True, False)
    )

    def plain(out: dict[str, pl.DataFrame]) -> dict[str, list[str]]:
        return {
            output: sorted(map(repr, frame.with_columns(cs.temporal().to_physical()).rows()))
            for output, frame in out.items()
            if output != METRICS
        }

    assert list(map(plain, after)) == list(map(plain, before))


@settings(max_examples=50, deadline=None)
@given(scripts(odd_times=False), st.sampled_from(GRIDS))
def test_values_after_every_batch_are_those_of_a_batch_run_over_the_input_so_far(script, windows):
    question = windowing(windows, trigger=tr.each_batch(), lateness=FOR_EVER)
    found = on_operator(question, script)
    view: dict[tuple[str, Window], dict[str, Any]] = {}
    so_far: list[Element] = []
    for (elements, _, clock), (panes, _) in zip(script, found, strict=True):
        so_far += elements
        view |= last_values(panes)
        at_once = on_operator(windowing(windows), [(so_far, None, clock), ([], END_OF_TIME, clock)])
        assert view == last_values(flat(at_once))


EARLY = tr.after_watermark(early=tr.every("2 us"))


@pytest.mark.parametrize(
    ("windows", "trigger"),
    [
        *itertools.product(
            [wn.tumbling("10 us"), wn.sliding("10 us", every="2 us"), SESSIONS], [tr.default(), EARLY_AND_LATE, EARLY]
        ),
        (wn.count(3), tr.default()),
    ],
    ids=repr,
)
def test_the_calls_to_the_store_do_not_grow_with_the_keys(windows, trigger):
    stage = Stage((), ("key",), WindowOperation(windowing(windows, trigger=trigger)), SCHEMA)
    operator = stage.operator()

    def calls(keys: int) -> list[int]:
        store = MemoryStore()
        before = None
        counted = []
        for number in range(8):
            rows = pl.DataFrame({"key": range(keys), "value": number, "goal": 0}).with_columns(
                pl.col("key").cast(pl.String),
                pl.lit(number * 3, pl.Int64).cast(INSTANT).alias("event_time"),
            )
            frame = prepared(stage, rows.select(SCHEMA.keys()))
            start = store.calls
            good, _ = operator.split_late(frame, before)
            after = number * 3 - 1
            operator.step(store, operator.pre_aggregate(good, before), BatchTime(before, after, number))
            counted.append(store.calls - start)
            before = after
        return counted

    few, many = calls(10), calls(10_000)
    if windows == SESSIONS:  # from some thousands on keys are spread over a fixed number of frames, however many
        assert calls(20_000) == many
    else:
        assert many == few
    assert max(many) <= 40
    assert sum(few) > 0
