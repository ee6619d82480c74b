"""Scripts: bundles, comparison, and the same panes from the reference and from Spark."""

from __future__ import annotations

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.errors import DefinitionError
from tidewheel.testing import Outcome, Script, pane, row
from tidewheel.testing.rows import at_time
from tidewheel.testing.runner import run_on_spark


def totals(events):
    return (
        events.key_by("key")
        .window(tw.windows.tumbling("10 s"), lateness="5 s")
        .trigger(tw.triggers.after_watermark(early=tw.triggers.every("2 s"), late=tw.triggers.each_batch()))
        .accumulate("retracting")
        .aggregate(total=tw.agg.sum("value"), n=tw.agg.count())
    )


SCRIPT = (
    Script()
    .clock("12:00:03")
    .add(at="12:00:01", key="a", value=5)
    .add(at="12:00:02", key="b", value=1)
    .clock("+2 s")
    .watermark("12:00:10")
    .clock("+1 s")
    .add(at="12:00:02", key="a", value=7)
    .batch()
    .watermark("12:00:30")
    .add(at="12:00:04", key="a", value=9)
    .add(at=None, key="b", value=2)
    .end()
)


def bundles(script: Script) -> list[tuple[int, int, bool]]:
    """Clock, number of rows, whether there is a watermark."""
    return [(bundle.clock, len(bundle.rows), bundle.watermark is not None) for bundle in script.bundles]


def test_a_bundle_is_a_clock_then_rows_then_a_watermark():
    start = at_time("12:00:03")
    one, two = start + 2_000_000, start + 3_000_000
    assert bundles(SCRIPT) == [(start, 2, False), (one, 0, True), (two, 1, False), (two, 0, True), (two, 2, True)]


@pytest.mark.parametrize(
    ("script", "sizes"),
    [
        (Script(), []),
        (Script().add(at="12:00", v=1).add(at="12:00", v=1), [2]),
        (Script().add(at="12:00", v=1).batch().add(at="12:00", v=1), [1, 1]),
        (Script().batch().batch(), [0, 0]),
        (Script().watermark("12:00").watermark("13:00"), [0, 0]),
        (Script().add(at="12:00", v=1).watermark("12:00").batch().batch(), [1, 0]),
        (Script().clock("+1 s").clock("+1 s").add(at="12:00", v=1), [0, 1]),
    ],
)
def test_calls_gather_in_bundles(script, sizes):
    assert [len(bundle.rows) for bundle in script.bundles] == sizes


def test_a_script_is_never_changed():
    base = Script().add(at="12:00:01", key="a", value=5)
    longer = base.add(at="12:00:02", key="a", value=6)
    assert bundles(base) == [(at_time("00:00"), 1, False)]
    assert bundles(longer) == [(at_time("00:00"), 2, False)]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda: Script().watermark("12:00").watermark("11:00"), "never goes back, from 12:00:00 to 11:00:00"),
        (lambda: Script().clock("12:00").clock("11:00"), "never goes back"),
        (lambda: Script().clock("soon"), "must be ISO text"),
        (lambda: Script().add(at="12:00", event_time=1), "given as at="),
        (lambda: Script().add(at="12:00", v=None).run(totals), "null in every row"),
        (lambda: Script().add(at="12:00", v=1).add(at="12:00", v="x").run(totals), "not of one type"),
        (lambda: SCRIPT.run(totals, on="paper"), '"reference", "spark" or "dataframe"'),
        (lambda: SCRIPT.run(lambda events: events), "returns a result"),
        (lambda: SCRIPT.run(SCRIPT), "a function that takes a stream"),
        (lambda: SCRIPT.run(lambda events: totals(events).filter(pl.col("n") > 1)), "no steps after the last stage"),
    ],
)
def test_what_cannot_be_is_reported(broken, message):
    with pytest.raises(DefinitionError, match=message):
        broken()


def test_the_panes_of_a_script_can_be_written_down():
    early = {"timing": "EARLY", "index": 0, "first": True}
    assert SCRIPT.run(totals) == [
        pane("a", "12:00:00", "12:00:10", total=5, n=1, timing="ON_TIME", index=0),
        pane("b", "12:00:00", "12:00:10", total=1, timing="ON_TIME", last=False),
        pane("a", "12:00:00", "12:00:10", total=5, retraction=True),
        pane("a", "12:00:00", "12:00:10", total=12, n=2, timing="LATE", event_time="12:00:09.999999"),
    ]
    quick = Script().add(at="12:00:01", key="a", value=5).clock("+2 s").run(totals)
    assert quick == [pane("a", "12:00:00", "12:00:10", total=5, **early)]
    assert SCRIPT.run(totals).late == [
        row(at=None, key="b", late_reason="no event time", late_by=None),
        row(at="12:00:04", key="a", value=9, late_reason="too late", late_by="26 s"),
    ]


