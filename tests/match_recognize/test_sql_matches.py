"""Which rows a pattern matches, and for which variables."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from tests.match_recognize.sql_support import labels, matcher, numbers, recognize, statement
from tidewheel.engine.checkpoint.definition import described
from tidewheel.errors import MatchError
from tidewheel.match_recognize import parse


def test_rows_follow_each_other_without_a_gap():
    assert labels("A B", "A AS value = 1, B AS value = 2", [1, 2, 1, 3, 2, 1, 2]) == ["AB", "AB"]


def test_the_first_alternative_that_leads_to_a_match_is_taken():
    assert labels("(A | B) C", "A AS value < 5, B AS true, C AS value = 9", [1, 9, 7, 9]) == ["AC", "BC"]
    assert labels("(A | A B) C?", "A AS value = 1, B AS value = 2, C AS value = 3", [1, 2, 3]) == ["A"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("A*", ["AAA", "", "AA"]),
        ("A+", ["AAA", "AA"]),
        ("A?", ["A", "A", "A", "", "A", "A"]),
        ("A{2}", ["AA", "AA"]),
        ("A{2,}", ["AAA", "AA"]),
        ("A{,2}", ["AA", "A", "", "AA"]),
        ("A{1,2}", ["AA", "A", "AA"]),
        ("A*?", [""] * 6),
        ("A+?", ["A"] * 5),
        ("A??", [""] * 6),
        ("A{2,}?", ["AA", "AA"]),
        ("A{1,2}? B", ["AAB"]),
        ("A+? B", ["AAAB"]),
        ("(A A)+", ["AA", "AA"]),
        ("(A{2}){1}", ["AA", "AA"]),
    ],
)
def test_quantifiers_are_greedy_unless_a_question_mark_follows(pattern, found):
    define = "A AS value = 1" if "B" not in pattern else "A AS value = 1, B AS value = 2"
    assert labels(pattern, define, [1, 1, 1, 2, 1, 1]) == found


def test_anchors_hold_at_the_ends_of_the_partition_only():
    every = "A AS value > 0"
    assert labels("^ A", every, [1, 1, 1]) == ["A"]
    assert labels("A $", every, [1, 1, 1]) == ["A"]
    assert labels("^ A+ $", every, [1, 1, 1]) == ["AAA"]
    assert labels("A ^ A", every, [1, 1, 1]) == []
    assert labels("A $ A", every, [1, 1, 1]) == []


def test_permute_takes_all_orders_and_prefers_the_written_one():
    assert labels("PERMUTE(A, B, C)", "A AS true, B AS true, C AS value = 3", [3, 3, 3, 1, 3, 1]) == ["ABC", "ACB"]


def test_an_undefined_variable_takes_every_row():
    assert labels("A B", "B AS value = 2", [7, 2, None, 2]) == ["AB", "AB"]


def test_a_condition_that_is_null_does_not_hold():
    assert labels("A", "A AS value > 1", [None, 2]) == ["A"]
    assert labels("A", "A AS NOT (value > 1)", [None, 0]) == ["A"]


def test_an_empty_match_goes_on_with_the_next_row_and_has_a_number():
    frame = numbers(2, 1, 2)
    clause = "ORDER BY id MEASURES MATCH_NUMBER() AS n, count(*) AS c {} PATTERN (A*) DEFINE A AS value = 1"
    assert recognize(clause.format(""), frame) == [(1, 0), (2, 1), (3, 0)]
    shown = recognize(clause.format("ALL ROWS PER MATCH"), frame)
    assert shown == [(1, 1, 0, 2), (2, 2, 1, 1), (3, 3, 0, 2)]
    assert recognize(clause.format("ALL ROWS PER MATCH OMIT EMPTY MATCHES"), frame) == [(2, 2, 1, 1)]


def test_unmatched_rows_come_out_in_their_place_with_nothing_measured():
    clause = (
        "ORDER BY id MEASURES MATCH_NUMBER() AS n, count(*) AS c, 'x' AS x "
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS {} PATTERN (A A) DEFINE A AS value = 1"
    )
    rows = recognize(clause.format(""), numbers(1, 1, 1, 2, 1, 1))
    assert rows == [
        (1, 1, 1, "x", 1),
        (2, 1, 2, "x", 1),
        (3, None, None, None, 1),
        (4, None, None, None, 2),
        (5, 2, 1, "x", 1),
        (6, 2, 2, "x", 1),
    ]
    # A row that a match has taken is matched, though no match starts there.
    rows = recognize(clause.format("AFTER MATCH SKIP TO NEXT ROW"), numbers(1, 1, 1, 2))
    assert [row[:2] for row in rows] == [(1, 1), (2, 1), (2, 2), (3, 2), (4, None)]


def test_excluded_rows_are_matched_and_measured_but_do_not_come_out():
    clause = (
        "ORDER BY id MEASURES FINAL count(*) AS n ALL ROWS PER MATCH PATTERN (A {- B+ -} C) "
        "DEFINE A AS value = 1, B AS value = 2, C AS value = 3"
    )
    assert recognize(clause, numbers(1, 2, 2, 3)) == [(1, 4, 1), (4, 4, 3)]


@pytest.mark.parametrize(
    ("skip", "starts"),
    [
        ("PAST LAST ROW", [1, 5]),
        ("TO NEXT ROW", [1, 2, 3, 5]),
        ("TO FIRST C", [1, 3, 5]),
        ("TO LAST C", [1, 5]),
        ("TO C", [1, 5]),
        ("TO FIRST U", [1, 2, 3, 5]),
        ("TO LAST U", [1, 5]),
    ],
)
def test_the_search_goes_on_where_the_statement_says(skip, starts):
    clause = (
        f"ORDER BY id MEASURES FIRST(id) AS start AFTER MATCH SKIP {skip} PATTERN (A B* C C?) SUBSET U = (B, C) "
        "DEFINE B AS value = 2, C AS value = 3"
    )
    assert [start for (start,) in recognize(clause, numbers(1, 2, 3, 3, 1, 3))] == starts


@pytest.mark.parametrize(
    ("search", "found"),
    [("", ["AB", "A", "AB"]), ("SEEK", ["AB", "A", "AB"]), ("INITIAL", ["AB", "A"])],
)
def test_an_initial_match_begins_where_the_search_stands(search, found):
    assert labels("A B?", "A AS value = 1, B AS value = 2", [1, 2, 1, 0, 1, 2], search) == found
    assert labels("A B?", "A AS value = 1, B AS value = 2", [0, 1, 2], search) == (
        [] if search == "INITIAL" else ["AB"]
    )


def test_after_an_initial_match_that_is_not_found_all_rows_are_unmatched():
    clause = (
        "ORDER BY id MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH WITH UNMATCHED ROWS AFTER MATCH SKIP PAST LAST ROW "
        "INITIAL PATTERN (A) DEFINE A AS value = 1"
    )
    assert [row[1] for row in recognize(clause, numbers(1, 1, 0, 1))] == ["A", "A", None, None]


def test_initial_is_for_each_partition():
    frame = pl.DataFrame({"k": [1, 1, 2, 2], "id": [1, 2, 1, 2], "value": [1, 0, 0, 1]})
    clause = "PARTITION BY k ORDER BY id MEASURES A.id AS i INITIAL PATTERN (A) DEFINE A AS value = 1"
    assert recognize(clause, frame) == [(1, 1)]


def test_a_clause_is_stored_as_before_unless_it_is_initial():
    clause = "ORDER BY id MEASURES id AS i {} PATTERN (A) DEFINE A AS true"
    plain, seek, initial = (parse(statement(clause.format(word))).clause for word in ("", "SEEK", "INITIAL"))
    assert (repr(plain), described(plain)) == (repr(seek), described(seek))
    assert "initial" not in described(plain)
    assert described(initial) == {**described(plain), "initial": True}


def test_skipping_to_a_row_that_is_not_there_is_an_error():
    clause = "AFTER MATCH SKIP TO {} PATTERN (A B?) DEFINE A AS value = 1, B AS value = 2"
    with pytest.raises(MatchError, match="TO LAST B failed: it is not present"):
        recognize(clause.format("B"), numbers(1))
    with pytest.raises(MatchError, match="TO FIRST A failed: it is the first row"):
        recognize(clause.format("FIRST A"), numbers(1))


def test_partitions_are_apart_and_nulls_are_one_of_them():
    frame = pl.DataFrame(
        {
            "line": ["a", None, "b", "a", None, "b"],
            "car": [1, 1, 1, 1, 1, 2],
            "at": [2, 1, 1, 1, 2, 2],
            "value": [2, 1, 1, 1, 2, 2],
        }
    )
    clause = (
        "PARTITION BY line, car ORDER BY at MEASURES B.at AS at PATTERN (A B) DEFINE A AS value = 1, B AS value = 2"
    )
    assert recognize(clause, frame) == [(None, 1, 2), ("a", 1, 2)]
    assert recognize(clause.replace("value = 2", "value > PREV(value)"), frame) == [(None, 1, 2), ("a", 1, 2)]


def test_the_order_is_as_the_statement_says():
    frame = pl.DataFrame({"a": [1, 1, None, 2], "b": [1, 2, 3, 4]})

    def order(by: str) -> list[int]:
        clause = f"ORDER BY {by} MEASURES array_agg(b) AS bs PATTERN (A+) DEFINE A AS true"
        return recognize(clause, frame)[0][0]

    assert order("a, b") == [3, 1, 2, 4]
    assert order("a DESC, b DESC") == [4, 2, 1, 3]
    assert order("a NULLS LAST, b DESC") == [2, 1, 4, 3]
    assert order("a DESC NULLS FIRST") == [3, 4, 1, 2]


def test_within_holds_from_the_first_row_to_the_last_and_equal_is_out():
    begin = datetime(2026, 1, 1)
    frame = pl.DataFrame({"at": [begin + timedelta(seconds=s) for s in (0, 5, 9, 10, 30)], "value": [1, 2, 2, 2, 1]})
    clause = (
        "ORDER BY at MEASURES count(*) AS n PATTERN (A B+) WITHIN INTERVAL '10' SECOND "
        "DEFINE A AS value = 1, B AS value = 2"
    )
    assert recognize(clause, frame) == [(3,)]
    assert recognize(clause.replace("B+", "B B B"), frame) == []
    assert recognize(clause.replace("'10' SECOND", "'11' SECOND"), frame) == [(4,)]


def test_conditions_may_ask_for_rows_taken_so_far():
    values = [5, 3, 4, 6, 2, 7]
    assert labels("A B* C", "B AS value < A.value, C AS value > FIRST(value)", values) == ["ABBC", "AC"]
    assert labels("A B+", "B AS value > LAST(A.value) - 2 AND value < 100", values) == ["ABBBB"]
    assert labels("A B+ C", "B AS sum(B.value) < 8, C AS count(B.*) = 2", values) == ["ABBC"]
    assert labels("A+ B", "A AS avg(A.value) >= 4, B AS value < min(A.value)", values) == ["AAAAB"]


def test_prev_and_next_count_rows_of_the_partition_not_of_the_match():
    assert labels("A", "A AS PREV(value) = 1 AND NEXT(value) = 3", [1, 2, 3]) == ["A"]
    assert labels("A B", "B AS PREV(FIRST(A.value), 2) = 1", [1, 2, 3, 4]) == ["AB"]
    assert labels("A B", "B AS NEXT(FIRST(A.value), 2) = 4", [1, 2, 3, 4]) == ["AB"]
    assert labels("A", "A AS PREV(value, 5) IS NULL", [1]) == ["A"]


def test_conditions_know_the_variable_and_the_number_of_the_match():
    assert labels("(A | B)", "A AS MATCH_NUMBER() = 2", [1, 1, 1]) == ["B", "A", "B"]
    assert labels("A B", "B AS PREV(CLASSIFIER()) = 'A' AND CLASSIFIER() = 'B'", [1, 1]) == ["AB"]
    assert labels('"a b" C', "C AS LAST(CLASSIFIER(), 1) = 'a b'", [1, 1]) == ["a bC"]


def test_loops_over_nothing_end():
    assert labels("()* A", "A AS value = 1", [1]) == ["A"]
    assert labels("(A?)*", "A AS value = 1", [1, 1, 2]) == ["AA", ""]
    assert labels("(A*)* B", "A AS value = 1, B AS value = 2", [1, 1, 2]) == ["AAB"]
    assert labels("((A | ())+ | B)+", "A AS value = 1, B AS value = 2", [1]) == ["A"]
    assert labels("(^* A?){2,}", "A AS value = 1", [1, 1]) == ["AA"]


@pytest.mark.parametrize(
    "pattern", ["(A+)+ B", "(A | A)* B", "(A* A*)* B", "(A? A?){20} B", "(A | C)+ B", "((A | C)+)+ B", "A* A* A* A* B"]
)
def test_easy_patterns_take_no_exponential_time(pattern):
    define = "B AS value = 2" if "C" not in pattern else "C AS value < 2, B AS value = 2"
    # Exponential time would be that of 2 ** 200 steps: it would not end.
    assert labels(pattern, define, [1] * 200) == []
    with_history = define + ", A AS value <= FIRST(value) AND count(A.value) > 0"
    assert labels(pattern.replace("A* A* A* A*", "A*"), with_history, [1] * 40) == []


def test_a_match_may_be_longer_than_pythons_stack_is_deep():
    assert [len(found) for found in labels("(A | B)+", "A AS value = 1", [1] * 20_000)] == [20_000]


def test_results_have_their_types_without_rows():
    frame = pl.DataFrame(schema={"k": pl.String, "at": pl.Datetime("us"), "v": pl.Int32, "w": pl.Float32})
    made = matcher(
        "PARTITION BY k ORDER BY at MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS c, sum(v) AS s, avg(w) AS a, "
        "LAST(at) - FIRST(at) AS d, array_agg(v) AS l, v > 1 AS b, 'x' AS x "
        "ALL ROWS PER MATCH PATTERN (A+) DEFINE A AS v > 0",
        frame,
    )
    expected = {
        "k": pl.String(),
        "at": pl.Datetime("us"),
        "n": pl.Int64(),
        "c": pl.String(),
        "s": pl.Int64(),
        "a": pl.Float32(),
        "d": pl.Duration("us"),
        "l": pl.List(pl.Int32()),
        "b": pl.Boolean(),
        "x": pl.String(),
        "v": pl.Int32(),
        "w": pl.Float32(),
    }
    assert dict(made.schema) == expected
    assert dict(made.run(frame).schema) == expected
    one = pl.DataFrame({"k": ["a"], "at": [datetime(2026, 1, 1)], "v": [1], "w": [1.5]}, schema=frame.schema)
    assert dict(made.run(one).schema) == expected


def test_the_row_of_an_empty_match_is_not_unmatched_too():
    clause = (
        "ORDER BY id MEASURES MATCH_NUMBER() AS n ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A* | B) "
        "DEFINE A AS value = 1, B AS value = 2"
    )
    assert recognize(clause, numbers(2, 1, 2)) == [(1, 1, 2), (2, 2, 1), (3, 3, 2)]
