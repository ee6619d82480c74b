"""Streams over a streaming DataFrame against the reference: Spark's own watermark, which follows a batch later."""

from __future__ import annotations

import os
from typing import Any

import polars as pl
import pytest

import tidewheel as tw
from tests.support.on_spark import panes_of
from tidewheel.model.panes import Element, Pane
from tidewheel.model.reference.windows import Reference
from tidewheel.model.time import now

pytestmark = pytest.mark.long

SECOND = 1_000_000
START = 1_760_000_000 * SECOND
DELAY = 5 * SECOND
FILES = [
    [(3, "a", 1), (7, "b", 2), (1, "a", 3)],
    [(12, "a", 4), (2, "b", 5)],
    [(30, "b", 6), (11, "a", 7), (4, "a", 8)],
    [(8, "a", 9), (28, "b", 10), (31, "c", 11)],
    [(9, "a", 12), (60, "a", 13), (41, "b", 14)],
]
"""Second, key and value of the rows of each file: a file is a batch."""

EARLY_AND_LATE = tw.triggers.after_watermark(early=tw.triggers.each_batch(), late=tw.triggers.each_batch())


def asked(rows: tw.Stream) -> dict[str, tw.Result]:
    keyed = rows.key_by("key")
    what = {"n": tw.agg.count(), "total": tw.agg.sum("value")}
    counted = tw.triggers.repeatedly(tw.triggers.after_count(2))
    return {
        "tumbling": keyed.window(tw.windows.tumbling("10 s")).aggregate(**what),
        "late": keyed.window(tw.windows.tumbling("10 s"), lateness="20 s").trigger(EARLY_AND_LATE).aggregate(**what),
        "sliding": keyed.window(tw.windows.sliding("10 s", every="5 s"), lateness="5 s").aggregate(**what),
        "session": keyed.window(tw.windows.session(gap="6 s"), lateness="15 s")
        .trigger(EARLY_AND_LATE)
        .accumulate("retracting")
        .aggregate(**what),
        "delta": keyed.window(tw.windows.tumbling("30 s")).trigger(counted).accumulate("delta").aggregate(**what),
        "all": rows.window(tw.windows.global_()).trigger(tw.triggers.each_batch()).aggregate(**what),
    }


NAMES = ("tumbling", "late", "sliding", "session", "delta", "all")


def on_reference(result: tw.Result) -> tuple[list[Pane], list[tuple[Any, ...]]]:
    """In each batch time moves first, by what the batches before held; then the rows come."""
    [stage] = result.stages
    reference = Reference(stage.operation.windowing)
    panes: list[Pane] = []
    late = []
    highest: int | None = None
    for rows in [*FILES, []]:
        watermark = None if highest is None else highest - DELAY
        elements = [
            Element(START + second * SECOND, (key,) if stage.keys else (), {"value": value})
            for second, key, value in rows
        ]
        for some in ([], elements):
            output = reference.step(some, watermark=watermark, clock=0)
            panes += output.panes
            late += [(each.element.values["value"], each.reason, each.by) for each in output.late]
        highest = max((START + second * SECOND for second, _, _ in rows), default=highest or 0)
    return panes, late


