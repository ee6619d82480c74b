"""Streams over DataFrames that have a watermark, and Spark's operators over the results: what a query gives batch by
batch is what the same steps give over all rows at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import tidewheel as tw
from tests.engine.execution.dataframe.test_watermark_hint import START, files, instants
from tests.engine.orders import INPUT, put
from tidewheel.engine.execution.dataframe.watermark import _knows
from tidewheel.errors import DefinitionError

SCHEMA = "at TIMESTAMP, k STRING, v BIGINT"
IN_TIME = [[1, 2, 3, 4], [11, 9, 12, 13], [21, 25, 20], [33, 31, 34], [60, 61, 58], [100], [1_000]]
"""Seconds, file by file: none is more than five behind what came before; the last moves time on."""
LATE = [*IN_TIME[:3], [33, 31, 12, 34], *IN_TIME[4:]]
"""One more that comes when the watermark is past its window."""
OVER = START + 500_000_000


def rows(seconds: list[int]) -> pl.DataFrame:
    key = pl.col("v").mod(2).cast(pl.String).alias("k")
    return pl.DataFrame({"at": instants(seconds), "v": seconds}).select("at", key, "v")


class Input:
    """The same rows as a stream of files and as a table."""

    def __init__(self, spark, folder: Path):
        self.spark, self.folder = spark, folder
        self.streaming = True

    def read(self, seconds: list[list[int]]) -> DataFrame:
        folder = self.folder / f"rows{len(seconds[3])}"
        if self.streaming:
            folder = folder.with_name(f"{folder.name}.{len(list(self.folder.iterdir()))}")
            return files(self.spark, folder, [rows(some) for some in seconds], SCHEMA)
        return self.spark.createDataFrame(pl.concat([rows(some) for some in seconds]).to_arrow()).select("at", "k", "v")


Steps = Callable[[Input], DataFrame]


def started(frame: DataFrame, name: str, folder: Path):
    writer = frame.writeStream.format("memory").queryName(name).outputMode("append").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / f"checkpoint-{name}")).start()


def compared(spark, folder: Path, cases: dict[str, Steps]) -> dict[str, pl.DataFrame]:
    """What each gives over a stream, which is what it gives over the table; queries run side by side."""
    given = Input(spark, folder)
    queries = {name: started(steps(given), name, folder) for name, steps in cases.items()}
    found: dict[str, pl.DataFrame] = {}
    given.streaming = False
    for name, steps in cases.items():
        queries[name].awaitTermination()
        found[name] = sound(spark.table(name))
        spark.catalog.dropTempView(name)
        dropped = [op.numRowsDroppedByWatermark for each in queries[name].recentProgress for op in each.stateOperators]
        assert sum(dropped) == 0, (name, dropped)
        assert found[name].rows() == sound(steps(given)).rows(), name
    return found


def sound(frame: DataFrame) -> pl.DataFrame:
    """The rows, but for those that only moved time."""
    found = pl.DataFrame(pl.from_arrow(frame.toArrow()))
    first = pl.col(found.columns[0]).cast(pl.Int64)
    return found.filter(first < OVER).sort(pl.all())


def results(result: tw.Result) -> DataFrame:
    """Its results and, if there are any, its late rows."""
    return result.df(key_groups=1).where("output != 'metrics'")


def counted(frame: DataFrame, time: str = "at", watermark: str | None = None) -> DataFrame:
    stream = tw.stream(frame, time=time, watermark=watermark).key_by("k").window(tw.windows.tumbling("10 s"))
    return results(stream.aggregate(n=tw.agg.count(), total=tw.agg.sum("v"))).select(
        "window_start", "k", "n", "total", "output"
    )


def by_fives(frame: DataFrame) -> DataFrame:
    """Sums that are added to when late rows come."""
    stream = (
        tw.stream(frame, time="at", watermark="5 s").key_by("k").window(tw.windows.tumbling("5 s"), lateness="20 s")
    )
    when = tw.triggers.after_watermark(late=tw.triggers.each_batch())
    return results(stream.trigger(when).accumulate("delta").aggregate(v=tw.agg.sum("v"))).select("event_time", "k", "v")


def repeated(given: Input) -> DataFrame:
    twice = given.read([some * 2 for some in IN_TIME]).withWatermark("at", "5 seconds")
    return twice.dropDuplicatesWithinWatermark(["v"]) if given.streaming else twice.dropDuplicates(["v"])


def joined(given: Input) -> DataFrame:
    left = given.read(IN_TIME).withWatermark("at", "5 seconds")
    right = given.read(IN_TIME).withWatermark("at", "5 seconds").selectExpr("at AS bt", "v AS w")
    return left.join(right, f.expr("w = v AND bt >= at AND bt <= at + INTERVAL 5 SECONDS"))


def aggregated(given: Input) -> DataFrame:
    marked = given.read(IN_TIME).withWatermark("at", "5 seconds")
    sums = marked.groupBy("k", f.window("at", "5 seconds")).agg(f.sum("v").alias("v"))
    return sums.select(f.window_time("window").alias("at"), "k", "v")


def passed_on(given: Input) -> DataFrame:
    """Through an operator after which Spark knows of no watermark."""

    def same(key, frames, state):
        yield from frames

    marked = given.read(IN_TIME).withWatermark("at", "5 seconds")
    if not given.streaming:
        return marked
    return marked.groupBy("k").applyInPandasWithState(same, SCHEMA, "n INT", "append", "NoTimeout")


def totals(result: DataFrame) -> DataFrame:
    """Of windows that other windows gave rows for: how many rows these were depends on when they came."""
    return result.select("window_start", "k", "total", "output")


@pytest.mark.long
def test_a_frame_with_a_watermark_gives_what_the_table_gives(spark, tmp_path):
    cases: dict[str, Steps] = {
        "own": lambda given: counted(given.read(IN_TIME).withWatermark("at", "5 seconds")),
        "repeated": lambda given: counted(repeated(given)),
        "joined": lambda given: counted(joined(given)),
        "aggregated": lambda given: counted(aggregated(given)),
        "passed": lambda given: counted(passed_on(given), watermark="5 s"),
        "chained": lambda given: totals(counted(by_fives(given.read(LATE)), "event_time")),
    }
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        found = compared(spark, tmp_path, cases)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for name, frame in found.items():
        assert set(frame["output"]) == {"results"}, name
        assert frame["total"].sum() == sum(map(sum, LATE if name == "chained" else IN_TIME)) - 1_000, name


@pytest.mark.long
def test_spark_goes_on_with_results_and_misses_none(spark, tmp_path):
    def windowed(given: Input) -> DataFrame:
        sums = by_fives(given.read(LATE)).groupBy(f.window("event_time", "20 seconds")).agg(f.sum("v").alias("v"))
        return sums.select("window.start", "v")

    def joined(given: Input) -> DataFrame:
        others = given.read(IN_TIME).withWatermark("at", "5 seconds").where("v % 3 > 0").selectExpr("at", "k AS kk")
        near = "kk = k AND at > event_time - INTERVAL 5 SECONDS AND at <= event_time"
        sums = by_fives(given.read(IN_TIME))
        return sums.join(others, f.expr(near), "leftOuter").select("event_time", "k", "v", "at")

    def matched(given: Input) -> DataFrame:
        pair = tw.pattern("one").next("other").within("6 s")
        stream = tw.stream(given.read(IN_TIME), time="at", watermark="5 s").key_by("k")
        pairs = results(stream.match(pair, measures={"v": tw.measures.last("other.v")}))
        counts = pairs.groupBy(f.window("event_time", "10 seconds")).agg(f.count("*").alias("n"), f.sum("v").alias("v"))
        return counts.select("window.start", "n", "v")

    def firsts(given: Input) -> DataFrame:
        twice = given.read([some * 2 for some in IN_TIME])
        kept = tw.stream(twice, time="at", watermark="5 s").deduplicate("v", horizon="10 s")
        counts = results(kept).where("output = 'results'").groupBy(f.window("event_time", "10 seconds")).count()
        return counts.select("window.start", "count")

    found = compared(spark, tmp_path, {"windowed": windowed, "with": joined, "matched": matched, "firsts": firsts})
    assert found["windowed"]["v"].sum() == sum(map(sum, LATE)) - 1_000
    assert 0 < found["with"]["at"].null_count() < found["with"].height
    assert found["matched"]["n"].sum() > 0
    assert found["firsts"]["count"].sum() == sum(map(len, IN_TIME)) - 1


@pytest.mark.long
def test_results_of_a_log_have_no_watermark_of_sparks_and_get_one(spark, log, tmp_path):
    for some in IN_TIME:
        put(log, *((START / 1_000_000 + second, str(second % 2), second) for second in some))
    stream = tw.stream(log, INPUT, watermark=tw.watermarks.bounded("5 s", future=None)).key_by("country")
    sums = stream.window(tw.windows.tumbling("5 s")).aggregate(v=tw.agg.sum("amount")).df(spark=spark, key_groups=1)
    sums = sums.where("output = 'results'").selectExpr("event_time", "country AS k", "v")
    marked = sums.withWatermark("event_time", "1 second").groupBy(f.window("event_time", "20 seconds"))
    queries = {
        "ours": started(counted(sums, "event_time", watermark="1 s"), "ours", tmp_path),
        "sparks": started(marked.agg(f.sum("v").alias("total")).select("window.start", "total"), "sparks", tmp_path),
    }
    for name, query in queries.items():
        query.awaitTermination()
        # The last window but one is open: it ends after the results that were there.
        assert sound(spark.table(name))["total"].sum() == sum(map(sum, IN_TIME[:5])), name
        spark.catalog.dropTempView(name)


@pytest.fixture
def empty(spark, tmp_path) -> DataFrame:
    return spark.readStream.schema(SCHEMA + ", bt TIMESTAMP").parquet(str(tmp_path))


def test_results_that_may_be_behind_a_watermark_of_sparks_do_not_carry_it(empty, tmp_path):
    """Spark's next operator would drop them without a word."""
    stream = tw.stream(empty.withWatermark("at", "5 seconds"), time="at").window(
        tw.windows.tumbling("5 s"), lateness="9 s"
    )
    result = results(stream.aggregate(v=tw.agg.sum("v")))
    with pytest.raises(AnalysisException, match="without watermark"):
        started(result.groupBy(f.window("event_time", "20 seconds")).count(), "refused", tmp_path)
    tw.stream(result.select("event_time", "v"), time="event_time")  # this has an output for what is late


