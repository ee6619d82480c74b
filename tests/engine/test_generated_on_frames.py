"""Streaming DataFrames against the reference interpreter: generated windowings, all in one query, in Spark's time.

A unit of time is an hour, and the clocks of Helsinki are changed in between: the calendar's days are among the windows.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st
from test_generated_on_spark import drawn
from windowing_cases import (
    AGGREGATES,
    INSTANT,
    TIMELESS,
    frame_of,
    panes_of,
    triggers_of,
    unordered,
    windowings,
    windows_in,
)

import tidewheel as tw
from tidewheel.engine.flow import Flow
from tidewheel.engine.halves import Parcel
from tidewheel.engine.launch import _Mark
from tidewheel.engine.query import in_memory, row_parcels, with_state
from tidewheel.model import windows as wn
from tidewheel.model.panes import END_OF_TIME, Element
from tidewheel.model.reference import Reference
from tidewheel.model.windowing import Windowing

HOUR = 3_600_000_000
START = 1_761_393_600_000_000  # 25 October 2025, 12:00 UTC; the clocks are changed in the following night
DELAY = 4 * HOUR
CALENDAR = st.sampled_from([wn.calendar("day", zone="Europe/Helsinki"), wn.calendar("hour"), wn.calendar("week")])
Outcome = tuple[list[str], list[str]]


@pytest.fixture(scope="module")
def files() -> list[list[Element]]:
    """The rows of each file, which is a batch: time rises by fits and starts, with rows behind it and some without."""
    chance = random.Random(11)
    found = []
    reached = 0
    for _ in range(8):
        reached += chance.choice([0, 2, 5, 9])
        times = [None if chance.random() < 0.03 else max(0, reached - chance.randint(-2, 12)) for _ in range(9)]
        found.append(
            [
                Element(
                    None if at is None else START + at * HOUR + chance.randrange(HOUR // 1_000) * 1_000,
                    (chance.choice("abc"),),
                    {"value": chance.randint(-5, 5), "goal": chance.choice([None, 1, 2, 3])},
                )
                for at in times
            ]
        )
    return found


@pytest.fixture(scope="module")
def asked() -> list[Windowing]:
    triggers = st.one_of(st.just(tw.triggers.default()), triggers_of(TIMELESS))
    windows = st.one_of(windows_in(HOUR), CALENDAR)
    return drawn(windowings(triggers=triggers, windows=windows, unit=HOUR), 80)


def flows(source: Any, windowings: list[Windowing], *, watermark: Any = None) -> list[Flow]:
    """A flow for each windowing, as the API makes it."""
    keyed = tw.stream(source, time="event_time", watermark=watermark).key_by("key")
    made = keyed.window(tw.windows.fixed("1 h")).aggregate(**AGGREGATES)
    [stage] = made.stages
    return [
        replace(made, stages=(replace(stage, what=windowing),)).named(f"w{number}").flow()
        for number, windowing in enumerate(windowings)
    ]


def told(windowing: Windowing, steps: list[tuple[list[Element], int | None]]) -> Outcome:
    """All that the reference gives."""
    reference = Reference(windowing)
    outputs = [reference.step(elements, watermark=watermark, clock=0) for elements, watermark in steps]
    late = [(one.element.time, one.element.values["value"], one.reason, one.by) for out in outputs for one in out.late]
    return sorted(repr(unordered(pane)) for out in outputs for pane in out.panes), sorted(map(repr, late))


def by_flow(parcels: list[Any]) -> dict[str, Outcome]:
    """The same of what came out of Spark, of all batches and buckets together."""
    found: dict[str, Outcome] = {}
    for row in parcels:
        for flow, port, frame in Parcel.read(bytes(row.parcel)):
            panes, late = found.setdefault(flow, ([], []))
            if port == "results":
                panes += [repr(pane) for pane in panes_of(frame, list(AGGREGATES))]
            elif port == "late":
                by = pl.col("late_by").cast(pl.Int64)
                rows = frame.select(pl.col("event_time").cast(pl.Int64), "value", "late_reason", by).rows()
                late += map(repr, rows)
    return {flow: (sorted(panes), sorted(late)) for flow, (panes, late) in found.items()}


def compare(wanted: dict[str, Outcome], got: dict[str, Outcome], asked: list[Windowing]) -> None:
    wrong = [name for name in wanted if got.get(name, ([], [])) != wanted[name]]
    first = int(wrong[0][1:]) if wrong else 0
    assert not wrong, (len(wrong), asked[first], wanted[f"w{first}"], got.get(f"w{first}"))


def test_a_stream_gives_the_panes_of_the_reference(spark, files, asked, tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    for number, rows in enumerate(files):
        frame_of(rows).write_parquet(folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_000 + number, 1_000 + number))  # Spark reads them in this order
    schema = "event_time TIMESTAMP, key STRING, value BIGINT, goal BIGINT"
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    made = flows(frame, asked, watermark=tw.watermarks.bounded("4 h", future=None))
    parcels = row_parcels(frame, made, 2, clock=0, ended=False, marked=_Mark(made[0], None))
    watched = parcels.withWatermark("mark", f"{DELAY} microseconds").drop("mark")
    query = with_state(watched, made, 2, delay=DELAY).writeStream.format("memory").queryName("generated_frames")
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
    got = by_flow(spark.table("generated_frames").collect())
    spark.catalog.dropTempView("generated_frames")

    steps: list[tuple[list[Element], int | None]] = []
    highest: int | None = None
    for rows in [*files, []]:  # in each batch time moves first, by what the batches before held; then the rows come
        watermark = None if highest is None else highest - DELAY
        steps += [([], watermark), (rows, watermark)]
        highest = max(row.time for row in [*rows, Element(highest or 0, (), {})] if row.time is not None)
    wanted = {f"w{number}": told(windowing, steps) for number, windowing in enumerate(asked)}
    compare(wanted, got, asked)

    panes = [pane for outcome in wanted.values() for pane in outcome[0]]
    assert len(panes) > 1_000
    assert all(any(f"timing={timing}," in pane for pane in panes) for timing in ("EARLY", "ON_TIME", "LATE"))
    assert any("retraction=True" in pane for pane in panes)
    reasons = {line.split(", ")[2] for outcome in wanted.values() for line in outcome[1]}
    assert reasons >= {"'too late'", "'no event time'"}
    assert {type(windowing.windows).__name__ for windowing in asked} >= {"Sliding", "Session", "Global", "Calendar"}


def test_a_table_gives_the_panes_of_the_reference(spark, files, asked):
    whole = [row for rows in files for row in rows]
    table = frame_of(whole).with_columns(pl.col("event_time").cast(INSTANT))
    frame = spark.createDataFrame(table.to_arrow(compat_level=pl.CompatLevel.oldest())).coalesce(1)
    made = flows(frame, asked)
    got = by_flow(
        in_memory(row_parcels(frame, made, 2, clock=0, ended=True, marked=lambda rows: None), made, 2).collect()
    )
    wanted = {f"w{number}": told(windowing, [(whole, END_OF_TIME)]) for number, windowing in enumerate(asked)}
    compare(wanted, got, asked)
