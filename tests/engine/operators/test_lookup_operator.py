"""Rows and the answers to their keys, on one key group: who waits for whom, and for how long."""

from __future__ import annotations

import json
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidewheel as tw
from tidewheel.engine.operators.lookup_join import LookupJoin, LookupJoinOperator
from tidewheel.engine.operators.operator import BatchTime, MemoryStore
from tidewheel.engine.runtime.exchange import ExchangeBatch, Partitioner, Rows
from tidewheel.engine.runtime.exchange_parts import LateRows, StageRows
from tidewheel.errors import CheckpointError, DefinitionError
from tidewheel_transit.transit_pb2 import VehiclePosition

S = 1_000_000
INSTANT = pl.Datetime("us", "UTC")
DEPOT = tw.Lookup("depot", keys={"line": pl.String, "number": pl.Int32}, returns={"depot": pl.String, "km": pl.Float64})
SCHEMA = {"event_time": INSTANT, "line": pl.String(), "number": pl.Int32(), "v": pl.Int64()}


def lookup_join(timeout=5 * S, keep=100 * S):
    return LookupJoin(DEPOT, timeout, keep, SCHEMA)


def rows(*given):
    """Rows of (second, line, number, v)."""
    frame = pl.DataFrame(
        [(at * S, *rest) for at, *rest in given], schema={**SCHEMA, "event_time": pl.Int64}, orient="row"
    )
    return frame.with_columns(pl.col("event_time").cast(INSTANT), pl.col("event_time").alias("__time"))


def outcomes(*given):
    """Outcomes as they are read: (second, key, answer or reason)."""
    found = [
        {
            "event_time": at * S,
            "key": json.dumps(list(key)),
            "answer": json.dumps(said) if isinstance(said, dict) else "",
            "reason": "" if isinstance(said, dict) else said,
        }
        for at, key, said in given
    ]
    schema = {"event_time": pl.Int64, "key": pl.String, "answer": pl.String, "reason": pl.String}
    return pl.DataFrame(found, schema=schema).with_columns(pl.col("event_time").cast(INSTANT))


def depot(name, km=1.5):
    return {"depot": name, "km": km}


class KeyGroup:
    def __init__(self, **options):
        self.operation = lookup_join(**options)
        self.operator = LookupJoinOperator(self.operation)
        self.store = MemoryStore()
        self.mark = None

    def batch(self, *given, side_input=(), mark=None):
        """The results as (v, depot), and the failures as (v, reason)."""
        batch_time = BatchTime(self.mark, self.mark if mark is None else mark * S, 0)
        self.mark = batch_time.watermark
        if side_input:
            self.operator.on_control(self.store, self.operation.accepted([outcomes(*side_input)]), batch_time)
        taken = None
        if given:
            taken, _ = self.operator.split_late(rows(*given), batch_time.watermark_before)
            taken = self.operator.pre_aggregate(taken, batch_time.watermark_before)
        out = self.operator.step(self.store, taken, batch_time)
        if not out:
            return [], []
        return out["results"].select("v", "depot").rows(), out["failed"].select("v", "reason").rows()


def test_a_row_whose_answer_is_there_goes_on_at_once():
    key_group = KeyGroup()
    assert key_group.batch((1, "a", 1, 10), side_input=[(1, ("a", 1), depot("north"))]) == ([(10, "north")], [])
    assert key_group.batch((2, "a", 1, 11), (2, "a", 2, 12)) == ([(11, "north")], [])


def test_a_row_waits_for_its_answer_and_keeps_its_time():
    key_group = KeyGroup()
    assert key_group.batch((1, "a", 1, 10), mark=2) == ([], [])
    assert key_group.batch(mark=5) == ([], [])
    assert key_group.batch(side_input=[(1, ("a", 1), depot("north"))]) == ([(10, "north")], [])
    assert key_group.batch(mark=50) == ([], []), "it comes once"


def test_without_an_answer_a_row_goes_on_when_the_time_is_over_and_is_reported_as_failed():
    key_group = KeyGroup()
    key_group.batch((1, "a", 1, 10), (3, "a", 1, 11), mark=2)
    assert key_group.batch(mark=6) == ([(10, None)], [(10, "no answer in time")])
    assert key_group.batch(side_input=[(3, ("a", 1), depot("north"))]) == ([(11, "north")], []), "the next one got it"


