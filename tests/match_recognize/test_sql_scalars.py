"""Scalar expressions: SQL's meaning as columns, and the same value by value in conditions."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.errors import StatementError
from tidewheel.match_recognize.expressions.to_polars import Columns
from tidewheel.match_recognize.expressions.to_python import compile_value
from tidewheel.match_recognize.syntax.scalar import read_scalar
from tidewheel.match_recognize.syntax.tokens import tokens_of

ROWS = {
    "i": [7, -7, None],
    "f": [2.5, 0.0, None],
    "s": ["Hé llo", "50%", None],
    "t": [datetime(2026, 1, 31, 3, 4, 5), datetime(2027, 1, 1), None],
    "d": [date(2026, 1, 31), date(2027, 1, 1), None],
    "b": [True, False, None],
    "l": [[1, 2], [], None],
}
FRAME = pl.DataFrame(ROWS, schema_overrides={"t": pl.Datetime("us")})


def columns_of(text: str, frame: pl.DataFrame) -> tuple[Any, Columns]:
    scalar = read_scalar(text, tokens_of(text), "it", len(text))
    return scalar.tree, Columns(frame.schema, text=text, span=scalar.span, what="it")


def evaluated(text: str, frame: pl.DataFrame = FRAME) -> list[Any]:
    tree, columns = columns_of(text, frame)
    return frame.with_columns(columns.expression(tree).alias("it"))["it"].to_list()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("i + 1", [8, -6, None]),
        ("i - -1 * 2", [9, -5, None]),
        ("i / 2", [3.5, -3.5, None]),
        ("i % 4", [3, -3, None]),
        ("i DIV 2", [3, -3, None]),
        ("i / 0", [None, None, None]),
        ("i % 0", [None, None, None]),
        ("abs(i)", [7, 7, None]),
        ("round(f)", [3.0, 0.0, None]),
        ("power(i, 2)", [49.0, 49.0, None]),
        ("greatest(i, f)", [7.0, 0.0, None]),
        ("i > 0 OR b", [True, False, None]),
        ("i > 0 AND NOT b", [False, False, None]),
        ("b OR i IS NULL", [True, False, True]),
        ("i IN (7, NULL)", [True, None, None]),
        ("i NOT IN (1, 2)", [True, True, None]),
        ("i BETWEEN 0 AND 7", [True, False, None]),
        ("i NOT BETWEEN 0 AND 7", [False, True, None]),
        ("b IS TRUE", [True, False, False]),
        ("b IS NOT FALSE", [True, False, True]),
        ("i IS DISTINCT FROM 7", [False, True, True]),
        ("i IS NOT DISTINCT FROM NULL", [False, False, True]),
        ("CASE WHEN i > 0 THEN 'up' WHEN i < 0 THEN 'down' END", ["up", "down", None]),
        ("CASE i WHEN 7 THEN 1 ELSE 0 END", [1, 0, 0]),
        ("if(b, 1, 2)", [1, 2, 2]),
        ("coalesce(i, 0)", [7, -7, 0]),
        ("nullif(i, 7)", [None, -7, None]),
        ("s LIKE '%l_o'", [True, False, None]),
        ("s NOT LIKE '50!%' ESCAPE '!'", [True, False, None]),
        ("s ILIKE 'hÉ%'", [True, False, None]),
        ("s RLIKE '[0-9]+'", [False, True, None]),
        ("s || '!'", ["Hé llo!", "50%!", None]),
        ("concat(s, i)", ["Hé llo7", "50%-7", None]),
        ("upper(s)", ["HÉ LLO", "50%", None]),
        ("length(s)", [6, 3, None]),
        ("substring(s, 2, 3)", ["é l", "0%", None]),
        ("substring(s FROM 2)", ["é llo", "0%", None]),
        ("substr(s, -2)", ["lo", "0%", None]),
        ("position('l' IN s)", [4, 0, None]),
        ("trim(BOTH 'H' FROM s)", ["é llo", "50%", None]),
        ("replace(s, 'l', 'L')", ["Hé LLo", "50%", None]),
        ("left(s, 2)", ["Hé", "50", None]),
        ("starts_with(s, 'H')", [True, False, None]),
        ("t > '2026-06-01'", [False, True, None]),
        ("t >= d", [True, True, None]),
        ("t - INTERVAL '1' DAY", [datetime(2026, 1, 30, 3, 4, 5), datetime(2026, 12, 31), None]),
        ("t + INTERVAL '1' MONTH", [datetime(2026, 2, 28, 3, 4, 5), datetime(2027, 2, 1), None]),
        ("t - TIMESTAMP '2026-01-31 03:04:00'", [timedelta(seconds=5), timedelta(days=334, seconds=75_360), None]),
        ("t - t > INTERVAL '1' SECOND", [False, False, None]),
        ("d = DATE '2026-01-31'", [True, False, None]),
        ("extract(MINUTE FROM t)", [4, 0, None]),
        ("year(t)", [2026, 2027, None]),
        ("date_trunc('hour', t)", [datetime(2026, 1, 31, 3), datetime(2027, 1, 1), None]),
        ("CAST(i AS DOUBLE)", [7.0, -7.0, None]),
        ("CAST(i AS VARCHAR)", ["7", "-7", None]),
        ("TRY_CAST(s AS BIGINT)", [None, None, None]),
        ("CAST('12' AS BIGINT)", [12, 12, 12]),
        ("l[1]", [1, None, None]),
        ("cardinality(l)", [2, 0, None]),
        ("ARRAY[i, 1]", [[7, 1], [-7, 1], [None, 1]]),
        ("array_max(l)", [2, None, None]),
        ("initcap(s)", ["Hé Llo", "50%", None]),
        ("NULL", [None, None, None]),
    ],
)
def test_expressions_mean_what_they_mean_in_sql(text, values):
    assert evaluated(text) == values
    assert by_value(text) == values


def by_value(text: str, frame: pl.DataFrame = FRAME) -> list[Any]:
    tree, columns = columns_of(text, frame)
    getters = {name: (lambda row, name=name: row[name]) for name in frame.columns}
    compiled = compile_value(tree, columns, getters)
    return [_listed(compiled(row)) for row in frame.rows(named=True)]


def _listed(value: Any) -> Any:
    return value.to_list() if isinstance(value, pl.Series) else value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("i + s", "the types do not fit"),
        ("i AND b", "a condition is true or false, this is Int64"),
        ("nothing(i)", "no function NOTHING"),
        ("s LIKE s", "LIKE takes a pattern in quotes"),
        ("CAST(i AS BLOB)", "is not known here"),
        ("INTERVAL '1' MONTH", "months and years"),
        ("current_timestamp", "is not known here"),
        ("date_trunc('eon', t)", "knows no unit eon"),
        ("t > 'yesterday'", "the types do not fit"),
        ("extract(EPOCH FROM t)", "EXTRACT knows"),
        ("i.x", "there is no column x"),
        ("ARRAY[]", "has no type"),
        ("x + 1", "there is no column x, only i, f, s"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_when_defined(text, problem):
    with pytest.raises(StatementError, match=problem):
        evaluated(text)


NUMBERS = st.recursive(
    st.sampled_from(["a", "b", "x", "y", "1", "2.5", "0", "NULL"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "%"]), inner).map(lambda part: f"({' '.join(part)})"),
        inner.map(lambda part: f"(- {part})"),
        inner.map(lambda part: f"abs({part})"),
        st.tuples(inner, inner).map(lambda part: f"coalesce({', '.join(part)})"),
    ),
    max_leaves=4,
)
CONDITIONS = st.recursive(
    st.one_of(
        st.tuples(NUMBERS, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), NUMBERS).map(" ".join),
        NUMBERS.map(lambda part: f"{part} IS NULL"),
        st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda part: f"{part[0]} BETWEEN {part[1]} AND {part[2]}"),
        st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda part: f"{part[0]} IN ({part[1]}, {part[2]})"),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda part: f"({' '.join(part)})"),
        inner.map(lambda part: f"(NOT {part})"),
    ),
    max_leaves=4,
)
WHOLE = st.one_of(st.none(), st.integers(-3, 3))
BROKEN = st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 2.5, float("nan"), float("inf")]))


@settings(max_examples=200, deadline=None)
@given(CONDITIONS, st.lists(st.tuples(WHOLE, WHOLE, BROKEN, BROKEN), min_size=1, max_size=3))
def test_value_by_value_is_as_in_columns(text, rows):
    schema = {"a": pl.Int64, "b": pl.Int64, "x": pl.Float64, "y": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    try:
        wanted = evaluated(text, frame)
    except StatementError:
        with pytest.raises(StatementError):
            by_value(text, frame)
        return
    assert by_value(text, frame) == wanted