def test_what_does_not_go_with_the_watermark_that_is_there_is_refused(empty):
    marked = empty.withWatermark("at", "5 seconds")
    with pytest.raises(DefinitionError, match=r"already of its column 'at'.*Leave watermark= out"):
        tw.stream(marked, time="at", watermark="1 min")
    with pytest.raises(DefinitionError, match=r"watermark is of its column 'at'. Say time='at', or"):
        tw.stream(marked, time="bt")
    with pytest.raises(
        DefinitionError, match=r"moves only when rows come: idle= is not available.*Leave idle= out, or write"
    ):
        tw.stream(empty, time="at", watermark=tw.watermarks.bounded("1 s", idle="5 s"))
    with pytest.raises(DefinitionError, match=r"can be bounded\(...\) or monotonic\(\).*Write the rows to a log"):
        tw.stream(empty, time="at", watermark=tw.watermarks.percentile(99))
    assert "watermark of the DataFrame" in tw.stream(marked, time="at").deduplicate("k", horizon="1 s").explain()


@pytest.mark.parametrize(
    ("plan", "known"),
    [
        (["Project [at]", "+- ~EventTimeWatermark 1, at: timestamp, 2 seconds", "   +- StreamingRelation x"], True),
        (["Project [EventTimeWatermark]", "+- StreamingRelation x"], False),
        (["Union", ":- StreamingRelation x", "+- EventTimeWatermark at", "   +- StreamingRelation x"], True),
        (["Project [at]", "+- ~FlatMapGroupsInPandasWithState at", "   +- EventTimeWatermark at"], False),
        (["TransformWithState a, ProcessingTime, b", "+- EventTimeWatermark at"], False),
        (
            [
                "Union",
                ":- TransformWithState a, ProcessingTime, b",
                ":  +- EventTimeWatermark at",
                "+- EventTimeWatermark x",
            ],
            True,
        ),
        (["Filter (x = a", "EventTimeWatermark)", "+- StreamingRelation x"], False),
    ],
)
def test_the_watermark_is_found_in_the_plan(plan, known):
    assert _knows(plan) is known


