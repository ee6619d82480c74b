"""The meaning of process functions, shown by the reference, which takes one event at a time."""

from __future__ import annotations

from datetime import datetime, timezone

import polars as pl
import pytest

from tidewheel.errors import DefinitionError
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.process.deduplicate import deduplicate
from tidewheel.model.process.previous import previous
from tidewheel.model.process.process import DATETIME, Clock, Process, ProcessingTimer, Timer
from tidewheel.model.process.process_call import bind
from tidewheel.model.reference.process import ProcessReference

SCHEMA = {"key": pl.String, "value": pl.Int64}


def frame(*rows):
    return pl.DataFrame(rows, schema={**SCHEMA, "__time": pl.Int64}, orient="row")


def same(events, state, clock):
    return events, state


def diary(wait, kind=Timer, **options):
    """A process that reports what it was called for; each event sets the timer `wait` after itself, or the clock."""

    def report(events, state, clock):
        reported = events.select("key", "event_time", what=pl.lit("event"), seen=pl.lit(state["seen"].sum(), pl.Int64))
        rung = state.filter("wake_at_due").select(
            "key", event_time="wake_at", what=pl.lit("timer"), seen=pl.col("seen").cast(pl.Int64)
        )
        set_to = pl.lit(events["event_time"].max()).cast(pl.Int64) if kind is Timer else pl.lit(clock.clock)
        new = state.with_columns(pl.col("seen").fill_null(0) + events.height)
        if events.height:
            new = new.with_columns((set_to + wait).cast(DATETIME).alias("wake_at"))
        return pl.concat([reported, rung]), new

    return Process(report, keys="key", state={"seen": pl.Int64, "wake_at": kind}, **options)


def reported(outputs):
    return [(row["what"], row["event_time"].microsecond, row["seen"]) for row in outputs["results"]]


def test_events_are_released_in_order_of_time_when_the_watermark_has_passed_them():
    reference = ProcessReference(Process(same, keys="key", state={}), SCHEMA)
    rows = frame(("a", 1, 7), ("a", 2, 5), ("a", 3, 5), ("a", 4, 8))
    assert reference.step(rows, watermark=5, clock=0)["results"] == []
    assert [row["value"] for row in reference.step(None, watermark=8, clock=0)["results"]] == [2, 3, 1]
    assert [row["value"] for row in reference.step(None, watermark=9, clock=0)["results"]] == [4]


def test_a_timer_comes_after_the_events_before_it_and_ahead_of_those_at_its_time():
    reference = ProcessReference(diary(3), SCHEMA)
    outputs = reference.step(frame(("a", 0, 13), ("a", 0, 10), ("a", 0, 12)), watermark=50, clock=0)
    assert reported(outputs) == [("event", 10, 0), ("event", 12, 1), ("event", 13, 2), ("timer", 16, 3)]
    outputs = reference.step(frame(("a", 0, 60), ("a", 0, 63)), watermark=65, clock=0)
    assert reported(outputs) == [("event", 60, 3), ("timer", 63, 4), ("event", 63, 4)]


def test_a_timer_is_due_when_the_watermark_reaches_it():
    reference = ProcessReference(diary(3), SCHEMA)
    assert reported(reference.step(frame(("a", 0, 10)), watermark=12, clock=0)) == [("event", 10, 0)]
    assert reported(reference.step(None, watermark=13, clock=0)) == [("timer", 13, 1)]
    assert reported(reference.step(None, watermark=99, clock=0)) == []


def test_a_timer_that_does_not_lie_ahead_is_cleared():
    reference = ProcessReference(diary(0), SCHEMA)
    assert reported(reference.step(frame(("a", 0, 10)), watermark=50, clock=0)) == [("event", 10, 0)]
    assert reference.state[("a",)]["wake_at"] is None


