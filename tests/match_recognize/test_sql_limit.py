"""Attempts that go on and on: those that take too many rows are given up, and the others are not searched anew."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.match_recognize.test_sql_batches import CUTS, SECOND, events, made, through_bytes
from tidewheel.match_recognize import ClauseMatcher, parse
from tidewheel.match_recognize.matching.backtracking import Search
from tidewheel.model.panes import END_OF_TIME

ENDLESS = "MEASURES FIRST(at) AS f, count(*) AS n PATTERN ({}) DEFINE A AS value > 0, B AS value > {}"


def stepped(one: ClauseMatcher, frame: pl.DataFrame, cuts: list[int], limit: int) -> tuple[list[tuple], list[tuple]]:
    state: dict[str, pl.DataFrame] = {}
    rows, given_up, before = [], [], -1
    for cut in [*sorted(cuts), None]:
        second = pl.col("at").cast(pl.Int64) // SECOND
        own = frame.filter((second >= before) & (second < cut) if cut is not None else second >= before)
        done = one.advance(through_bytes(state), own, cut * SECOND if cut is not None else END_OF_TIME, limit=limit)
        rows += done.rows.rows()
        given_up += done.given_up.rows()
        assert done.given_up.schema == one.given_up
        state = done.state
        before = cut if cut is not None else before
    return sorted(rows, key=repr), sorted(given_up, key=repr)


ROWS = st.lists(st.tuples(st.sampled_from(["a", None]), st.integers(0, 12), st.integers(0, 3)), max_size=16)
PATTERNS = ["A+ B", "A+ B?", "A B* A", "(A | B A)+? B", "A{2,} B", "B+ A"]
CONDITIONS = ["1", "2 AND value > FIRST(A.value)"]


@settings(max_examples=60)
@given(
    st.sampled_from(PATTERNS),
    st.sampled_from(CONDITIONS),
    st.sampled_from(["", " WITHIN INTERVAL '4' SECOND"]),
    ROWS,
    CUTS,
    st.integers(1, 5),
)
def test_it_does_not_matter_in_which_batches_the_rows_come(pattern, condition, within, rows, cuts, limit):
    one = made(ENDLESS.format(pattern, condition).replace(" DEFINE", f"{within} DEFINE"))
    frame = events(*rows)
    assert stepped(one, frame, cuts, limit) == stepped(one, frame, [], limit)


def test_what_is_given_up_is_reported_and_the_search_goes_on_after_it():
    one = made(ENDLESS.format("A+ B", 2))
    frame = events(*(("a", second, 1) for second in range(5)), ("a", 5, 3), ("b", 1, 1), ("b", 2, 3))
    rows, given_up = stepped(one, frame, [3, 6], 3)
    assert [(key, first.second, last.second, count) for key, first, last, count in given_up] == [("a", 0, 2, 3)]
    assert [(key, first.second, count) for key, first, count in rows] == [("a", 3, 3), ("b", 1, 2)]
    assert stepped(one, frame, [3, 6], 6)[1] == []


def test_rows_given_up_are_unmatched_rows():
    one = made("MEASURES count(*) AS n ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A+) DEFINE A AS value > 0")
    frame = events(*(("a", second, 1) for second in range(5)))
    rows, _ = stepped(one, frame, [2, 4], 3)
    assert sorted((row[1].second, row[2]) for row in rows) == [(0, None), (1, None), (2, None), (3, 1), (4, 2)]


@pytest.mark.parametrize("within", ["", "WITHIN INTERVAL '1' HOUR"])
def test_an_open_attempt_is_looked_at_from_where_it_stood(monkeypatch, within):
    """A+ that goes on costs each batch its own rows, not all that came before."""
    asked = []
    search = Search.match

    def watched(self, start, partition, *others):
        resumed = others[-1] if len(others) == 6 else None
        asked.append(partition.last - (start if resumed is None else resumed.row))
        return search(self, start, partition, *others)

    monkeypatch.setattr(Search, "match", watched)
    one = made(f"MEASURES count(*) AS n PATTERN (A+) {within} DEFINE A AS value > 0")
    state: dict[str, pl.DataFrame] = {}
    for batch in range(50):
        rows = events(*(("a", batch * 4 + second, 1) for second in range(4)))
        found, state = one.step(state, rows, (batch * 4 + 4) * SECOND)
        assert not len(found)
    assert asked == [4] * 50
    found, _ = one.step(state, events(("a", 300, 0)), 301 * SECOND)
    assert found.rows() == [("a", 200)]


def test_the_query_of_a_clause_has_what_it_names_of_the_statement():
    clause = "MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS x > 1)"
    parsed = parse(
        f"""WITH a AS (SELECT 1 AS x), b (y) AS (SELECT x FROM a {clause}), c AS (SELECT 3)
        SELECT * FROM b {clause} JOIN (WITH q AS (SELECT * FROM a {clause}) SELECT * FROM q {clause})"""
    )
    assert [one.query for one in parsed.recognitions] == [
        "WITH a AS (SELECT 1 AS x) (SELECT * FROM a)",
        "WITH b (y) AS (SELECT x FROM match_recognize_1) (SELECT * FROM b)",
        "WITH a AS (SELECT 1 AS x) (SELECT * FROM a)",
        "WITH q AS (SELECT * FROM match_recognize_3) (SELECT * FROM q)",
    ]
    recursive = f"WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT * FROM r {clause}"
    assert parse(recursive).recognitions[0].query.startswith("WITH RECURSIVE r AS (SELECT 1 AS x UNION")