@pytest.mark.long
def test_a_trigger_in_processing_time_fires_although_no_rows_come(spark, tmp_path):
    frame = files(spark, tmp_path / "rows", [rows([1, 2, 3])], SCHEMA)
    when = tw.triggers.after_watermark(early=tw.triggers.every("1 s"))
    queries = {}
    for name, given in {"own": frame, "inherited": frame.withWatermark("at", "10 minutes")}.items():
        windows = tw.stream(given, time="at").window(tw.windows.tumbling("1 h")).trigger(when)
        writer = results(windows.aggregate(n=tw.agg.count())).writeStream.format("memory").queryName(name)
        queries[name] = writer.option("checkpointLocation", str(tmp_path / name)).start()

    def panes(name: str, count: int) -> list[tuple[int, str]]:
        until = time.monotonic() + 240
        while len(found := spark.table(name).select("n", "pane_timing", "pane_index").collect()) < count:
            assert queries[name].isActive, queries[name].exception()
            assert time.monotonic() < until, found
            time.sleep(0.1)
        return [(row.n, row.pane_timing) for row in sorted(found, key=lambda row: row.pane_index)]

    try:
        for name in queries:
            assert panes(name, 1) == [(3, "EARLY")]
        rows([10_000]).write_parquet(tmp_path / "rows" / "later.parquet")
        for name in queries:  # the first window's, and an early one of the other
            assert (3, "ON_TIME") in panes(name, 3)
    finally:
        for name, query in queries.items():
            query.stop()
            spark.catalog.dropTempView(name)