def test_a_processing_timer_is_due_when_the_clock_reaches_it():
    reference = ProcessReference(diary(5, ProcessingTimer), SCHEMA)
    assert reported(reference.step(frame(("a", 0, 10)), watermark=20, clock=100)) == [("event", 10, 0)]
    assert reported(reference.step(None, watermark=30, clock=104)) == []
    assert reported(reference.step(None, watermark=30, clock=105)) == [("timer", 105, 1)]
    assert reported(reference.step(None, watermark=30, clock=200)) == []


@pytest.mark.parametrize("gap", [10, 11])
@pytest.mark.parametrize("at_once", [True, False])
def test_state_is_forgotten_when_the_next_event_is_more_than_the_ttl_away(gap, at_once):
    reference = ProcessReference(diary(100, ttl=10), SCHEMA)
    first, second = frame(("a", 0, 5)), frame(("a", 0, 5 + gap))
    if at_once:
        outputs = reported(reference.step(pl.concat([second, first]), watermark=50, clock=0))
    else:
        outputs = reported(reference.step(first, watermark=5 + gap, clock=0))
        outputs += reported(reference.step(second, watermark=50, clock=0))
    assert outputs == [("event", 5, 0), ("event", 5 + gap, 1 if gap == 10 else 0)]


def test_state_is_forgotten_when_the_watermark_is_more_than_the_ttl_past_the_last_event():
    reference = ProcessReference(diary(10, ttl=10), SCHEMA)
    reference.step(frame(("a", 0, 5)), watermark=6, clock=0)
    assert reported(reference.step(None, watermark=15, clock=0)) == [("timer", 15, 1)]
    assert list(reference.state) == [("a",)]
    reference.step(None, watermark=16, clock=0)
    assert reference.state == {}


def test_a_timer_beyond_the_ttl_goes_with_the_state():
    reference = ProcessReference(diary(11, ttl=10), SCHEMA)
    assert reported(reference.step(frame(("a", 0, 5)), watermark=END_OF_TIME, clock=0)) == [("event", 5, 0)]


def test_late_rows_come_out_with_their_reason():
    reference = ProcessReference(Process(same, keys="key", state={}), SCHEMA)
    reference.step(None, watermark=10, clock=0)
    rows = frame(("a", 1, 7), ("a", 2, None), ("a", 3, END_OF_TIME), ("a", 4, 10))
    outputs = reference.step(rows, watermark=11, clock=0)
    assert [(row["value"], row["reason"], row["late_by"]) for row in outputs["late"]] == [
        (1, "too late", 3),
        (2, "no event time", None),
        (3, "absurd event time", None),
    ]
    assert [row["value"] for row in outputs["results"]] == [4]


def test_the_clock_gives_times_as_datetimes():
    clock = Clock(before=None, watermark=END_OF_TIME, clock=1)
    assert (clock.before_time, clock.ended) == (None, True)
    assert clock.watermark_time == datetime.max.replace(tzinfo=timezone.utc)
    assert clock.processing_time == datetime(1970, 1, 1, microsecond=1, tzinfo=timezone.utc)
    assert not Clock(before=0, watermark=1, clock=1).ended


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Process("no", keys="key", state={}), "needs a function"),
        (lambda: Process(same, keys=(), state={}), "name at least one key column"),
        (lambda: Process(same, keys=("key", "key"), state={}), "name a column twice"),
        (lambda: Process(same, keys="key", state={"x": int}), "must be a polars type like pl.Int64"),
        (lambda: Process(same, keys="key", state={"key": pl.Int64}), "has a name that is taken"),
        (lambda: Process(same, keys="key", state={"x": Timer, "x_due": pl.Int64}), "'x_due' of the state"),
        (lambda: Process(same, keys="key", state={"__x": pl.Int64}), "kept for Tidewheel"),
        (lambda: Process(same, keys="key", state={}, ttl="0 s"), "ttl must be greater than 0, got 0 s"),
        (lambda: Process(same, keys="key", state={}, outputs=("late",)), "beside results and late"),
        (lambda: Timer(after="0 s"), "after of a Timer must be greater than 0"),
        (lambda: previous("none", keys="key", schema=SCHEMA), "there is no column 'none'"),
        (lambda: previous((), keys="key", schema=SCHEMA), "at least one column"),
        (
            lambda: previous("x", keys="key", schema={**SCHEMA, "x": pl.Int64, "previous_x": pl.Int64}),
            "another prefix=",
        ),
        (lambda: deduplicate(horizon="1 s"), "needs the columns"),
        (lambda: deduplicate("key", horizon="0 s"), "horizon of deduplicate must be greater than 0"),
    ],
)
def test_what_makes_no_sense_is_refused_when_defined(make, message):
    with pytest.raises(DefinitionError, match=message):
        make()