def test_only_what_is_given_is_compared():
    whole = pane("a", "12:00", "12:01", total=5, n=2, timing="EARLY", index=1, first=False, last=False)
    assert whole == pane("a", "12:00:00", "12:01:00", total=5)
    assert whole != pane("a", "12:00:00", "12:01:00", total=6)
    assert whole != pane("a", "12:00:00", "12:01:00", totl=5)
    assert whole != pane("a", "12:00:00", "12:01:00", total=5, retraction=True)
    assert whole != pane("b", "12:00:00", "12:01:00", total=5)
    assert whole != pane("a", "12:00:00", "12:01:00", total=5, timing="LATE")
    assert whole != row(key="a")
    assert Outcome([whole]) != [whole, whole]


def test_what_is_shown_could_be_typed_back():
    for shown in (*SCRIPT.run(totals), *SCRIPT.run(totals).late, pane(("a", 1), None, None, total=None)):
        assert eval(repr(shown)) == shown
        assert repr(eval(repr(shown))) == repr(shown)


AWKWARD = ("first", "last", "index", "start", "end", "timing", "key", "aggregates")


def awkward(events):
    """Aggregates that are called what a pane's own fields are called."""
    names = {name: tw.agg.sum("value") for name in AWKWARD}
    return events.key_by("name").window(tw.windows.tumbling("10 s")).aggregate(total=tw.agg.sum("value"), **names)


def test_aggregates_may_be_called_like_the_fields_of_a_pane():
    script = Script().add(at="12:00:01", name="a", value=5).watermark("12:00:10")
    (found,) = script.run(awkward)
    named = dict.fromkeys(AWKWARD, 5)
    expected = pane("a", "12:00:00", "12:00:10", first=True, timing="ON_TIME", total=5, aggregates=named)
    assert found == expected
    assert found != pane("a", "12:00:00", "12:00:10", aggregates={"first": 6})
    assert found != pane("a", "12:00:00", "12:00:10", first=False, aggregates=named)
    assert pane("a", None, None, aggregates={"total": 5}) == pane("a", None, None, total=5)
    assert eval(repr(found)) == found
    assert repr(eval(repr(found))) == repr(found)


def test_a_column_that_is_called_like_the_time_of_a_row_is_reported():
    script = Script().add(at="12:00:01", value=5).end()
    with pytest.raises(DefinitionError, match=r"a column 'at'.*give it another name"):
        script.run(lambda events: events.with_columns(at=pl.col("value")).deduplicate("value", horizon="1 min"))


def chained(events):
    """The greatest of the totals, of those that are over."""
    first = events.key_by("key").window(tw.windows.tumbling("10 s")).aggregate(total=tw.agg.sum("value"))
    return first.window(tw.windows.tumbling("10 s")).aggregate(most=tw.agg.max("total"))


def everything(events):
    return events.window(tw.windows.global_()).aggregate(values=tw.agg.collect("value"))


def steps(events):
    """Each row with what came before it, by a process function of this module."""
    return events.key_by("key").process(_steps, state={"held": pl.Int64})


def _steps(events, state, clock):
    joined = events.join(state, on="key").with_columns(
        step=pl.col("value") - pl.col("value").shift(1).over("key").fill_null(pl.col("held"))
    )
    kept = state.join(events.group_by("key").agg(newest=pl.col("value").last()), on="key", how="left")
    return joined.select("key", "event_time", "step"), kept.select("key", held=pl.coalesce("newest", "held"))


def once(events):
    return events.deduplicate("key", "value", horizon="1 min")


KINDS = [totals, everything, steps, once]
EVENTS = (
    Script()
    .add(at="12:00:01", key="a", value=5)
    .add(at="12:00:03", key="a", value=5)
    .add(at="12:00:02", key="b", value=1)
    .clock("+2 s")
    .watermark("12:00:10")
    .clock("+1 s")
    .add(at="12:00:12", key="a", value=7)
    .add(at="12:00:02", key="a", value=9)
    .end()
)


@pytest.fixture(scope="module")
def on_spark(spark):
    """What comes of all these pipelines, in one query."""
    return dict(zip(KINDS, run_on_spark(EVENTS, KINDS, spark), strict=True))


@pytest.mark.parametrize("pipeline", KINDS)
def test_spark_gives_what_the_reference_gives(pipeline, on_spark):
    expected = EVENTS.run(pipeline)
    found = on_spark[pipeline]
    assert found == expected
    assert found.late == expected.late
    assert found.outputs == expected.outputs
    assert expected


def test_stages_run_one_behind_the_other(spark):
    script = (
        Script()
        .add(at="12:00:01", key="a", value=5)
        .add(at="12:00:02", key="b", value=1)
        .add(at="12:00:03", key="a", value=2)
        .watermark("12:00:20")
        .end()
    )
    assert script.run(chained) == [pane(None, "12:00:00", "12:00:10", most=7)]
    assert script.run(chained, on="spark", spark=spark) == [pane(None, "12:00:00", "12:00:10", most=7)]