@pytest.fixture(scope="module")
def answers(spark, tmp_path_factory):
    """What Spark gives for each question; the queries run side by side."""
    folder = tmp_path_factory.mktemp("frames")
    (folder / "rows").mkdir()
    for number, rows in enumerate(FILES):
        path = folder / "rows" / f"{number}.parquet"
        frame = pl.DataFrame(rows, schema=["second", "key", "value"], orient="row")
        at = (pl.col("second") * SECOND + START).cast(pl.Datetime("us", "UTC")).alias("at")
        frame.select(at, "key", "value").write_parquet(path)
        os.utime(path, (START // SECOND + number, START // SECOND + number))  # Spark reads them in this order
    queries = {}
    for name in NAMES:
        frame = (
            spark.readStream.schema("at TIMESTAMP, key STRING, value BIGINT")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / "rows"))
        )
        rows = tw.stream(frame, time="at", watermark=tw.watermarks.bounded("5 s", future=None))
        result = asked(rows)[name]
        query = (
            result.df(key_groups=2)
            .writeStream.format("memory")
            .queryName(f"frames_{name}")
            .option("checkpointLocation", str(folder / f"checkpoint-{name}"))
            .trigger(availableNow=True)
            .start()
        )
        queries[name] = result, query
    found = {}
    for name, (result, query) in queries.items():
        query.awaitTermination()
        found[name] = result, pl.from_arrow(spark.table(f"frames_{name}").toArrow())
        spark.catalog.dropTempView(f"frames_{name}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_streaming_frame_gives_the_panes_of_the_reference(name, answers):
    result, rows = answers[name]
    [stage] = result.stages
    panes, late = on_reference(result)
    got = panes_of(rows.filter(pl.col("output") == "results"), stage.keys, list(stage.operation.computed))
    assert sorted(got, key=repr) == sorted(panes, key=repr)
    rejected = rows.filter(pl.col("output") == "late").select(pl.col("late").struct.unnest())
    by = (pl.col("late_by") * SECOND).round().cast(pl.Int64)
    assert sorted(rejected.select("value", "late_reason", by).rows()) == sorted(late)
    assert panes
    counts = rows.filter(pl.col("output") == "metrics").select(pl.col("metrics").struct.unnest())
    assert counts["events"].sum() == sum(map(len, FILES))


@pytest.mark.parametrize(
    "windows", [tw.windows.tumbling("10 s"), tw.windows.session(gap="6 s")], ids=["slices", "rows"]
)
def test_rows_from_the_future_are_late_and_do_not_move_the_watermark(windows, spark, tmp_path):
    for number, seconds in enumerate([[0, 86_400], [3, 20], [1]]):
        at = (pl.Series("at", seconds) * SECOND + now() - 100 * SECOND).cast(pl.Datetime("us", "UTC"))
        path = tmp_path / f"{number}.parquet"
        pl.DataFrame({"at": at, "key": ["a"] * len(seconds), "value": seconds}).write_parquet(path)
        os.utime(path, (START // SECOND + number, START // SECOND + number))
    frame = spark.readStream.schema("at TIMESTAMP, key STRING, value BIGINT").option("maxFilesPerTrigger", 1)
    rows = tw.stream(frame.parquet(str(tmp_path)), time="at", watermark=tw.watermarks.bounded("1 h", future="1 min"))
    result = rows.key_by("key").window(windows).aggregate(total=tw.agg.sum("value"))
    name = f"future_{type(windows).__name__}"
    query = result.df().writeStream.format("memory").queryName(name).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    found = pl.DataFrame(pl.from_arrow(spark.table(name).toArrow()))
    spark.catalog.dropTempView(name)
    late = found.filter(pl.col("output") == "late").select(pl.col("late").struct.unnest())
    assert late.select("value", "late_reason").rows() == [(86_400, "from the future")]
    assert "_arrival" not in late.columns
    counts = found.filter(pl.col("output") == "metrics").select(pl.col("metrics").struct.unnest())
    assert counts.select(pl.sum("events", "accepted", "late")).row(0) == (5, 4, 1)


def test_a_window_behind_another_stage_has_every_row_whichever_key_group_moves_time_first(spark, tmp_path):
    for number, rows in enumerate(FILES):
        path = tmp_path / f"{number}.parquet"
        at = (pl.col("second") * SECOND + START).cast(pl.Datetime("us", "UTC")).alias("at")
        frame = pl.DataFrame(rows, schema=["second", "key", "value"], orient="row")
        frame.select(at, "key", "value").write_parquet(path)
        os.utime(path, (START // SECOND + number, START // SECOND + number))
    frame = spark.readStream.schema("at TIMESTAMP, key STRING, value BIGINT").option("maxFilesPerTrigger", 1)
    rows = tw.stream(frame.parquet(str(tmp_path)), time="at", watermark=tw.watermarks.bounded("5 s", future=None))
    once = rows.deduplicate("value", horizon="1 min")
    result = once.key_by("key").window(tw.windows.tumbling("10 s")).aggregate(total=tw.agg.sum("value"))
    query = result.df(key_groups=2).writeStream.format("memory").queryName("chained").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    found = pl.DataFrame(pl.from_arrow(spark.table("chained").toArrow()))
    spark.catalog.dropTempView("chained")
    late = sum(
        found.filter(pl.col("output") == name).select(pl.col(name).struct.field("value")).to_series().sum()
        for name in ("late", "late_2")
    )
    # The last file moves the watermark to second 55: all windows but the one of second 60 have closed.
    assert found["total"].sum() + late == sum(value for rows in FILES for second, _, value in rows if second < 50)
    assert found["total"].sum() > late > 0
