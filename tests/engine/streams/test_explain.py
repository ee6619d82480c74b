"""What is said of a query is what it does."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidewheel as tw
from tests.engine.windowing_cases import AGGREGATES, TRIGGERS
from tidewheel.model import triggers as tr
from tidewheel.model import windows as wn
from tidewheel.model.panes import Element
from tidewheel.model.reference.windows import Reference
from tidewheel.model.windowing import Windowing
from tidewheel_transit.transit_pb2 import VehiclePosition

TEN = 10


@settings(max_examples=300)
@given(trigger=TRIGGERS, counts=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_trigger_that_is_on_time_fires_when_the_watermark_passes_unless_it_has_finished(trigger, counts):
    reference = Reference(Windowing(wn.tumbling(f"{TEN} us"), AGGREGATES, trigger=trigger, lateness=5, allow_loss=True))
    panes = []
    for number, count in enumerate(counts):
        elements = [Element(1, (), {"value": 1, "goal": None})] * count
        panes += reference.step(elements, watermark=None, clock=number).panes
    finished = any(pane.last for pane in panes)
    found = reference.step([], watermark=TEN, clock=len(counts)).panes
    if trigger.fires_on_time and not finished:
        assert len(found) == 1


def when(log, trigger, **options):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    window = moves.window(wn.tumbling("10 s"), **options).trigger(trigger, allow_loss=True)
    [line] = [line for line in window.aggregate(n=tw.agg.count()).explain().splitlines() if "When:" in line]
    return line.partition(f"{trigger!r}: ")[2]


@pytest.mark.parametrize(
    ("trigger", "lateness", "said"),
    [
        (tr.default(), "0 s", "a result in the batch in which the watermark passes the window's end; none after that."),
        (
            tr.repeatedly(tr.after_count(100)),
            "1 h",
            "results when it fires; the rest in the batch in which the watermark is 1 h past the window's end.",
        ),
        (
            tr.never(),
            "0 s",
            "everything in the batch in which the watermark passes the window's end.",
        ),
        (
            tr.after_count(3),
            "0 s",
            "results when it fires; once it has finished, rows go to the output late; the rest in the batch in which "
            "the watermark passes the window's end.",
        ),
        (
            tr.after_watermark(early=tr.each_batch(), late=tr.each_batch()),
            "1 h",
            "early results before the watermark passes the window; a result in the batch in which the "
            "watermark passes "
            "the window's end; later ones when late rows come.",
        ),
    ],
    ids=repr,
)
def test_it_is_said_when_results_come(log, trigger, lateness, said):
    assert when(log, trigger, lateness=lateness) == said


@pytest.mark.parametrize(
    ("mode", "lateness", "noted"), [("value", "1 h", True), ("value", 0, False), ("delta", "1 h", False)]
)
def test_it_is_said_that_a_window_behind_another_sees_results_that_are_replaced(log, mode, lateness, noted):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    first = moves.window(wn.tumbling("10 s"), lateness=lateness).accumulate(mode).aggregate(n=tw.agg.count())
    text = first.window(wn.tumbling("1 min")).aggregate(n=tw.agg.sum("n")).explain()
    assert ("Note: the next stage sees every result of a window" in text) == noted


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (
            "value",
            "of its window; when all rows of a window were retracted, so is its last result (retraction = true)",
        ),
        (
            "retracting",
            "retracted (retraction = true); when all rows of a window were retracted, so is its last result",
        ),
        ("delta", "How: each result holds what came since the last one of its window."),
    ],
)
def test_it_is_said_what_becomes_of_a_window_of_which_nothing_is_left(log, mode, said):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition).key_by("vehicle")
    first = moves.window(wn.tumbling("10 s"), lateness="5 s").accumulate("retracting").aggregate(n=tw.agg.count())
    second = first.window(wn.session(gap="1 min"), lateness="5 s").accumulate(mode).aggregate(n=tw.agg.sum("n"))
    last = second.explain().partition("Stage 2")[2]
    assert said in last
    assert ("and what it showed last" in last) == (mode != "delta")


LATE = "Late: rows behind the watermark go to the output late, with late_reason and late_by."
AGGREGATED = (
    "rows are aggregated and partitioned by key group inside the log's reader; one shuffle by key group, one state "
    "operator."
)
PARTITIONED = "rows are partitioned by key group inside the log's reader; one shuffle by key group, one state operator."
STOPS = tw.pattern("fast", pl.col("speed") > 10).followed_by("slow", pl.col("speed") < 1).within("1 min")


def passed_on(events, state, clock):
    return events.select("vehicle", "event_time"), state


def counted(windows, **options):
    return lambda keyed: keyed.window(windows, **options).aggregate(n=tw.agg.count())


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            counted(wn.sliding("30 s", every="20 s"), lateness="1 min"),
            [
                "Where: sliding('30 s', every='20 s').",
                "Kept: one partial result for each key and slice of 10 s, until the watermark is 1 min "
                "past the end of the "
                "last window that it is in.",
                AGGREGATED,
            ],
        ),
        (
            counted(wn.session(gap="30 s")),
            [
                "Where: session(gap='30 s').",
                "Late: rows are accepted until the watermark passes their window's end; after that they go "
                "to the output "
                "late, with late_reason and late_by.",
                "Kept: one partial result for each key and session, until the watermark passes the end of the session.",
                AGGREGATED,
            ],
        ),
        (
            lambda keyed: keyed.window(wn.session(gap="30 s")).accumulate("retracting").aggregate(n=tw.agg.count()),
            [
                "How: before each new result of a window the last one is retracted (retraction = true).",
                "Kept: one partial result for each key and session, and what it showed last, until the "
                "watermark passes "
                "the end of the session.",
            ],
        ),
        (
            counted(wn.count(3)),
            [
                "Where: count(3).",
                "When: once for each window, in the batch in which the watermark passes its last row.",
                LATE,
                "Kept: rows, until the watermark has passed them and their windows are full; how many rows "
                "each key had, "
                "for ever.",
                PARTITIONED,
            ],
        ),
        (
            counted(wn.global_()),
            [
                "When: default(): a result when the input ends.",
                "Late: rows are accepted however late they come.",
                "Kept: one partial result for each key and window, until the input ends.",
            ],
        ),
        (
            counted(wn.tumbling("10 s").staggered(), lateness="365000 d"),
            [
                "Kept: one partial result for each key and window, until the watermark is 365000 d past the "
                "end of the window."
            ],
        ),
        (
            lambda keyed: keyed.process(
                passed_on, state={"at": tw.Timer(), "due": tw.ProcessingTimer(), "seen": pl.Int64}, ttl="1 h"
            ),
            [
                "What: passed_on(events, state, clock), over each key's rows in the order of event time.",
                "When: in the batch in which the watermark passes the rows, and when the watermark reaches "
                "a key's at, and "
                "when the clock reaches a key's due.",
                LATE,
                "Kept: rows until the watermark passes them; at, due, seen of each key, until a key was "
                "silent for 1 h.",
                PARTITIONED,
            ],
        ),
        (
            lambda keyed: keyed.process(passed_on, state={}),
            ["Kept: rows until the watermark passes them."],
        ),
        (
            lambda keyed: keyed.previous("speed", "acc", ttl="5 min"),
            [
                "What: each row with previous_speed, previous_acc of the one before it, over each key's rows "
                "in the order of "
                "event time."
            ],
        ),
        (
            lambda keyed: keyed.deduplicate("speed", horizon="1 min"),
            [
                "Then, for each vehicle, speed:",
                "What: the first of equal rows; those up to 1 min after it go to the output duplicates, "
                "over each key's "
                "rows in the order of event time.",
            ],
        ),
        (
            lambda keyed: keyed.deduplicate("event_time", horizon="1 min"),
            [
                "When: in the batch that brings them.",
                "Late: rows behind the watermark by more than 1 min go to the output late, with "
                "late_reason and late_by.",
                "Kept: rows, until the watermark is 1 min past them.",
                PARTITIONED,
            ],
        ),
        (
            lambda keyed: keyed.match(
                STOPS, measures={"drop": tw.measures.first("fast.speed") - tw.measures.last("slow.speed")}, limit=7
            ),
            [
                f"What: {STOPS!r}.",
                "Measures: drop = first(fast.speed) - last(slow.speed).",
                "When: a match in the batch in which the watermark passes what decides it.",
                LATE,
                "Kept: rows until the watermark passes them; the events of open partial matches, at most 7 "
                "of these for "
                "each key: beyond it the oldest go to the output dropped.",
                PARTITIONED,
            ],
        ),
        (
            lambda keyed: keyed.match(STOPS).window(wn.tumbling("1 h")).aggregate(n=tw.agg.count()),
            [
                "Stage 1, for each vehicle:",
                "Stage 2, over all rows:",
                "rows are partitioned by key group inside the log's reader; 2 stages one after the other, each "
                "with a shuffle by "
                "key group and a state operator.",
            ],
        ),
    ],
)
def test_it_is_said_of_each_kind_of_stage_what_it_gives_and_keeps_and_how_it_runs(log, made, said):
    keyed = tw.stream(log, "input.vehicle-position", type=VehiclePosition).key_by("vehicle")
    lines = [line.strip().removeprefix("Runs as one Spark query: ") for line in made(keyed).explain().splitlines()]
    assert [line for line in said if line not in lines] == [], "\n".join(lines)


def test_it_is_said_how_dataframes_run(spark):
    table = spark.createDataFrame([("a", 1.0)], "key STRING, value DOUBLE").selectExpr("*", "current_timestamp() AS at")
    endless = spark.readStream.format("rate").load()
    static = tw.stream(table, time="at").key_by("key").window(wn.tumbling("10 s")).aggregate(n=tw.agg.count()).explain()
    streaming = tw.stream(endless, time="timestamp").window(wn.tumbling("10 s")).aggregate(n=tw.agg.count()).explain()
    assert static.splitlines()[-1] == (
        "Runs as one Spark job over all rows, after which time has ended: rows go to Python; one shuffle "
        "by key group, one "
        "state operator."
    )
    assert streaming.splitlines()[-1] == (
        "Runs as one Spark query: rows go to Python; one shuffle by key group, one state operator. Spark's "
        "watermark is in "
        "force a batch later than it moves, so results come one batch later than from a log."
    )


def test_outputs_are_called_as_they_are_in_the_dataframe(log):
    keyed = tw.stream(log, "input.vehicle-position", type=VehiclePosition).key_by("vehicle")
    again = tw.pattern("one", pl.col("match_end") > pl.col("match_start"))
    result = keyed.match(STOPS).key_by("vehicle").match(again).window(wn.tumbling("1 h")).aggregate(n=tw.agg.count())
    text = result.explain()
    assert f"Outputs: {', '.join(result.schemas())}." in text.splitlines()
    second, third = text.partition("Stage 2")[2].split("Stage 3")
    assert "go to the output late_2," in second
    assert "the oldest go to the output dropped_2." in second
    assert "go to the output late_3," in third
    for name in ("late", "late_2", "late_3", "dropped", "dropped_2"):
        assert name in result.schemas()


def test_steps_are_reported_as_they_were_written(log):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition, time="arrival")
    named = moves.filter(pl.col("speed") > 3, pl.col("route").str.contains("x") & (pl.col("lat") > 0))
    cells = named.with_columns(kmh=pl.col("speed") * 3.6, cell=tw.geo.cell("lat", "lon", resolution=9))
    text = cells.skip(nowhere=pl.col("lat").is_null()).select("cell", "kmh").each_row().explain()
    assert text.splitlines()[2] == (
        'Then, over all rows, after filter(pl.col(\'speed\') > 3, (col("route").str.contains(["x"])) & '
        "(pl.col('lat') > 0)); with_columns(kmh=pl.col('speed') * 3.6, cell=computed from lat, lon); "
        "skip(nowhere=pl.col('lat').is_null()); select(event_time, cell, kmh):"
    )


def test_rows_that_need_no_state_are_said_to_go_nowhere(log):
    rows = tw.stream(log, "input.vehicle-position", type=VehiclePosition).each_row()
    assert "inside the log's reader, without a shuffle and without state" in rows.explain()