# Patterns ---------------------------------------------------------------------------------------------------


def stops(events):
    hard = (
        tw.pattern("fast", pl.col("speed") >= 10)
        .next("braking", pl.col("speed").is_between(1, tw.measures.last("fast.speed") - 1))
        .one_or_more()
        .consecutive()
        .greedy()
        .next("standing", pl.col("speed") < 1)
        .within("10 s")
    )
    measures = {
        "drop": tw.measures.first("fast.speed") - tw.measures.last("standing.speed"),
        "speeds": tw.measures.collect("speed"),
    }
    return events.key_by("vehicle").match(hard, measures=measures)


def starts(events):
    """A partial match for each row, of which a key may have three."""
    return events.key_by("vehicle").match(tw.pattern("row").followed_by("end", pl.col("speed") < 0), limit=3)


DRIVES = (
    Script()
    .add(at="12:00:03", vehicle="a", speed=0)
    .add(at="12:00:01", vehicle="a", speed=12)
    .add(at="12:00:05", vehicle="b", speed=15)
    .add(at="12:00:02", vehicle="a", speed=5)
    .watermark("12:00:04")
    .add(at="12:00:01", vehicle="b", speed=20)
    .add(at="12:00:06", vehicle="b", speed=9)
    .add(at="12:00:30", vehicle="a", speed=30)
    .watermark("12:00:20")
    .end()
)
ENDLESS = (
    Script()
    .add(at="12:00:01", vehicle="a", speed=1)
    .add(at="12:00:02", vehicle="a", speed=2)
    .add(at="12:00:02", vehicle="b", speed=1)
    .watermark("12:00:03")
    .add(at="12:00:04", vehicle="a", speed=3)
    .add(at="12:00:05", vehicle="a", speed=4)
    .add(at="12:00:06", vehicle="a", speed=5)
    .add(at="12:00:07", vehicle="a", speed=-1)
    .add(at="12:00:07", vehicle="b", speed=-1)
    .end()
)


def test_a_pattern_runs_on_the_reference():
    outcome = DRIVES.run(stops)
    assert outcome == [
        row(at="12:00:03", vehicle="a", match_start="12:00:01", match_end="12:00:03", drop=12, speeds=[12, 5, 0])
    ]
    assert outcome.late == [row(at="12:00:01", vehicle="b", speed=20, late_reason="too late", late_by="3 s")]
    over = row(at="12:00:15", vehicle="b", match_start="12:00:05", match_end="12:00:06", stage="braking")
    assert outcome.outputs["timed_out"][0] == over
    assert "match_end='12:00:06'" in repr(outcome.outputs["timed_out"][0])


def test_a_key_that_opens_partial_matches_without_end_is_reported_and_the_others_go_on():
    outcome = ENDLESS.run(starts)
    dropped = outcome.outputs["dropped"]
    assert [(found["vehicle"], found["stage"]) for found in dropped] == [("a", "row")] * len(dropped)
    assert [found["match_start"] for found in dropped][:2] == [at_time("12:00:01"), at_time("12:00:02")]
    assert {found["reason"] for found in dropped} == {"limit of partial matches reached"}
    assert {found["vehicle"] for found in outcome} == {"a", "b"}
    assert len([found for found in outcome if found["vehicle"] == "a"]) == 3


@pytest.mark.parametrize(("script", "pipeline"), [(DRIVES, stops), (ENDLESS, starts)])
def test_a_pattern_gives_the_same_on_spark(spark, script, pipeline):
    outcome, found = script.run(pipeline), script.run(pipeline, on="spark", spark=spark)
    assert found == outcome
    assert found.late == outcome.late
    assert found.outputs == outcome.outputs


def test_a_notebook_shows_panes_as_a_table():
    def totals(events):
        windows = events.key_by("key").window(tw.windows.tumbling("10 s"))
        early = tw.triggers.after_watermark(early=tw.triggers.each_batch())
        return windows.trigger(early).accumulate("retracting").aggregate(total=tw.agg.sum("value"), key_=tw.agg.count())

    script = Script().add(at="12:00:01", key="<script>", value=5).batch().add(at="12:00:02", key="<script>", value=1)
    found = script.watermark("12:00:11").add(at="12:00:02", key="a", value=7).run(totals)
    html = found._repr_html_()
    assert "<script>" not in html
    assert html.count("<td>&lt;script&gt;</td>") == 3
    assert html.count('<tr class="retraction">') == 1
    assert "<td>12:00:10</td>" in html
    assert "<summary>late: 1</summary>" in html
    assert "<td>9 s</td>" in html
    assert "<td>9 s</td>" in found.late._repr_html_()
    assert "<td>&lt;script&gt;</td>" in found[0]._repr_html_()
    assert found.panes._repr_html_().count("<tr") == 1 + 3