def test_a_failure_that_was_written_down_is_the_reason_and_an_answer_that_comes_later_counts():
    key_group = KeyGroup()
    key_group.batch((1, "a", 1, 10), side_input=[(1, ("a", 1), "no connection")], mark=2)
    assert key_group.batch(mark=6) == ([(10, None)], [(10, "no connection")])
    assert key_group.batch((7, "a", 1, 11), side_input=[(7, ("a", 1), depot("north"))]) == ([(11, "north")], [])


def test_no_failure_takes_an_answer_back_and_a_newer_answer_replaces_it():
    key_group = KeyGroup()
    key_group.batch(side_input=[(1, ("a", 1), depot("north")), (2, ("a", 1), "no connection")])
    assert key_group.batch((3, "a", 1, 10)) == ([(10, "north")], [])
    assert key_group.batch((3, "a", 1, 11), side_input=[(4, ("a", 1), depot("south"))]) == ([(11, "south")], [])


def test_a_row_without_a_whole_key_does_not_wait():
    assert KeyGroup().batch((1, None, 1, 10), (1, "a", None, 11)) == (
        [(10, None), (11, None)],
        [(10, "the key is incomplete"), (11, "the key is incomplete")],
    )


def test_no_row_is_too_late_but_one_whose_time_is_over_does_not_wait():
    key_group = KeyGroup()
    key_group.batch(side_input=[(1, ("a", 1), depot("north"))], mark=100)
    assert key_group.batch((1, "a", 1, 10), (1, "a", 2, 11)) == (
        [(10, "north"), (11, None)],
        [(11, "no answer in time")],
    )


def test_rows_without_a_time_that_makes_sense_are_rejected():
    operator = LookupJoinOperator(lookup_join())
    frame = rows((1, "a", 1, 10)).with_columns(pl.lit(None, pl.Int64).alias("__time"))
    good, rejected = operator.split_late(frame, None)
    assert good.height == 0
    assert rejected["late_reason"].to_list() == ["no event time"]


def test_answers_are_forgotten_when_event_time_is_long_past_them():
    key_group = KeyGroup(keep=10 * S)
    key_group.batch(side_input=[(1, ("a", 1), depot("north"))], mark=5)
    key_group.batch(side_input=[(12, ("b", 1), depot("south"))], mark=12)
    key_group.batch(side_input=[(13, ("c", 1), depot("west"))])
    assert key_group.store.frames["answers/1"]["line"].to_list() == ["b", "c"]


def test_when_nothing_waits_nothing_is_kept_of_rows():
    key_group = KeyGroup()
    key_group.batch((1, "a", 1, 10))
    assert set(key_group.store.frames) == {"waiting/1"}
    key_group.batch(mark=60)
    assert key_group.store.frames == {}


def test_the_state_of_another_version_is_refused():
    key_group = KeyGroup()
    key_group.store.put("answers/9", pl.DataFrame({"a": [1]}))
    with pytest.raises(CheckpointError, match="answers/9"):
        key_group.batch((1, "a", 1, 10))


KEYS = st.sampled_from(["a", "b", "c"])


