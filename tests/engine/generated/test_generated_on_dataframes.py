"""Streaming DataFrames against the reference interpreter: generated windowings over generated files, in Spark's time.
Those of the same files are one query.

A unit of time is an hour, and the clocks of Helsinki are changed in between: the calendar's days are among the windows.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import tidewheel as tw
from tests.engine.generated.test_generated_on_spark import COUNTED, drawn
from tests.engine.windowing_cases import (
    AGGREGATES,
    INSTANT,
    TIMELESS,
    bursts_in,
    days_in,
    frame_of,
    panes_of,
    triggers_of,
    unordered,
    windowings,
    windows_in,
)
from tidewheel.engine.execution.dataframe.batches import dataframe_batches
from tidewheel.engine.execution.dataframe.output import HighestTime
from tidewheel.engine.execution.state_operator import in_memory, with_state
from tidewheel.engine.operators.window_operation import WindowOperation
from tidewheel.engine.runtime.exchange import ExchangeBatch
from tidewheel.engine.runtime.flow import Flow
from tidewheel.model import windows as wn
from tidewheel.model.panes import END_OF_TIME, Element
from tidewheel.model.reference.windows import Reference
from tidewheel.model.windowing import Windowing

pytestmark = pytest.mark.long

HOUR = 3_600_000_000
START = 1_761_393_600_000_000  # 25 October 2025, 12:00 UTC; the clocks are changed in the following night
DELAY = 4 * HOUR
CALENDAR = st.sampled_from([wn.calendar("day", zone="Europe/Helsinki"), wn.calendar("hour"), wn.calendar("week")])
Outcome = tuple[list[str], list[str]]


Files = list[list[Element]]
"""The rows of each file, which is a batch."""


def disorder(number: int, behind: int) -> Files:
    """Time rises by fits and starts, or not at all; rows are up to so many hours behind it, some ahead of it, some have
    no time; files are of any length, and one is empty."""
    chance = random.Random(number)
    found: Files = []
    reached = 0
    for size in chance.sample([0, 2, 9, 14, 14, 20], 6):
        reached += chance.choice([0, 2, 5, 9, 25])
        found.append(
            [
                Element(
                    None if chance.random() < 0.03 else START + hour * HOUR + chance.randrange(HOUR // 1_000) * 1_000,
                    (chance.choice("abc"),),
                    {"value": chance.randint(-5, 5), "goal": chance.choice([None, 1, 2, 3])},
                )
                for hour in (max(0, reached - chance.randint(-2, behind)) for _ in range(size))
            ]
        )
    return found


BEHIND = (3, 12, 40)
"""How far, in hours: less than the watermark waits, more than that, and more than any window is long."""


@pytest.fixture(scope="module")
def disordered() -> list[Files]:
    """For each query its files."""
    return [disorder(number, behind) for number, behind in enumerate(BEHIND, start=11)]


@pytest.fixture(scope="module")
def asked() -> list[list[Windowing]]:
    """For each disorder other windowings."""
    triggers = st.one_of(st.just(tw.triggers.default()), triggers_of(TIMELESS))
    own = st.sampled_from([days_in(HOUR), bursts_in(HOUR)])
    windows = st.one_of(windows_in(HOUR), CALENDAR, own)
    found = drawn(windowings(triggers=triggers, windows=windows, unit=HOUR), 30 * len(BEHIND))
    found += drawn(COUNTED, 3 * len(BEHIND))
    return [found[number :: len(BEHIND)] for number in range(len(BEHIND))]


def flows(source: Any, windowings: list[Windowing], *, watermark: Any = None) -> list[Flow]:
    """A flow for each windowing, as the API makes it."""
    keyed = tw.stream(source, time="event_time", watermark=watermark).key_by("key")
    made = keyed.window(tw.windows.tumbling("1 h")).aggregate(**AGGREGATES)
    [stage] = made.stages
    return [
        replace(made, stages=(replace(stage, operation=WindowOperation(windowing)),)).named(f"w{number}").flow()
        for number, windowing in enumerate(windowings)
    ]


def reported(windowing: Windowing, steps: list[tuple[list[Element], int | None]]) -> Outcome:
    """All that the reference gives."""
    reference = Reference(windowing)
    outputs = [reference.step(elements, watermark=watermark, clock=0) for elements, watermark in steps]
    late = [(one.element.time, one.element.values["value"], one.reason, one.by) for out in outputs for one in out.late]
    return sorted(repr(unordered(pane)) for out in outputs for pane in out.panes), sorted(map(repr, late))


def by_flow(exchange_batches: list[Any]) -> dict[str, Outcome]:
    """The same of what came out of Spark, of all batches and key groups together."""
    found: dict[str, Outcome] = {}
    for row in exchange_batches:
        for flow, output, frame in ExchangeBatch.outputs(bytes(row.batch_bytes)):
            panes, late = found.setdefault(flow, ([], []))
            if output == "results":
                panes += [repr(pane) for pane in panes_of(frame, list(AGGREGATES))]
            elif output == "late":
                by = pl.col("late_by").cast(pl.Int64)
                rows = frame.select(pl.col("event_time").cast(pl.Int64), "value", "late_reason", by).rows()
                late += map(repr, rows)
    return {flow: (sorted(panes), sorted(late)) for flow, (panes, late) in found.items()}


def compare(wanted: dict[str, Outcome], got: dict[str, Outcome], asked: list[Windowing]) -> None:
    wrong = [name for name in wanted if got.get(name, ([], [])) != wanted[name]]
    first = int(wrong[0][1:]) if wrong else 0
    assert not wrong, (len(wrong), asked[first], wanted[f"w{first}"], got.get(f"w{first}"))


def streamed(spark: SparkSession, files: Files, asked: list[Windowing], folder: Path) -> dict[str, Outcome]:
    """What a query over the files gives, a file a batch."""
    rows_folder = folder / "rows"
    rows_folder.mkdir(parents=True)
    for number, rows in enumerate(files):
        path = rows_folder / f"{number}.parquet"
        frame_of(rows).write_parquet(path)
        os.utime(path, (1_000 + number, 1_000 + number))  # Spark reads them in this order
    schema = "event_time TIMESTAMP, key STRING, value BIGINT, goal BIGINT"
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(rows_folder))
    made = flows(frame, asked, watermark=tw.watermarks.bounded("4 h", future=None))
    exchange_batches = dataframe_batches(frame, made, 2, clock=0, ended=False, marked=HighestTime(made[0], None))
    watched = exchange_batches.withWatermark("mark", f"{DELAY} microseconds").drop("mark")
    query = with_state(watched, made, 2, delay=DELAY).writeStream.format("memory").queryName("generated_frames")
    query = query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
    found = by_flow(spark.table("generated_frames").collect())
    spark.catalog.dropTempView("generated_frames")
    return found


def expected(files: Files, asked: list[Windowing]) -> dict[str, Outcome]:
    """The same on the reference."""
    steps: list[tuple[list[Element], int | None]] = []
    times: list[int] = []
    for rows in [*files, []]:  # in each batch time moves first, by what the batches before held; then the rows come
        watermark = max(times) - DELAY if times else None
        steps += [([], watermark), (rows, watermark)]
        times += [row.time for row in rows if row.time is not None]
    return {f"w{number}": reported(windowing, steps) for number, windowing in enumerate(asked)}


def test_a_stream_gives_the_panes_of_the_reference(spark, disordered, asked, tmp_path):
    outcomes: list[Outcome] = []
    for number, (files, some) in enumerate(zip(disordered, asked, strict=True)):
        wanted = expected(files, some)
        compare(wanted, streamed(spark, files, some, tmp_path / str(number)), some)
        outcomes += wanted.values()

    panes = [pane for panes, _ in outcomes for pane in panes]
    assert len(panes) > 1_000
    assert all(any(f"timing={timing}," in pane for pane in panes) for timing in ("EARLY", "ON_TIME", "LATE"))
    assert any("retraction=True" in pane for pane in panes)
    assert {line.split(", ")[2] for _, late in outcomes for line in late} >= {"'too late'", "'no event time'"}
    kinds = {type(windowing.windows).__name__ for some in asked for windowing in some}
    assert kinds == {"Sliding", "Session", "Global", "Calendar", "Custom", "Count"}


def test_a_table_gives_the_panes_of_the_reference(spark, disordered, asked):
    windowings = [windowing for some in asked for windowing in some]
    whole = [row for rows in disordered[-1] for row in rows]
    table = frame_of(whole).with_columns(pl.col("event_time").cast(INSTANT))
    frame = spark.createDataFrame(table.to_arrow(compat_level=pl.CompatLevel.oldest())).coalesce(1)
    made = flows(frame, windowings)
    got = by_flow(
        in_memory(dataframe_batches(frame, made, 2, clock=0, ended=True, marked=lambda rows: None), made, 2).collect()
    )
    wanted = {f"w{number}": reported(windowing, [(whole, END_OF_TIME)]) for number, windowing in enumerate(windowings)}
    compare(wanted, got, windowings)