def broken(events, state, clock):
    raise RuntimeError("cannot do nothing")


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (Process(same, keys="other", state={}), "there is no key column 'other'"),
        (Process(broken, keys="key", state={}), "broken failed on empty frames.*cannot do nothing.*pass schema="),
        (Process(lambda e, s, c: e, keys="key", state={}), "must return two polars DataFrames"),
        (Process(lambda e, s, c: (e.drop("key"), s), keys="key", state={}), "results need a column 'key'"),
        (Process(lambda e, s, c: (e, s.drop("x")), keys="key", state={"x": pl.Int64}), "state without column 'x'"),
        (Process(same, keys="key", state={}, outputs=("more",)), "results need a column 'output'"),
    ],
)
def test_a_function_that_does_not_fit_its_input_is_refused_when_bound(process, message):
    with pytest.raises(DefinitionError, match=message):
        bind(process, SCHEMA)


def test_with_a_schema_the_function_is_not_called_to_find_it():
    output = {"key": pl.String, "event_time": DATETIME}
    assert list(bind(Process(broken, keys="key", state={}, schema=output), SCHEMA).results) == ["key", "event_time"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda e, s, c: (e, s.with_columns(key=pl.lit("z"))), r"state of key \['z'\], which it was not called for"),
        (lambda e, s, c: (e, pl.concat([s, s])), r"more than one row of state for key \['a'\]"),
        (lambda e, s, c: (e, s.with_columns(x=pl.lit("text"))), "state of other types than declared"),
        (lambda e, s, c: (e.with_columns(event_time=pl.lit(None)), s), "results without event_time"),
    ],
)
def test_what_a_function_must_not_return_is_reported(function, message):
    output = {"key": pl.String, "event_time": DATETIME}
    reference = ProcessReference(Process(function, keys="key", state={"x": pl.Int64}, schema=output), SCHEMA)
    with pytest.raises(DefinitionError, match=message):
        reference.step(frame(("a", 1, 1)), watermark=2, clock=0)


def test_its_repr_says_what_it_is():
    process = Process(same, keys=["a"], state={"n": pl.Int64, "t": Timer(after="1 s")}, ttl="1 h", outputs=("odd",))
    assert repr(process) == (
        "Process(same, keys=('a',), state={'n': Int64, 't': Timer(after='1 s')}, ttl='1 h', outputs=('odd',))"
    )


def test_previous_gives_each_event_what_the_one_before_it_had():
    reference = ProcessReference(previous(["value", "event_time"], keys="key", schema=SCHEMA, prefix="old_"), SCHEMA)
    outputs = reference.step(frame(("a", 1, 3), ("b", 5, 2), ("a", 2, 1)), watermark=9, clock=0)
    assert [(row["value"], row["old_value"]) for row in outputs["results"]] == [(2, None), (5, None), (1, 2)]
    assert outputs["results"][2]["old_event_time"].microsecond == 1


def test_deduplicate_keeps_the_first_in_event_time_and_reports_the_others():
    reference = ProcessReference(deduplicate("key", "value", horizon=10), SCHEMA)
    rows = frame(("a", 1, 8), ("a", 1, 5), ("a", 2, 6), ("a", 1, 15), ("a", 1, 16))
    outputs = reference.step(rows, watermark=50, clock=0)
    assert [row["event_time"].microsecond for row in outputs["results"]] == [5, 6, 16]
    assert [row["event_time"].microsecond for row in outputs["duplicates"]] == [8, 15]
