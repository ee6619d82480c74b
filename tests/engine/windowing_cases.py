"""Generated windowings and scripts, and how to run them on the reference and on the operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import polars as pl
from hypothesis import strategies as st

from tidewheel.engine.operators.operator import LATE, RESULTS, BatchTime, MemoryStore
from tidewheel.engine.operators.window_operation import WindowOperation
from tidewheel.engine.runtime.flow import Stage, prepared
from tidewheel.model import aggregates as agg
from tidewheel.model import triggers as tr
from tidewheel.model import windows as wn
from tidewheel.model.aggregates.retractable import WEIGHT
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME, Element, Pane, Timing, Window
from tidewheel.model.reference.windows import Reference
from tidewheel.model.windowing import Windowing

INSTANT = pl.Datetime("us", "UTC")
SCHEMA = {"event_time": INSTANT, "key": pl.String, "value": pl.Int64, "goal": pl.Int64}

Step = tuple[list[Element], int | None, int]
"""Elements, watermark, clock."""


def days_in(unit: int) -> wn.Custom:
    """Windows of a function: of seven units side by side, and of four, one every three."""

    def days(time: int) -> list[tuple[int, int]]:
        week, turn = time // (7 * unit) * 7 * unit, time // (3 * unit) * 3 * unit
        return [(week, week + 7 * unit), (turn, turn + 4 * unit)]

    return wn.custom(days, name="days")


def us(number: int) -> str:
    """So many microseconds, as people write them."""
    return f"{number} us"


def bursts_in(unit: int) -> wn.Custom:
    """Windows of functions that merge: sessions with a gap of five units."""
    return wn.custom(
        lambda time: [(time, time + 5 * unit)],
        merge=lambda windows: wn.session(gap=us(5 * unit)).merge(windows),
        name="bursts",
    )


def windows_in(unit: int) -> Any:
    """Windows of a few units of time, but those of functions."""
    few = st.integers(1, 6).map(lambda number: number * unit)
    some = st.integers(1, 12).map(lambda number: number * unit)
    offsets = st.integers(0, 5).map(lambda number: number * unit)
    return st.one_of(
        st.builds(lambda size, offset: wn.tumbling(us(size), offset=us(offset)), some, offsets),
        st.builds(
            lambda every, more, offset: wn.sliding(us(every + more * unit), every=us(every), offset=us(offset)),
            few, st.integers(0, 14), offsets,
        ),
        st.builds(lambda size, gap: wn.sliding(us(size), every=us(size + gap), allow_gaps=True), few, few),
        st.builds(lambda size: wn.tumbling(us(size + unit)).staggered(), some),
        st.builds(lambda every: wn.sliding(us((every + unit) * 3), every=us(every + unit)).staggered(), few),
        st.builds(lambda gap: wn.session(gap=us(gap)), some),
        st.just(wn.global_()),
    )  # fmt: skip


DAYS = days_in(1)
BURSTS = bursts_in(1)
WINDOWS = st.one_of(windows_in(1), st.just(DAYS), st.just(BURSTS))

TIMELESS = st.one_of(
    st.builds(tr.after_count, st.integers(1, 4)),
    st.just(tr.each_batch()),
    st.builds(
        lambda percent, expected: tr.completeness(percent, expected=expected),
        st.sampled_from([50, 100]), st.sampled_from([3, "goal"]),
    ),
    st.just(tr.never()),
    st.just(tr.after_watermark()),
)  # fmt: skip
"""Triggers that do not go by the clock."""

LEAVES = st.one_of(
    TIMELESS,
    st.builds(
        lambda delay, again: tr.after_processing_time(us(delay), unchanged=again and delay > 0),
        st.integers(0, 6), st.booleans(),
    ),
    st.builds(
        lambda period, offset, delay: tr.after_processing_time(us(delay), period=us(period), offset=us(offset)),
        st.integers(1, 6), st.integers(0, 3), st.integers(0, 2),
    ),
)  # fmt: skip


def triggers_of(leaves: Any) -> Any:
    """These, and what they can be combined to."""
    return st.recursive(
        leaves,
        lambda below: st.one_of(
            st.builds(tr.repeatedly, below),
            st.lists(below, min_size=1, max_size=3).map(lambda parts: tr.any_of(*parts)),
            st.lists(below, min_size=1, max_size=2).map(lambda parts: tr.all_of(*parts)),
            st.lists(below, min_size=1, max_size=3).map(lambda parts: tr.in_order(*parts)),
            st.builds(tr.or_finally, below, below),
            st.builds(
                lambda early, late: tr.after_watermark(early=early, late=late), st.none() | below, st.none() | below
            ),
        ),
        max_leaves=5,
    )


TRIGGERS = triggers_of(LEAVES)

AGGREGATES = {
    "n": agg.count(),
    "total": agg.sum("value"),
    "values": agg.collect("value"),
    "least": agg.min("value"),
    "newest": agg.last("value"),
}


@st.composite
def windowings(draw: Any, *, triggers: Any = None, windows: Any = WINDOWS, unit: int = 1) -> Windowing:
    chosen = draw(st.one_of(st.just(tr.default()), TRIGGERS) if triggers is None else triggers)
    return Windowing(
        windows=draw(windows),
        aggregates=AGGREGATES,
        trigger=chosen,
        mode=draw(st.sampled_from(["delta", "value", "retracting"])),
        lateness=draw(st.sampled_from([0, 0, 3 * unit, 10 * unit, END_OF_TIME])),
        early_windows=draw(st.sampled_from(["all", "next"])),
        timestamp=draw(st.sampled_from(["end", "end", "earliest", "latest"])),
        allow_loss=True,
    )


@st.composite
def scripts(draw: Any, *, odd_times: bool = True) -> list[Step]:
    """Bundles with disorder; the watermark and the clock rise now and then, and the end of the input may come."""
    steps: list[Step] = []
    watermark: int | None = None
    clock = 100
    time = st.integers(0, 40)
    if odd_times:
        time = st.one_of(
            time, time, time, st.none(), st.sampled_from([START_OF_TIME - 1, END_OF_TIME, END_OF_TIME - 2])
        )
    element = st.tuples(time, st.sampled_from("abc"), st.integers(-5, 5), st.none() | st.integers(1, 4))
    for _ in range(draw(st.integers(1, 7))):
        rows = draw(st.lists(element, max_size=6))
        if draw(st.booleans()):
            rise = draw(st.integers(0, 15))
            watermark = draw(st.integers(0, 10)) if watermark is None else watermark + rise
        clock += draw(st.integers(0, 4))
        steps.append(
            ([Element(at, (key,), {"value": value, "goal": goal}) for at, key, value, goal in rows], watermark, clock)
        )
    if draw(st.booleans()):
        steps.append(([], END_OF_TIME, clock + 1))
    return steps


def on_reference(windowing: Windowing, script: Sequence[Step]) -> list[tuple[list[Pane], list[tuple[Any, ...]]]]:
    reference = Reference(windowing)
    outputs = []
    for elements, watermark, clock in script:
        output = reference.step(elements, watermark=watermark, clock=clock)
        late = [
            (late.element.time, late.element.key, late.element.values["value"], late.reason, late.by)
            for late in output.late
        ]
        outputs.append(([unordered(pane) for pane in output.panes], sorted(late, key=repr)))
    return outputs


def unordered(pane: Pane) -> Pane:
    """What is collected has no order of its own."""
    return replace(pane, values={**pane.values, "values": sorted(pane.values["values"])})


def frame_of(elements: Sequence[Element], *, weighted: bool = False) -> pl.DataFrame:
    rows = {
        "event_time": pl.Series([element.time for element in elements], dtype=pl.Int64).cast(INSTANT),
        "key": [element.key[0] for element in elements],
        "value": [element.values["value"] for element in elements],
        "goal": [element.values["goal"] for element in elements],
    }
    frame = pl.DataFrame(rows, schema=SCHEMA)
    if not weighted:
        return frame
    return frame.with_columns(pl.Series(WEIGHT, [element.values[WEIGHT] for element in elements], pl.Int8))


def panes_of(frame: pl.DataFrame, names: Sequence[str]) -> list[Pane]:
    panes = []
    bounds = frame.with_columns(pl.col("window_start", "window_end", "event_time").cast(pl.Int64))
    for row in bounds.iter_rows(named=True):
        start = START_OF_TIME if row["window_start"] is None else row["window_start"]
        end = END_OF_TIME if row["window_end"] is None else row["window_end"]
        panes.append(
            Pane(
                key=(row["key"],),
                window=Window(start, end),
                values={name: sorted(row[name]) if name == "values" else row[name] for name in names},
                index=row["pane_index"],
                timing=Timing(row["pane_timing"]),
                first=row["pane_first"],
                last=row["pane_last"],
                event_time=row["event_time"],
                retraction=row["retraction"],
            )
        )
    return panes


def on_operator(
    windowing: Windowing,
    script: Sequence[Step],
    *,
    store: MemoryStore | None = None,
    cut: Callable[[int], int] | None = None,
) -> list[tuple[list[Pane], list[tuple[Any, ...]]]]:
    """The stage's operator in this process; `cut` says in how many parts `pre_aggregate` sees a bundle of n rows."""
    stage = Stage((), ("key",), WindowOperation(windowing), SCHEMA)
    operator = stage.operator()
    store = store or MemoryStore()
    outputs = []
    before: int | None = None
    for elements, watermark, clock in script:
        after = watermark if before is None else before if watermark is None else max(before, watermark)
        frame = prepared(stage, frame_of(elements, weighted=windowing.weighted))
        good, rejected = operator.split_late(frame, before)
        late = [] if rejected is None else [rejected]
        parts = []
        if good.height:
            parts = min(cut(good.height), good.height) if cut else 1
            size = -(-good.height // parts)
            parts = [operator.pre_aggregate(good.slice(start, size), before) for start in range(0, good.height, size)]
        rows = pl.concat(parts) if parts else None
        found = operator.step(store, rows, BatchTime(before, after, clock))
        before = after
        if LATE in found:
            late.append(found[LATE])
        rejections = [
            (
                row["__time"],
                (row["key"],),
                row["value"],
                row["late_reason"],
                None if row["late_by"] is None else row["late_by"] // _MICROSECOND,
            )
            for part in late
            for row in part.drop("event_time").iter_rows(named=True)
        ]
        panes = panes_of(found[RESULTS], list(windowing.aggregates)) if RESULTS in found else []
        outputs.append((panes, sorted(rejections, key=repr)))
    return outputs


_MICROSECOND = timedelta(microseconds=1)
