"""Process functions on columns do what they do one event at a time, however the events come."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.process_functions import SCHEMA, process
from tidewheel.engine.operators import process_driver
from tidewheel.engine.operators.operator import LATE, RESULTS, BatchTime, MemoryStore
from tidewheel.engine.operators.process import ProcessOperator
from tidewheel.errors import CheckpointError, DefinitionError
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.process.deduplicate import DUPLICATES, deduplicate
from tidewheel.model.process.previous import previous
from tidewheel.model.process.process import DATETIME, Process, Timer
from tidewheel.model.reference.process import ProcessReference

pytestmark = pytest.mark.long

KEYS = ["a", "b", "c", "d", None]
TTLS = [None, 4, 20]
KINDS = {
    **{name: lambda ttl, name=name: process(name, ttl) for name in ("totals", "alarms", "sessions", "flushes")},
    "previous": lambda ttl: previous(["value", "event_time"], keys="key", schema=SCHEMA, ttl=ttl),
    "deduplicate": lambda ttl: deduplicate("key", horizon=ttl or 7),
}
ROW = st.tuples(st.sampled_from(KEYS), st.integers(0, 9), st.integers(0, 60))
ODD_ROW = st.tuples(st.sampled_from(KEYS), st.just(1), st.sampled_from([None, END_OF_TIME, 2**62, -(2**62)]))


def frame(rows):
    return pl.DataFrame(rows, schema={**SCHEMA, "__time": pl.Int64}, orient="row") if rows else None


def ordered(rows):
    return sorted(rows, key=lambda row: (row["event_time"], row["key"] is not None, row["key"]))


def micros(rows):
    """Late rows as the reference has them: the length of time as a number."""
    return rows.rename({"late_reason": "reason"}).with_columns(pl.col("late_by").cast(pl.Int64)).to_dicts()


def stepped(operator, store, rows, batch_time):
    """What comes out of a batch, and the rows that are late."""
    late = None
    if rows is not None:
        rows, late = operator.split_late(rows, batch_time.watermark_before)
    return operator.step(store, rows, batch_time), late


def operate(operator, batches, *, store=None):
    """The rows of each output over all batches of (rows, watermark, clock)."""
    store = MemoryStore() if store is None else store
    before, outputs = None, {}
    for rows, watermark, clock in batches:
        given_out, late = stepped(operator, store, frame(rows), BatchTime(before, watermark, clock))
        assert late is None
        for name, part in given_out.items():
            outputs.setdefault(name, []).extend(part.to_dicts())
        before = max((time for time in (before, watermark) if time is not None), default=None)
    return outputs


@st.composite
def scripts(draw):
    """Batches of (rows, watermark, clock), with rows that are late or have no sound time, to the end of the input."""
    batches = draw(
        st.lists(
            st.tuples(
                st.lists(st.one_of(ROW, ROW, ROW, ODD_ROW), max_size=8),
                st.one_of(st.none(), st.integers(0, 70)),
                st.integers(0, 4),
            ),
            max_size=5,
        )
    )
    clock, script = 0, []
    for rows, watermark, later in batches:
        clock += later
        script.append((rows, watermark, clock))
    return [*script, ([], END_OF_TIME, clock + 1), ([], END_OF_TIME, clock + 9)]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(script=scripts(), ttl=st.sampled_from(TTLS), key_groups=st.integers(1, 2))
def test_columns_give_what_one_event_at_a_time_gives(kind, script, ttl, key_groups):
    reference = ProcessReference(KINDS[kind](ttl), SCHEMA)
    operator = ProcessOperator(KINDS[kind](ttl), SCHEMA)
    stores = [MemoryStore() for _ in range(key_groups)]
    before = None
    for rows, watermark, clock in script:
        expected = reference.step(frame(rows), watermark=watermark, clock=clock)
        parts = [
            stepped(
                operator,
                store,
                frame([row for row in rows if KEYS.index(row[0]) % key_groups == n]),
                BatchTime(before, watermark, clock),
            )
            for n, store in enumerate(stores)
        ]
        for name, rows_out in expected.items():
            if name == LATE:
                got = [row for _, late in parts if late is not None for row in micros(late)]
                assert sorted(map(repr, got)) == sorted(map(repr, rows_out))
            else:
                assert ordered(row for part, _ in parts for row in part[name].to_dicts()) == rows_out
        before = reference.watermark
    assert [name for store in stores for name in store.names() if name.startswith("events/")] == []


@st.composite
def batchings(draw):
    """The same rows in the same order, all at once and in batches whose watermark makes none of them late."""
    rows = draw(st.lists(ROW, min_size=1, max_size=30))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    batches, start, watermark = [], 0, 0
    for cut in cuts:
        ahead = min((time for _, _, time in rows[cut:]), default=70)
        watermark = max(watermark, ahead - draw(st.integers(0, 5)))
        batches.append((rows[start:cut], watermark, 0))
        start = cut
    return [(rows, END_OF_TIME, 0)], [*batches, (rows[start:], None, 0), ([], END_OF_TIME, 0)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "flushes"])
@settings(max_examples=25)
@given(both=batchings(), ttl=st.sampled_from(TTLS))
def test_results_do_not_depend_on_how_events_are_batched(kind, both, ttl):
    at_once, in_batches = (operate(ProcessOperator(KINDS[kind](ttl), SCHEMA), batches) for batches in both)
    assert at_once.keys() == in_batches.keys()
    for name, rows in at_once.items():
        assert ordered(in_batches[name]) == rows


def many(keys, *, times=(0, 3, 21_000_000)):
    return [(f"k{n}", n % 10, time) for time in times for n in range(keys)]


@pytest.mark.parametrize("kind", KINDS)
def test_store_calls_do_not_grow_with_keys(kind):
    def calls(keys):
        store, counted = MemoryStore(), []
        operator = ProcessOperator(KINDS[kind](20), SCHEMA)
        script = [(many(keys), None, 0), ([], 2, 1), ([], 9, 9), (many(keys, times=(30_000_000,)), END_OF_TIME, 20)]
        before = None
        for rows, watermark, clock in script:
            operator.step(store, frame(rows), BatchTime(before, watermark, clock))
            before = watermark
            counted.append(store.calls)
        return counted

    assert calls(10_000) == calls(10)


def test_a_batch_with_nothing_to_do_makes_one_call():
    store, operator = MemoryStore(), ProcessOperator(process("alarms"), SCHEMA)
    operator.step(store, frame([("a", 4, 10), ("a", 4, 50)]), BatchTime(None, 12, 0))
    store.calls = 0
    outputs = operator.step(store, None, BatchTime(12, 13, 1))
    assert (store.calls, outputs[RESULTS].height) == (1, 0)
    assert operator.step(store, None, BatchTime(13, 14, 1))[RESULTS].to_dicts()[0]["kind"] == "alarm"


def test_the_function_is_called_once_for_a_batch_without_timers():
    sizes = []

    def watch(events, state, clock):
        sizes.append((events.height, state.height))
        return events, state

    operator = ProcessOperator(Process(watch, keys="key", state={"x": pl.Int64}), SCHEMA)
    sizes.clear()
    operator.step(MemoryStore(), frame(many(50, times=range(20))), BatchTime(None, 20, 0))
    assert sizes == [(1000, 50)]


def test_a_promise_lets_a_function_with_timers_take_many_events_at_once():
    calls = []

    def watch(events, state, clock):
        calls.append(events.height)
        return events, state

    def rounds(timer):
        operator = ProcessOperator(Process(watch, keys="key", state={"wake_at": timer}), SCHEMA)
        calls.clear()
        operator.step(MemoryStore(), frame([("a", 1, time) for time in range(40)]), BatchTime(None, 100, 0))
        return calls.copy()

    assert rounds(Timer) == [1] * 40
    assert rounds(Timer(after="10 us")) == [10] * 4


def test_a_broken_promise_is_reported():
    def early(events, state, clock):
        soon = (pl.col("event_time").last().cast(pl.Int64) + 1).cast(DATETIME)
        return events, events.group_by("key").agg(soon.alias("wake_at"))

    operator = ProcessOperator(Process(early, keys="key", state={"wake_at": Timer(after="1 s")}), SCHEMA)
    with pytest.raises(DefinitionError, match=r"early set the timer 'wake_at' of key \['a'\] less than Timer\(after="):
        operator.step(MemoryStore(), frame([("a", 1, 5)]), BatchTime(None, 100, 0))


def test_timers_that_are_set_again_for_ever_are_reported_at_the_end_of_the_input(monkeypatch):
    monkeypatch.setattr(process_driver, "_MOST_ROUNDS_AFTER_THE_END", 200)

    def ticking(events, state, clock):
        later = pl.col("wake_at").cast(pl.Int64).fill_null(0) + 10
        return events.clear(), state.with_columns(later.cast(DATETIME).alias("wake_at"))

    def run(ttl):
        made = Process(ticking, keys="key", state={"wake_at": Timer}, ttl=ttl)
        return operate(ProcessOperator(made, SCHEMA), [([("a", 1, 5)], END_OF_TIME, 0)])

    assert run("1 ms")[RESULTS] == []
    with pytest.raises(DefinitionError, match="again and again after the input has ended"):
        run(None)


def test_rows_behind_the_watermark_are_late_and_say_by_how_much():
    operator = ProcessOperator(process("totals"), SCHEMA)
    results, late = stepped(operator, MemoryStore(), frame([("a", 1, 5), ("a", 2, 10)]), BatchTime(10, 20, 0))
    assert [(row["reason"], row["late_by"], row["__time"]) for row in micros(late)] == [("too late", 5, 5)]
    assert results[RESULTS].height == 1


def test_adding_to_a_slice_does_not_rewrite_it_and_segments_stay_few():
    store, operator = MemoryStore(), ProcessOperator(process("totals"), SCHEMA)
    most, largest = 0, []
    for n in range(40):
        known = set(store.names())
        operator.step(store, frame([("a", n, 5)]), BatchTime(None, None, n))
        added = [name for name in store.names() if name.startswith("events/") and name not in known]
        largest.append(store.frames[added[0]].height)
        most = max(most, sum(name.startswith("events/") for name in store.names()))
    assert most == 8
    assert sum(rows > 1 for rows in largest) <= 40 // 8 + 1
    results = operator.step(store, None, BatchTime(None, 6, 99))[RESULTS]
    assert results["value"].to_list() == list(range(40))  # equal times keep the order of arrival


def test_events_that_spread_far_are_kept_in_few_segments():
    year = 365 * 86_400_000_000
    rows = [("a", n % 10, n * year // 5_000) for n in range(5_000)]
    store, operator = MemoryStore(), ProcessOperator(process("totals"), SCHEMA)
    operator.step(store, frame(rows), BatchTime(None, None, 0))
    assert len(store.names()) <= 65
    out, before = [], None
    for part in range(1, 12):
        out += operator.step(store, None, BatchTime(before, part * year // 10, part))[RESULTS]["event_time"].to_list()
        before = part * year // 10
    assert len(out) == 5_000
    assert out == sorted(out)


def test_state_and_waiting_events_vanish_when_they_are_done():
    store = MemoryStore()
    operate(ProcessOperator(process("sessions"), SCHEMA), [(many(20), 2, 0), ([], END_OF_TIME, 1)], store=store)
    assert store.names() == ["hint"]


def test_a_state_of_another_format_is_refused():
    store, operator = MemoryStore(), ProcessOperator(process("totals"), SCHEMA)
    operator.step(store, frame([("a", 1, 5)]), BatchTime(None, None, 0))
    store.frames["hint"] = store.frames["hint"].with_columns(version=pl.lit(99, dtype=pl.Int64))
    with pytest.raises(CheckpointError, match="format 99"):
        operator.step(store, None, BatchTime(None, None, 1))


def test_the_event_time_column_of_the_input_gives_way_to_the_prepared_time():
    schema = {"key": pl.String, "event_time": pl.String, "value": pl.Int64}
    rows = pl.DataFrame({"key": ["a"], "event_time": ["noon"], "value": [1], "__time": [7]})
    operator = ProcessOperator(previous("value", keys="key", schema=schema), schema)
    store = MemoryStore()
    out = operator.step(store, rows, BatchTime(None, 8, 0))[RESULTS]
    assert out["event_time"].cast(pl.Int64).to_list() == [7]
    _, late = stepped(operator, store, rows, BatchTime(8, 9, 0))
    assert late["event_time"].to_list() == ["noon"]


def test_duplicates_come_out_apart():
    operator = ProcessOperator(deduplicate("key", horizon=10), SCHEMA)
    times = [0, 3, 10, 11, 12, 30]
    out = operate(operator, [([("a", n, time) for n, time in enumerate(times)], END_OF_TIME, 0)])
    assert [row["value"] for row in out[RESULTS]] == [0, 3, 5]
    assert [row["value"] for row in out[DUPLICATES]] == [1, 2, 4]
