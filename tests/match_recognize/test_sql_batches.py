"""Batch by batch the same rows come out as at once, each as soon as nothing that is still to come could change it."""

from __future__ import annotations

import io
from datetime import datetime, timezone

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.match_recognize.sql_support import matcher
from tests.match_recognize.test_sql_generated import DEFINES, PATTERNS, SEARCHES, _defined, text
from tidewheel.errors import CheckpointError
from tidewheel.match_recognize import ClauseMatcher, parse
from tidewheel.model.panes import END_OF_TIME

SECOND = 1_000_000
TIME = pl.Datetime("us", "UTC")
SCHEMA = {"k": pl.String(), "at": TIME, "value": pl.Int64()}


def events(*rows: tuple[str | None, int, int | None]) -> pl.DataFrame:
    """Rows of key, second and value, in the order of (key, time)."""
    frame = pl.DataFrame(rows, schema={"k": pl.String, "at": pl.Int64, "value": pl.Int64}, orient="row")
    return frame.with_columns((pl.col("at") * SECOND).cast(TIME)).sort("k", "at", maintain_order=True)


def made(clause: str) -> ClauseMatcher:
    return ClauseMatcher(parse(f"SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY at {clause})").clause, SCHEMA)


def through_bytes(state: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    kept = {}
    for name, frame in state.items():
        buffer = io.BytesIO()
        frame.write_ipc(buffer)
        kept[name] = pl.read_ipc(io.BytesIO(buffer.getvalue()))
    return kept


def stepped(one: ClauseMatcher, frame: pl.DataFrame, cuts: list[int]) -> list[tuple]:
    """The rows of all batches; a batch has the events of some seconds, and its end is the watermark."""
    state: dict[str, pl.DataFrame] = {}
    rows: list[tuple] = []
    before = -1
    for cut in [*sorted(cuts), None]:
        second = pl.col("at").cast(pl.Int64) // SECOND
        own = frame.filter((second >= before) & (second < cut) if cut is not None else second >= before)
        found, state = one.step(through_bytes(state), own, cut * SECOND if cut is not None else END_OF_TIME)
        assert found.schema == one.schema
        rows += found.rows()
        before = cut if cut is not None else before
    assert not len(state["rows"]) or one._partitions._behind
    return sorted(rows, key=repr)


ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 12), st.one_of(st.none(), st.integers(0, 3))),
    max_size=14,
)
CUTS = st.lists(st.integers(0, 14), max_size=8)
SHAPES = [
    "MEASURES MATCH_NUMBER() AS n, array_agg(CLASSIFIER()) AS l, PREV(FIRST(value), 2) AS p, NEXT(LAST(value), 2) AS x",
    "MEASURES FIRST(at) AS f, LAST(at) AS l",
    "MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS c, sum(value) AS s ALL ROWS PER MATCH",
    "MEASURES MATCH_NUMBER() AS n, NEXT(value) AS x ALL ROWS PER MATCH WITH UNMATCHED ROWS",
]


@settings(max_examples=75, deadline=None)
@given(
    PATTERNS,
    DEFINES,
    ROWS,
    CUTS,
    st.sampled_from(SHAPES),
    st.sampled_from(["PAST LAST ROW", "TO NEXT ROW"]),
    st.sampled_from(["", "WITHIN INTERVAL '3' SECOND"]),
    SEARCHES,
)
def test_any_batches_give_the_rows_of_one(pattern, define, rows, cuts, shape, skip, within, search):
    conditions = ", ".join(f"{name} AS {condition}" for name, condition in _defined(pattern, define).items())
    one = made(f"{shape} AFTER MATCH SKIP {skip} {search} PATTERN ({text(pattern)}) {within} DEFINE {conditions}")
    frame = events(*rows)
    assert stepped(one, frame, cuts) == sorted(one.run(frame).rows(), key=repr)


STOP = (
    "MEASURES S.at AS at PATTERN (F B+ S) WITHIN INTERVAL '10' SECOND "
    "DEFINE F AS value = 3, B AS value = 2, S AS value = 0"
)


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, timezone.utc)


def test_a_match_comes_out_with_the_row_that_decides_it():
    one = made(STOP)
    rows, state = one.step({}, events(("a", 0, 3), ("a", 1, 2)), 2 * SECOND)
    assert rows.rows() == []
    rows, state = one.step(state, events(("a", 2, 2), ("a", 3, 0)), 4 * SECOND)
    assert rows.rows() == [("a", at(3))]
    assert not len(state["rows"])
    assert not len(state["partitions"])


def test_a_greedy_end_waits_for_a_row_that_does_not_fit_or_for_time():
    one = made("MEASURES count(*) AS n PATTERN (A+) WITHIN INTERVAL '10' SECOND DEFINE A AS value = 1")
    rows, state = one.step({}, events(("a", 0, 1), ("a", 1, 1), ("b", 0, 1), ("c", 3, 1)), 5 * SECOND)
    assert rows.rows() == []
    rows, state = one.step(state, events(("b", 6, 0)), 7 * SECOND)
    assert rows.rows() == [("b", 1)]
    rows, state = one.step(state, events(), 10 * SECOND)
    assert rows.rows() == [("a", 2)]
    rows, state = one.step(state, events(), END_OF_TIME)
    assert rows.rows() == [("c", 1)]