@given(
    st.lists(st.tuples(st.integers(0, 40), KEYS), min_size=1, max_size=40),
    st.sets(KEYS),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_with_answers_that_were_there_results_do_not_depend_on_the_batches(events, answered, cuts):
    """Every row comes once; with an answer if its key has one; and it is reported as failed if it has none."""
    key_group = KeyGroup()
    side_input = [(0, (key, 1), depot(key.upper())) for key in sorted(answered)]
    bounds = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    found, failed = key_group.batch(side_input=side_input)
    for begin, end in pairwise(bounds):
        some = [(at, key, 1, number) for number, (at, key) in enumerate(events)][begin:end]
        more, lost = key_group.batch(*some, mark=max([(key_group.mark or 0) // S, *(at - 1 for at, *_ in some)]))
        found, failed = found + more, failed + lost
    more, lost = key_group.batch(mark=1_000)
    expected = [(number, key.upper() if key in answered else None) for number, (_, key) in enumerate(events)]
    assert sorted(found + more) == expected
    assert sorted(number for number, _ in failed + lost) == [number for number, where in expected if where is None]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"line": pl.String()}, {}, "no column 'number'"),
        ({"line": pl.Int64(), "number": pl.Int32()}, {}, "'line' is Int64, the lookup's is String"),
        ({"line": pl.String(), "number": pl.Int32(), "km": pl.Int64()}, {}, "a column 'km' already"),
        ({"line": pl.String(), "number": pl.Int32(), "reason": pl.Int64()}, {}, "'reason'"),
        ({"line": pl.String(), "number": pl.Int32()}, {"timeout": -1}, "must not be negative"),
        ({"line": pl.String(), "number": pl.Int32()}, {"keep": 0}, "greater than 0"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_defined(columns, options, message):
    given = {"timeout": 1, "keep": 1, **options}
    with pytest.raises(DefinitionError, match=message):
        LookupJoin(DEPOT, given["timeout"], given["keep"], {"event_time": INSTANT, **columns})


@pytest.mark.parametrize(
    ("key", "answer", "reason", "message"),
    [
        ('["a"]', "", "gone", "a list of line, number"),
        ("nonsense", "", "gone", "not JSON"),
        ('["a","b"]', "", "gone", "'number' of the key is Int32"),
        ('["a",1]', "[]", "", "an answer is an object"),
        ('["a",1]', '{"depot":"x"}', "", "lacks 'km'"),
        ('["a",1]', '{"depot":1,"km":2}', "", "'depot' of the answer is String"),
        ('["a",1]', "", "", "an answer, or the reason"),
        ('["a",3000000000]', "", "gone", "'number' of the key is Int32"),
        ('["a",1]', f'{{"depot":"x","km":{10**400}}}', "", "'km' of the answer is Float64"),
        ("[" * 100_000, "", "gone", "not JSON"),
    ],
)
def test_outcomes_that_make_no_sense_are_refused_where_they_are_read(key, answer, reason, message):
    what = lookup_join()
    row = {"key": key, "answer": answer, "reason": reason}
    assert message in what.refusal(row)
    side_input = pl.DataFrame([row]).with_columns(pl.lit(0).cast(INSTANT).alias("event_time"))
    assert what.accepted([side_input]).height == 0


def test_an_answer_may_have_nothing_in_a_column():
    what = lookup_join()
    assert what.refusal({"key": '["a",1]', "answer": '{"depot":null,"km":2}', "reason": ""}) is None


def test_an_answer_about_a_key_that_no_row_can_have_is_left_out():
    wide = tw.Lookup("depot", keys={"line": pl.String, "number": pl.Int64}, returns=DEPOT.returns)
    what = LookupJoin(wide, 5 * S, 100 * S, SCHEMA)
    side_input = outcomes((0, ("a", 3_000_000_000), depot("far")), (0, ("a", 1), depot("near")))
    assert [what.refusal(row) for row in side_input.iter_rows(named=True)] == [None, None]
    found = what.accepted([side_input])
    assert found.select("number", "depot").rows() == [(1, "near")]
    assert found.schema["number"] == pl.Int32


def test_rows_from_the_future_are_distinguished_also_after_a_select(log):
    """By default no event is believed that is more than a minute ahead of the log's clock."""
    positions = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    lookup = tw.Lookup("depot", keys={"vehicle": pl.Int32}, returns={"depot": pl.String})
    flow = positions.select("vehicle").lookup(lookup).flow()
    frame = pl.DataFrame({"event_time": [0, 120 * S], "vehicle": [1, 2], "speed": [1.0, 2.0], "_arrival": [0, 0]})
    frame = frame.with_columns(pl.col("event_time").cast(INSTANT), pl.col("vehicle").cast(pl.Int32))
    exchange_batches: dict[int, ExchangeBatch] = {}
    Partitioner([flow], 1).partition(exchange_batches, flow.name, [Rows(frame)], None, arrival="_arrival")
    found = {type(part): frame for part, frame in ExchangeBatch.read(exchange_batches[0].to_bytes())}
    assert found[StageRows]["vehicle"].to_list() == [1]
    assert found[LateRows].select("vehicle", "late_reason").rows() == [(2, "from the future")]
