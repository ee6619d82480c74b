"""What measures say of a match: running or final, over a variable, a union of some, or all rows."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.match_recognize.sql_support import matcher, numbers, recognize
from tidewheel.errors import StatementError
from tidewheel.match_recognize.compile import measures

DEFINE = "DEFINE A AS value < 3, B AS value >= 3"
VALUES = [1, 4, 2, 6]  # A B A B


def one_row(measure: str, values: list[Any] = VALUES) -> Any:
    clause = f"ORDER BY id MEASURES {measure} AS m PATTERN ((A | B)+) SUBSET U = (A, B) {DEFINE}"
    return recognize(clause, numbers(*values))[0][0]


def all_rows(measure: str, values: list[Any] = VALUES) -> list[Any]:
    clause = f"ORDER BY id MEASURES {measure} AS m ALL ROWS PER MATCH PATTERN ((A | B)+) SUBSET U = (A, B) {DEFINE}"
    return [row[1] for row in recognize(clause, numbers(*values))]


@pytest.mark.parametrize(
    ("measure", "last", "each"),
    [
        ("value", 6, [1, 4, 2, 6]),
        ("A.value", 2, [1, 1, 2, 2]),
        ("B.value", 6, [None, 4, 4, 6]),
        ("U.value", 6, [1, 4, 2, 6]),
        ("FIRST(B.value)", 4, [None, 4, 4, 4]),
        ("FIRST(value, 1)", 4, [None, 4, 4, 4]),
        ("LAST(value, 2)", 4, [None, None, 1, 4]),
        ("FINAL LAST(value, 2)", 4, [4, 4, 4, 4]),
        ("FINAL LAST(A.value)", 2, [2, 2, 2, 2]),
        ("FINAL FIRST(B.value)", 4, [4, 4, 4, 4]),
        ("RUNNING LAST(B.value) - FIRST(A.value)", 5, [None, 3, 3, 5]),
        ("PREV(value)", 2, [None, 1, 4, 2]),
        ("PREV(FIRST(B.value), 1)", 1, [None, 1, 1, 1]),
        ("NEXT(value)", None, [4, 2, 6, None]),
        ("NEXT(FIRST(value), 3)", 6, [6, 6, 6, 6]),
        ("PREV(FINAL LAST(value), 0)", 6, [6, 6, 6, 6]),
        ("CLASSIFIER()", "B", ["A", "B", "A", "B"]),
        ("CLASSIFIER(A)", "A", ["A", "A", "A", "A"]),
        ("NEXT(CLASSIFIER())", None, ["B", "A", "B", None]),
        ("FIRST(CLASSIFIER(U), 1)", "B", [None, "B", "B", "B"]),
        ("LAST(CLASSIFIER() || CAST(value AS VARCHAR))", "B6", ["A1", "B4", "A2", "B6"]),
        ("MATCH_NUMBER()", 1, [1, 1, 1, 1]),
        ("count(*)", 4, [1, 2, 3, 4]),
        ("FINAL count(*)", 4, [4, 4, 4, 4]),
        ("count(B.*)", 2, [0, 1, 1, 2]),
        ("count(U.*)", 4, [1, 2, 3, 4]),
        ("sum(value)", 13, [1, 5, 7, 13]),
        ("sum(B.value)", 10, [None, 4, 4, 10]),
        ("FINAL sum(A.value)", 3, [3, 3, 3, 3]),
        ("avg(A.value)", 1.5, [1.0, 1.0, 1.5, 1.5]),
        ("min(B.value)", 4, [None, 4, 4, 4]),
        ("max(value) - min(value)", 5, [0, 3, 3, 5]),
        ("array_agg(value)", [1, 4, 2, 6], [[1], [1, 4], [1, 4, 2], [1, 4, 2, 6]]),
        ("array_agg(B.value)", [4, 6], [None, [4], [4], [4, 6]]),
        ("collect_list(B.value)", [4, 6], [[], [4], [4], [4, 6]]),
        ("string_agg(CLASSIFIER(), '-')", "A-B-A-B", ["A", "A-B", "A-B-A", "A-B-A-B"]),
        ("max_by(id, value)", 4, [1, 2, 2, 4]),
        ("min_by(B.id, B.value)", 2, [None, 2, 2, 2]),
        ("array_join(array_agg(CLASSIFIER()), '-')", "A-B-A-B", ["A", "A-B", "A-B-A", "A-B-A-B"]),
        ("concat_ws('+', array_agg(B.value), 'x', value)", "4+6+x+6", ["x+1", "4+x+4", "4+x+2", "4+6+x+6"]),
        ("cardinality(array_agg(B.value))", 2, [None, 1, 1, 2]),
        ("min(value, 2)", [1, 2], [[1], [1, 4], [1, 2], [1, 2]]),
        ("max(B.value, 3)", [6, 4], [None, [4], [4], [6, 4]]),
        ("FINAL max(value, 1)", [6], [[6], [6], [6], [6]]),
        ("min_by(id, value, 2)", [1, 3], [[1], [1, 2], [1, 3], [1, 3]]),
        ("max_by(CLASSIFIER(), value, 2)", ["B", "B"], [["A"], ["B", "A"], ["B", "A"], ["B", "B"]]),
        ("max_by(id, CLASSIFIER())", 2, [1, 2, 2, 2]),
        ("map_keys(map_agg(CLASSIFIER(), value))", ["A", "B"], [["A"], ["A", "B"], ["A", "B"], ["A", "B"]]),
        ("map_values(map_agg(CLASSIFIER(), value))", [1, 4], [[1], [1, 4], [1, 4], [1, 4]]),
        ("map_agg(CLASSIFIER(), value)['B']", 4, [None, 4, 4, 4]),
        ("element_at(map_agg(id, value), 3)", 2, [None, None, 2, 2]),
        ("map_contains_key(map_agg(B.id, B.value), id)", True, [None, True, False, True]),
        ("reverse(slice(array_agg(value), 2, 2))", [2, 4], [[], [4], [2, 4], [2, 4]]),
        ("array_sort(array_distinct(array_agg(value % 2)))", [0, 1], [[1], [0, 1], [0, 1], [0, 1]]),
        ("contains(array_agg(value), 2)", True, [False, False, True, True]),
        ("count(DISTINCT CLASSIFIER())", 2, [1, 2, 2, 2]),
        ("sum(value) FILTER (WHERE value > 1)", 12, [None, 4, 6, 12]),
        ("count(*) FILTER (WHERE value > 1)", 3, [0, 1, 2, 3]),
        ("bool_or(CLASSIFIER() = 'B')", True, [False, True, True, True]),
        ("bool_and(value < 6)", False, [True, True, True, False]),
        ("count_if(value > 3)", 2, [0, 1, 1, 2]),
        ("sum(value * MATCH_NUMBER())", 13, [1, 5, 7, 13]),
        ("CASE WHEN count(*) > 2 THEN 'long' ELSE 'short' END", "long", ["short", "short", "long", "long"]),
        ("FIRST(value) IN (2, LAST(value))", False, [True, False, False, False]),
    ],
)
def test_measures_are_final_for_one_row_and_running_for_all(measure, last, each):
    assert one_row(measure) == last
    assert all_rows(measure) == each


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        ("value", None),
        ("CLASSIFIER()", None),
        ("count(*)", 0),
        ("sum(value)", None),
        ("array_agg(value)", None),
        ("MATCH_NUMBER()", 1),
        ("collect_list(value)", []),
        ("array_join(array_agg(value), '-')", None),
        ("concat_ws('-', array_agg(value))", ""),
        ("map_agg(id, value)", None),
        ("max(value, 2)", None),
        ("min_by(id, value, 2)", None),
        ("PREV(value)", None),
        ("coalesce(sum(value), 7)", 7),
    ],
)
def test_an_empty_match_has_no_rows_to_measure(measure, value):
    clause = f"ORDER BY id MEASURES {measure} AS m {{}} PATTERN (A*) DEFINE A AS value > 3"
    assert recognize(clause.format(""), numbers(1)) == [(value,)]
    assert recognize(clause.format("ALL ROWS PER MATCH"), numbers(1)) == [(1, value, 1)]


def test_nulls_count_where_they_count():
    values = [1, None, 2]
    clause = "ORDER BY id MEASURES {} AS m ALL ROWS PER MATCH PATTERN (A+) DEFINE A AS true"

    def running(measure: str) -> list[Any]:
        return [row[1] for row in recognize(clause.format(measure), numbers(*values))]

    assert running("count(value)") == [1, 1, 2]
    assert running("count(*)") == [1, 2, 3]
    assert running("sum(value)") == [1, 1, 3]
    assert running("max(value)") == [1, 1, 2]
    assert running("array_agg(value)") == [[1], [1, None], [1, None, 2]]
    assert running("collect_list(value)") == [[1], [1], [1, 2]]
    assert running("array_join(array_agg(value), ',')") == ["1", "1", "1,2"]
    assert running("array_join(array_agg(value), ',', '?')") == ["1", "1,?", "1,?,2"]
    assert running("concat_ws(',', array_agg(value), 'z')") == ["1,z", "1,z", "1,2,z"]
    assert running("max(value, 2)") == [[1], [1], [2, 1]]
    assert running("max_by(id, value, 2)") == [[1], [1], [3, 1]]
    assert running("map_agg(value, id)")[2] == [{"key": 1, "value": 1}, {"key": 2, "value": 3}]


def test_of_a_key_that_comes_again_a_map_has_the_first_value():
    clause = "ORDER BY id MEASURES map_agg(value, id) AS m PATTERN (A+) DEFINE A AS true"
    assert recognize(clause, numbers(7, 8, 7)) == [([{"key": 7, "value": 1}, {"key": 8, "value": 2}],)]


def test_the_columns_of_the_result_are_in_the_order_of_the_standard():
    frame = pl.DataFrame({"v": [1], "at": [2], "k": [3]})
    clause = "PARTITION BY k ORDER BY at MEASURES v + 1 AS m {} PATTERN (A) DEFINE A AS true"
    assert recognize(clause.format(""), frame) == [(3, 2)]
    assert recognize(clause.format("ALL ROWS PER MATCH"), frame) == [(3, 2, 2, 1)]


def test_a_column_of_the_order_that_was_named_before_comes_out_again_with_a_number():
    frame = pl.DataFrame({"v": [1], "at": [2], "k": [3], "K_1": [4]})
    clause = "PARTITION BY k ORDER BY at, K, at DESC MEASURES v + 1 AS m {} PATTERN (A) DEFINE A AS true"
    made = matcher(clause.format("ALL ROWS PER MATCH"), frame)
    assert made.schema.names() == ["k", "at", "k_2", "at_1", "m", "v", "K_1"]
    assert made.run(frame).rows() == [(3, 2, 3, 2, 2, 1, 4)]
    assert matcher(clause.format(""), frame).schema.names() == ["k", "m"]
    with pytest.raises(StatementError, match="has a column at_1 already"):
        matcher(clause.format("ALL ROWS PER MATCH").replace("AS m", "AS at_1"), frame)


def test_names_of_columns_are_found_whatever_their_case():
    frame = pl.DataFrame({"Speed": [1.0]})
    assert recognize("MEASURES A.SPEED AS m PATTERN (a) DEFINE A AS speed > 0", frame) == [(1.0,)]


AGGREGATES = {
    "count(v)": lambda values: sum(value is not None for value in values),
    "sum(v)": lambda values: sum(value for value in values if value is not None) if _any(values) else None,
    "min(v)": lambda values: min((value for value in values if value is not None), default=None),
    "max(v)": lambda values: max((value for value in values if value is not None), default=None),
    "array_agg(v)": lambda values: values or None,
    "array_join(array_agg(v), ' ')": lambda values: " ".join(map(str, _known(values))) if values else None,
    "min(v, 2)": lambda values: sorted(_known(values))[:2] or None,
    "max(v, 3)": lambda values: sorted(_known(values), reverse=True)[:3] or None,
    "max_by(v, v, 2)": lambda values: sorted(_known(values), reverse=True)[:2] or None,
    "map_keys(map_agg(v, v))": lambda values: list(dict.fromkeys(_known(values))) or None,
    "count(DISTINCT v)": lambda values: len({value for value in values if value is not None}),
}


def _known(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _any(values: list[Any]) -> bool:
    return any(value is not None for value in values)


@settings(max_examples=75, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(-5, 5))), min_size=1, max_size=9),
    st.sampled_from(sorted(AGGREGATES)),
    st.sampled_from(["", "A.", "B."]),
)
def test_aggregates_agree_with_plain_python(rows, aggregate, variable):
    frame = pl.DataFrame(rows, schema={"kind": pl.String, "v": pl.Int64}, orient="row")
    call = re.sub(r"\bv\b", f"{variable}v", aggregate)
    name = re.findall(r"[a-z_]+", aggregate)[1 if "_agg(" in aggregate and not aggregate.startswith("array_agg") else 0]
    final = call.replace(f"{name}(", f"FINAL {name}(")
    clause = (
        f"MEASURES {call} AS running, {final} AS final ALL ROWS PER MATCH PATTERN ((A | B)+) "
        f"DEFINE A AS kind = 'a', B AS kind = 'b'"
    )
    mine = [
        [value for kind, value in rows[:upto] if variable in ("", f"{kind.upper()}.")]
        for upto in range(1, len(rows) + 1)
    ]
    wanted = [AGGREGATES[aggregate](values) for values in mine]
    found = recognize(clause, frame)
    assert [row[0] for row in found] == wanted
    assert [row[1] for row in found] == [wanted[-1]] * len(rows)


@settings(max_examples=75, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(-5, 5)), min_size=1, max_size=9), st.sampled_from(sorted(AGGREGATES)))
def test_aggregates_in_conditions_are_over_the_rows_so_far(values, aggregate):
    kind = AGGREGATES[aggregate]([1])
    call = {list: f"cardinality({aggregate})", str: f"length({aggregate})"}.get(type(kind), aggregate)
    frame = pl.DataFrame({"v": values}, schema={"v": pl.Int64})
    found = recognize(f"MEASURES count(*) AS n PATTERN (^ A+) DEFINE A AS {call} BETWEEN -2 AND 3", frame)
    length = 0
    for upto in range(1, len(values) + 1):
        result = AGGREGATES[aggregate](values[:upto])
        result = len(result) if isinstance(result, list | str) else result
        if result is None or not -2 <= result <= 3:
            break
        length = upto
    assert found == ([(length,)] if length else [])


@settings(max_examples=75, deadline=None)
@given(
    st.lists(st.none() | st.sampled_from([-1.0, 2.0, 4.0, float("nan")]), min_size=1, max_size=6),
    st.sampled_from(["min", "max"]),
)
def test_least_and_greatest_values_are_the_same_in_conditions_and_measures_wherever_a_nan_stands(values, aggregate):
    frame = pl.DataFrame({"v": values}, schema={"v": pl.Float64})
    measured = recognize(f"MEASURES {aggregate}(v) AS m ALL ROWS PER MATCH PATTERN (A+) DEFINE A AS true", frame)
    found = recognize(f"MEASURES count(*) AS n PATTERN (^ A+) DEFINE A AS {aggregate}(v) > 0", frame)
    above = [value is not None and (value > 0 or value != value) for value, *_ in measured]  # NaN is above all
    length = ([*above, False]).index(False)
    assert found == ([(length,)] if length else [])


def test_running_aggregates_are_computed_in_pieces(monkeypatch):
    monkeypatch.setattr(measures, "_PAIRS", 10)
    values = list(range(12))
    clause = "ORDER BY id MEASURES count(DISTINCT value) AS m ALL ROWS PER MATCH PATTERN (A+) DEFINE A AS value <> 5"
    found = [row[1] for row in recognize(clause, numbers(*values))]
    assert found == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6]