def test_a_reluctant_end_waits_for_nothing():
    one = made("MEASURES count(*) AS n PATTERN (A+?) DEFINE A AS value = 1")
    rows, _ = one.step({}, events(("a", 0, 1), ("a", 1, 1)), 2 * SECOND)
    assert rows.rows() == [("a", 1), ("a", 1)]


def test_only_rows_that_an_attempt_may_need_are_kept():
    one = made(STOP)
    _, state = one.step(
        {}, events(*[("a", second, 2) for second in range(50)], ("a", 50, 3), ("a", 51, 2)), 52 * SECOND
    )
    assert state["rows"]["value"].to_list() == [3, 2]
    _, state = one.step(state, events(), 60 * SECOND)
    assert not len(state["rows"])


def test_as_many_rows_before_are_kept_as_conditions_and_measures_look_back():
    one = made("MEASURES PREV(A.value, 3) AS p PATTERN (A) DEFINE A AS value > PREV(value)")
    rows, state = one.step({}, events(("a", 0, 1), ("a", 1, 0), ("a", 2, 0), ("a", 3, 0)), 4 * SECOND)
    assert rows.rows() == []
    assert len(state["rows"]) == 3
    rows, state = one.step(state, events(("a", 4, 5)), 5 * SECOND)
    assert rows.rows() == [("a", 0)]


def test_rows_that_a_measure_looks_ahead_to_are_waited_for():
    one = made("MEASURES NEXT(A.value) AS x PATTERN (A) DEFINE A AS value = 1")
    rows, state = one.step({}, events(("a", 0, 1)), 1 * SECOND)
    assert rows.rows() == []
    rows, _ = one.step(state, events(("a", 1, 7)), 2 * SECOND)
    assert rows.rows() == [("a", 7)]
    rows, _ = one.step(state, events(), END_OF_TIME)
    assert rows.rows() == [("a", None)]


def test_numbers_go_on_and_the_start_of_a_partition_comes_once():
    one = made("MEASURES MATCH_NUMBER() AS n PATTERN (^ A | B) DEFINE A AS value = 1, B AS value = 2")
    rows, state = one.step({}, events(("a", 0, 1)), 1 * SECOND)
    assert rows.rows() == [("a", 1)]
    rows, state = one.step(state, events(("b", 1, 1)), 2 * SECOND)
    rows, state = one.step(state, events(("a", 2, 1), ("a", 3, 2)), 4 * SECOND)
    assert rows.rows() == [("a", 2)]


def test_a_partition_whose_first_rows_did_not_match_stays_without_matches():
    one = made("MEASURES count(*) AS n INITIAL PATTERN (A B?) DEFINE A AS value = 1, B AS value = 2")
    rows, state = one.step({}, events(("a", 0, 1), ("b", 0, 0)), 1 * SECOND)
    assert rows.rows() == []
    rows, state = one.step(state, events(("a", 1, 2), ("a", 2, 1), ("b", 2, 1)), 3 * SECOND)
    assert rows.rows() == [("a", 2)]
    rows, state = one.step(state, events(("a", 3, 3), ("b", 3, 1)), 4 * SECOND)
    assert rows.rows() == [("a", 1)]
    rows, state = one.step(state, events(("a", 4, 1), ("a", 5, 0)), 6 * SECOND)
    assert rows.rows() == []
    assert not len(state["rows"])


def test_without_partitions_state_is_kept_through_empty_batches():
    clause = "MEASURES MATCH_NUMBER() AS n PATTERN (A) DEFINE A AS value = 1"
    frame = events(("a", 0, 1))
    one = matcher(clause, frame)
    rows, state = one.step({}, frame, 1 * SECOND)
    assert rows.rows() == [(1,)]
    _, state = one.step(state, frame.clear(), 2 * SECOND)
    rows, _ = one.step(state, frame, END_OF_TIME)
    assert rows.rows() == [(2,)]


def test_a_state_of_another_version_or_statement_is_refused():
    one = made(STOP)
    _, state = one.step({}, events(("a", 0, 3)), 1 * SECOND)
    with pytest.raises(CheckpointError, match="version 99"):
        one.step({**state, "version": pl.DataFrame({"version": [99]})}, events(), None)
    with pytest.raises(CheckpointError, match="columns"):
        one.step({**state, "rows": state["rows"].drop("value")}, events(), None)


def test_a_row_of_a_match_that_came_out_before_is_not_unmatched_later():
    one = made(
        "MEASURES MATCH_NUMBER() AS n ALL ROWS PER MATCH WITH UNMATCHED ROWS AFTER MATCH SKIP TO NEXT ROW "
        "PATTERN (A A) DEFINE A AS value = 1"
    )
    rows, state = one.step({}, events(("a", 0, 1), ("a", 1, 1)), 2 * SECOND)
    assert rows["n"].to_list() == [1, 1]
    rows, _ = one.step(state, events(("a", 2, 2)), END_OF_TIME)
    assert rows.rows() == [("a", at(2), None, 2)]
