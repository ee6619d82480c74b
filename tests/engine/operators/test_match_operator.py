"""The operator of patterns gives what the NFA gives event by event, however the events come."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.engine.pattern_cases import KEYS, SCHEMA, batches, expected, frame_of, matchers, plain
from tidewheel.engine.operators.operator import LATE, BatchTime, MemoryStore
from tidewheel.engine.operators.patterns.pattern import PatternOperator
from tidewheel.engine.operators.patterns.recognizer import PatternRecognizer
from tidewheel.engine.runtime.arrow_ipc import from_bytes, to_bytes
from tidewheel.errors import CheckpointError
from tidewheel.model.panes import END_OF_TIME
from tidewheel.patterns.define.builder import pattern
from tidewheel.patterns.define.references import collect
from tidewheel.patterns.nfa.reference import PatternReference
from tidewheel.patterns.vectorized.matcher import Matcher

pytestmark = pytest.mark.long


class PackedStore(MemoryStore):
    """Frames as they are after they were written and read."""

    def put(self, name, frame):
        super().put(name, from_bytes(to_bytes(frame)))


def timed(rows):
    return frame_of(rows).with_columns(pl.col("event_time").cast(pl.Int64).alias("__time"))


def operated(operator, store, rows, batch_time):
    """What comes out of a batch, late rows among it."""
    late, taken = None, None
    if rows:
        taken, late = operator.split_late(timed(rows), batch_time.watermark_before)
        taken = operator.pre_aggregate(taken, batch_time.watermark_before)
    outputs = dict(operator.step(store, taken, batch_time))
    return outputs if late is None else {**outputs, LATE: late}


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(matchers(), batches())
def test_batch_by_batch_it_gives_what_the_nfa_gives(matcher, script):
    assume(matcher is not None)
    operator = PatternOperator(PatternRecognizer(matcher, SCHEMA), ("key",))
    reference = PatternReference(matcher, SCHEMA)
    store, before = PackedStore(), None
    for number, (rows, watermark) in enumerate(script):
        after = max((time for time in (before, watermark) if time is not None), default=None)
        got = plain(operated(operator, store, rows, BatchTime(before, after, 0)))
        wanted = expected(reference.step(timed(rows), watermark=watermark))
        assert got == wanted, f"batch {number}"
        before = after
    assert [name for name in store.frames if name.startswith("events/")] == [], "no event waits when all is over"
    if matcher.pattern.window is not None:
        assert list(store.frames) in ([], ["queue"]), "nothing is kept when all time has run out"


STOP = (
    pattern("fast", pl.col("x") >= 2)
    .next("braking", pl.col("name") == "a")
    .one_or_more()
    .consecutive()
    .greedy()
    .next("standing", pl.col("x") < 1)
    .within("12 us")
)


@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("aab"), st.integers(0, 3)), min_size=5, max_size=40),
    st.integers(1, 4),
    st.sampled_from(["skip none", "skip past last"]),
    st.sampled_from([3, 100]),
)
def test_partial_matches_that_go_on_over_many_batches_are_those_of_the_nfa(steps, size, skip, limit):
    matcher = Matcher(STOP.after_match(skip), keys=["key"], measures={"taken": collect("number")}, limit=limit)
    operator, store = PatternOperator(PatternRecognizer(matcher, SCHEMA), ("key",)), PackedStore()
    reference = PatternReference(matcher, SCHEMA)
    time, rows = 0, []
    for number, (later, name, x) in enumerate(steps):
        time += later
        rows.append({"time": time, "key": KEYS[number % 2], "number": number, "name": name, "x": x, "who": "v"})
    before = None
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        after = rows[first + size]["time"] if first + size < len(rows) else END_OF_TIME
        got = plain(operated(operator, store, some, BatchTime(before, after, 0)))
        assert got == expected(reference.step(timed(some), watermark=after))
        before = after


FALL = pattern("high", pl.col("x") > 7).followed_by("low", pl.col("x") < 3).within("10 us")


def stepped(keys: int) -> int:
    """How often the state is called in batches of events of so many keys that open and complete matches."""
    matcher = Matcher(FALL, keys=["key"])
    schema = {"event_time": SCHEMA["event_time"], "key": pl.Int64(), "x": pl.Int64()}
    operator, store = PatternOperator(PatternRecognizer(matcher, schema), ("key",)), MemoryStore()
    found = 0
    for number in range(6):
        xs = [9 if number % 2 == 0 else 1] * keys
        rows = pl.DataFrame({"key": range(keys), "x": xs, "__time": [number * 4] * keys})
        outputs = operator.step(store, rows, BatchTime(number * 4 - 4 if number else None, number * 4 - 1, 0))
        found += outputs["results"].height if outputs else 0
    assert found >= 2 * keys
    return store.calls


def test_the_number_of_state_calls_does_not_grow_with_the_number_of_keys():
    assert stepped(10_000) == stepped(10) <= 60


def test_nothing_is_read_or_written_when_nothing_came_and_time_stands_still():
    operator, store = PatternOperator(PatternRecognizer(Matcher(FALL, keys=["key"]), SCHEMA), ("key",)), MemoryStore()
    rows = timed([{"time": 1, "key": key, "number": 0, "name": "a", "x": 9, "who": "v"} for key in KEYS])
    operator.step(store, rows, BatchTime(None, 5, 0))
    before = store.calls
    assert operator.step(store, None, BatchTime(5, 5, 1)) == {}
    assert store.calls == before + 1  # it looks at its queue


def test_a_state_of_another_format_is_refused():
    operator, store = PatternOperator(PatternRecognizer(Matcher(FALL, keys=["key"]), SCHEMA), ("key",)), MemoryStore()
    operator.step(
        store, timed([{"time": 1, "key": "a", "number": 0, "name": "a", "x": 9, "who": "v"}]), BatchTime(None, 5, 0)
    )
    store.put("queue", store.frames["queue"].with_columns(version=pl.lit(99, pl.Int64)))
    with pytest.raises(CheckpointError, match="format 99"):
        operator.step(store, None, BatchTime(5, END_OF_TIME, 0))
