"""Statements come apart into clauses, what they read, and the statement around them; malformed ones show the place."""

from __future__ import annotations

import pickle

import polars as pl
import pytest

from tests.match_recognize.sql_support import matcher, statement
from tidewheel.errors import DefinitionError, StatementError
from tidewheel.match_recognize import ClauseMatcher, has_match_recognize, parse

EMERGENCY_STOP = """SELECT s.vehicle, s.drop
FROM (SELECT * FROM positions WHERE speed IS NOT NULL) AS p MATCH_RECOGNIZE (
    PARTITION BY operator, vehicle
    ORDER BY event_time DESC NULLS LAST, "line no" ASC
    MEASURES FIRST(F.speed) - FINAL LAST(S.speed) AS drop, count(B.*) AS braking  -- (a comment
    ALL ROWS PER MATCH OMIT EMPTY MATCHES
    AFTER MATCH SKIP TO LAST B
    PATTERN (^ (F {- B+? -} | PERMUTE(F, S)) S{1,3} $)
    SUBSET U = (F, B), W = (S)
    DEFINE F AS speed >= 10, B AS acc < 0 /* ) */, S AS speed < 1 AND CLASSIFIER(U) = 'B')
AS s WHERE s.drop > 3 ORDER BY s.drop"""

POSITIONS = pl.DataFrame(
    schema={
        "operator": pl.Int64,
        "vehicle": pl.String,
        "event_time": pl.Datetime("us", "UTC"),
        "line no": pl.Int64,
        "speed": pl.Float64,
        "acc": pl.Float64,
        "place": pl.Struct({"lat": pl.Float64}),
    }
)
OTHER_TYPES = pl.DataFrame(schema={"id": pl.Int64, "value": pl.Int64, "name": pl.String})


def test_a_statement_comes_apart():
    parsed = parse(EMERGENCY_STOP)
    assert parsed.outer == "SELECT s.vehicle, s.drop\nFROM match_recognize_1\nAS s WHERE s.drop > 3 ORDER BY s.drop"
    assert parsed.relation == "(SELECT * FROM positions WHERE speed IS NOT NULL) AS p"
    assert parsed.name == "match_recognize_1"
    clause = parsed.clause
    assert [column.name for column in clause.partition_by] == ["operator", "vehicle"]
    order = [(item.column.name, item.descending, item.nulls_last) for item in clause.order_by]
    assert order == [("event_time", True, True), ("line no", False, False)]
    assert [measure.name for measure in clause.measures] == ["drop", "braking"]
    assert (clause.rows, clause.skip.to, clause.skip.variable) == ("all but empty", "last", "B")
    assert clause.subsets == {"U": ("F", "B"), "W": ("S",)}
    assert clause.variables == ("F", "B", "S")
    assert list(clause.define) == ["F", "B", "S"]


def test_the_clauses_may_stand_on_tables_with_aliases_and_in_other_queries():
    clause = "MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS x > 1)"
    parsed = parse(f"SELECT * FROM (SELECT y FROM a.b t {clause} WHERE y > 2) JOIN c {clause} USING (y);")
    assert [one.relation for one in parsed.recognitions] == ["a.b t", "c"]
    assert parsed.outer == (
        "SELECT * FROM (SELECT y FROM match_recognize_1 WHERE y > 2) JOIN match_recognize_2 USING (y)"
    )


def test_a_clause_may_read_another():
    parsed = parse(
        "SELECT * FROM (SELECT * FROM t MATCH_RECOGNIZE (MEASURES 1 AS x PATTERN (A) DEFINE A AS y > 1)) "
        "MATCH_RECOGNIZE (PATTERN (B) DEFINE B AS x > 1) AS m, match_recognize_2"
    )
    inner, outer = parsed.recognitions
    assert outer.relation == f"(SELECT * FROM {inner.name})"
    assert parsed.outer == f"SELECT * FROM {outer.name} AS m, match_recognize_2"
    assert outer.name != "match_recognize_2"
    with pytest.raises(ValueError, match="2 MATCH_RECOGNIZE"):
        parsed.clause  # noqa: B018


def test_the_clause_is_distinguished_from_the_word():
    assert has_match_recognize(EMERGENCY_STOP)
    assert has_match_recognize("select * from t match_recognize (")
    assert has_match_recognize("select * from t match_recognize ('")
    assert not has_match_recognize("SELECT 'MATCH_RECOGNIZE (' FROM t -- MATCH_RECOGNIZE (")
    assert not has_match_recognize("SELECT match_recognize FROM t")


def test_names_of_parts_may_be_names_of_columns():
    parsed = parse(
        statement("PARTITION BY define, one MEASURES LAST(A.pattern) AS after PATTERN (A) DEFINE A AS all.x = 1")
    )
    assert [column.name for column in parsed.clause.partition_by] == ["define", "one"]
    assert parsed.clause.measures[0].name == "after"


def test_first_and_last_may_be_names_of_variables():
    assert (
        parse(statement("AFTER MATCH SKIP TO LAST PATTERN (A LAST) DEFINE A AS x = 1")).clause.skip.variable == "LAST"
    )
    assert parse(statement("AFTER MATCH SKIP TO LAST A PATTERN (A) DEFINE A AS x = 1")).clause.skip.variable == "A"


def refusal(text: str) -> DefinitionError | None:
    """Why a statement over positions is refused, if it is; anything but a refusal is let through."""
    try:
        for recognition in parse(text).recognitions:
            ClauseMatcher(recognition.clause, POSITIONS.schema)
    except DefinitionError as error:
        return error
    return None


@pytest.mark.parametrize("length", range(len(EMERGENCY_STOP)))
def test_a_statement_that_breaks_off_is_refused_with_a_place(length):
    """From the clause's end on, what is left may be a statement."""
    cut = EMERGENCY_STOP[:length]
    error = refusal(cut)
    if error is None:
        assert length > EMERGENCY_STOP.index("'B')") + 3
        return
    assert isinstance(error, StatementError)
    assert 1 <= error.line <= cut.count("\n") + 1
    assert error.column >= 1
    assert "^" in str(error)


@pytest.mark.parametrize("start", range(0, len(EMERGENCY_STOP), 3))
@pytest.mark.parametrize("size", [1, 7, 40])
def test_a_statement_with_a_hole_is_refused_or_read_but_never_breaks_anything(start, size):
    error = refusal(EMERGENCY_STOP[:start] + EMERGENCY_STOP[start + size :])
    assert error is None or str(error)


WRONG = [
    # (clause, what is wrong, the text under the caret)
    ("PATTERN (A) DEFINE B AS value > 1", "PATTERN has no such variable, only A", "B"),
    ("PATTERN (A B) DEFINE A AS value > 1, A AS value > 2", "two conditions", "A"),
    (
        "MEASURES LAST(X.value) AS v PATTERN (A) DEFINE A AS value > 1",
        "neither a variable of PATTERN nor a column",
        "X",
    ),
    ("MEASURES CLASSIFIER(X) AS v PATTERN (A) DEFINE A AS value > 1", "has no variable X, only A", "CLASSIFIER(X"),
    ("MEASURES count(X.*) AS v PATTERN (A) DEFINE A AS value > 1", "has no variable X, only A", "X.*"),
    ("AFTER MATCH SKIP TO X PATTERN (A) DEFINE A AS value > 1", "has no variable X", "X"),
    ("AFTER MATCH SKIP TO FIRST X PATTERN (A) DEFINE A AS value > 1", "has no variable X", "X"),
    ("AFTER MATCH SKIP PATTERN (A) DEFINE A AS value > 1", "expected PAST LAST ROW or TO", "PATTERN"),
    ("PATTERN (A) SUBSET U = (A, X) DEFINE A AS value > 1", "has no variable X", "X"),
    ("PATTERN (A) SUBSET A = (A) DEFINE A AS value > 1", "of that name already", "A"),
    ("ORDER BY id PATTERN (A) WITHIN INTERVAL '0' SECOND DEFINE A AS value > 1", "longer than nothing", "'0' SECOND"),
    ("ORDER BY id PATTERN (A) WITHIN INTERVAL '1' MONTH DEFINE A AS value > 1", "must be like", "'1' MONTH"),
    ("ORDER BY id PATTERN (A) WITHIN 10 DEFINE A AS value > 1", "expected INTERVAL", "10"),
    ("ORDER BY id PATTERN (A) WITHIN INTERVAL '1' SECOND DEFINE A AS value > 1", "a time first in ORDER BY", "id"),
    ("PATTERN (A) WITHIN INTERVAL '1' SECOND DEFINE A AS value > 1", "WITHIN needs ORDER BY", None),
    ("PATTERN (A) DEFINE A AS valu > 1", "there is no column valu, only id, value, name", "valu"),
    ("PARTITION BY idd PATTERN (A) DEFINE A AS value > 1", "there is no column idd", "idd"),
    ("PARTITION BY id + 1 PATTERN (A) DEFINE A AS value > 1", "takes columns", "id + 1"),
    ("ORDER BY id, PATTERN (A) DEFINE A AS value > 1", "takes columns", None),
    ("PATTERN (A) DEFINE A AS sum(count(value)) > 1", "an aggregate does not stand inside an aggregate", "count(value"),
    ("PATTERN (A) DEFINE A AS LAST(sum(value)) > 1", "does not stand inside a navigation", "sum(value"),
    ("PATTERN (A) DEFINE A AS sum(PREV(value)) > 1", "does not stand inside an aggregate", "PREV(value"),
    ("PATTERN (A) DEFINE A AS FIRST(LAST(value)) > 1", "no other nesting", "LAST(value"),
    ("PATTERN (A) DEFINE A AS PREV(NEXT(value)) > 1", "no other nesting", "NEXT(value"),
    ("PATTERN (A) DEFINE A AS FINAL LAST(value) > 1", "FINAL is for MEASURES", "FINAL LAST(value"),
    ("PATTERN (A) DEFINE A AS PREV(FINAL LAST(value)) > 1", "FINAL is for MEASURES", "FINAL LAST(value"),
    ("MEASURES FINAL value AS v PATTERN (A) DEFINE A AS value > 1", "stands before a function", "FINAL"),
    ("MEASURES FINAL abs(value) AS v PATTERN (A) DEFINE A AS true", "stand before FIRST, LAST and aggregates", None),
    ("MEASURES LAST(value, -1) AS v PATTERN (A) DEFINE A AS value > 1", "not negative", "1"),
    ("MEASURES LAST(value, id) AS v PATTERN (A) DEFINE A AS value > 1", "whole number of rows", "id"),
    ("MEASURES LAST(A.value + B.value) AS v PATTERN (A B) DEFINE A AS true", "names A and B; use a SUBSET", None),
    ("MEASURES value PATTERN (A) DEFINE A AS value > 1", "a measure has a name", "value"),
    ("MEASURES value AS v, id AS V PATTERN (A) DEFINE A AS value > 1", "two measures are called V", "V"),
    ("MEASURES value AS id ALL ROWS PER MATCH PATTERN (A) DEFINE A AS value > 1", "has a column id already", "value"),
    ("MEASURES value + name AS v PATTERN (A) DEFINE A AS value > 1", "the types do not fit", "value + name"),
    ("MEASURES frobnicate(value) AS v PATTERN (A) DEFINE A AS true", "no function FROBNICATE", "frobnicate(value"),
    ("MEASURES abs(value, 1) AS v PATTERN (A) DEFINE A AS true", "ABS takes 1 argument, got 2", None),
    ("MEASURES sum(value) OVER () AS v PATTERN (A) DEFINE A AS true", "OVER is not for MATCH_RECOGNIZE", None),
    ("MEASURES (SELECT max(x) FROM u) AS v PATTERN (A) DEFINE A AS true", "sub-query over a table", None),
    ("MEASURES max_by(value) AS v PATTERN (A) DEFINE A AS true", "max_by takes 2 or 3 arguments, got 1", None),
    ("MEASURES max_by(value, id, id) AS v PATTERN (A) DEFINE A AS true", "max_by with a count takes a whole", "id"),
    ("MEASURES min(value, 0) AS v PATTERN (A) DEFINE A AS true", "min with a count takes a whole number", "0"),
    ("MEASURES map_agg(value) AS v PATTERN (A) DEFINE A AS true", "map_agg takes 2 arguments, got 1", None),
    ("MEASURES map_keys(value) AS v PATTERN (A) DEFINE A AS true", "MAP_KEYS cannot take that: it takes an arr", None),
    ("MEASURES map_agg(id, value)[id] AS v PATTERN (A) DEFINE A AS true", "a map must be a constant", None),
    ("MEASURES array_join(array_agg(id)) AS v PATTERN (A) DEFINE A AS true", "ARRAY_JOIN takes 2 to 3", None),
    ("PATTERN (A) DEFINE A AS value", "a condition is true or false, this is Int64", "value"),
    ("PATTERN (A) DEFINE A AS value > ", "lacks an operand", ">"),
    ("PATTERN (A) DEFINE A AS ", "expected an expression", None),
    ("PATTERN (A) DEFINE A AS *", "* stands only in count", "*"),
    ("PATTERN (A) DEFINE A", "expected a variable, AS and a condition", "A"),
    ("PATTERN (A)", "expected DEFINE", None),
    ("PATTERN A DEFINE A AS true", "expected ( after PATTERN", "A"),
    ("DEFINE A AS true", "expected PATTERN", "DEFINE"),
    ("MEASURES value AS v", "expected PATTERN", None),
    ("PATTERN () DEFINE A AS true", "the pattern of no rows is ()", None),
    ("PATTERN (A | ) DEFINE A AS true", "expected a variable or a group", None),
    ("PATTERN (A{2,1}) DEFINE A AS true", "more at least than at most", "{2,1}"),
    ("PATTERN (A{0}) DEFINE A AS true", "takes no row", "{0}"),
    ("PATTERN (A+*) DEFINE A AS true", "one quantifier is enough", "*"),
    ("PATTERN ({- A) DEFINE A AS true", "to end what {- begins", None),
    ("PATTERN (A & B) DEFINE A AS true", "PATTERN knows no '&'", "&"),
    ("PATTERN (A{100000}) DEFINE A AS true", "PATTERN is too large", "A{100000}"),
    ("PATTERN (PERMUTE(A, B, C, D, E, F, G, H)) DEFINE A AS true", "PATTERN is too large", None),
    (f"PATTERN ({'(' * 150}A{')' * 150}) DEFINE A AS true", "nested more than", None),
    (f"PATTERN (A) DEFINE A AS {'NOT ' * 3000} true", "nested too deep", None),
    ("ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A {- B -}) DEFINE A AS true", "do not go together", "ALL"),
    ("ALL ROWS PER MATCH SHOW PATTERN (A) DEFINE A AS true", "expected EMPTY MATCHES after SHOW", "PATTERN"),
    ("INITIAL SEEK PATTERN (A) DEFINE A AS true", "expected PATTERN, got SEEK", "SEEK"),
    ("PATTERN (A) DEFINE A AS true)) x (", "cannot be read", None),
]


@pytest.mark.parametrize(("clause", "problem", "shown"), WRONG, ids=[f"{case[1]}: {case[0][:40]}" for case in WRONG])
def test_what_makes_no_sense_is_refused_where_it_stands(clause, problem, shown):
    with pytest.raises(DefinitionError) as caught:
        matcher(clause, OTHER_TYPES)
    assert problem in str(caught.value)
    if shown is not None:
        assert isinstance(caught.value, StatementError)
        line, mark = str(caught.value).splitlines()[-2:]
        assert line[mark.index("^") : mark.rindex("^") + 1] == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SELECT 1",
        "MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS true)",
        "SELECT * FROM MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS true)",
        "SELECT * FROM t WHERE MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS true)",
        "SELECT FROM WHERE FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS true)",
        "CREATE TABLE x AS SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS true)",
        "SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS EXISTS (FROM u MATCH_RECOGNIZE (PATTERN (A))))",
    ],
)
def test_statements_that_are_no_queries_with_a_clause_are_refused(text):
    with pytest.raises(StatementError, match="line 1, column"):
        parse(text)


def test_a_place_in_a_long_line_is_shown_with_what_is_around_it():
    with pytest.raises(StatementError) as caught:
        parse("SELECT " + "a, " * 200 + "b FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE B AS c)")
    line, mark = str(caught.value).splitlines()[-2:]
    assert len(line) < 130
    assert line[mark.index("^")] == "B"


def test_a_field_of_a_struct_is_not_taken_for_a_variable():
    made = matcher("MEASURES place.lat AS a, A.place.lat AS b PATTERN (A) DEFINE A AS A.place.lat > 1", POSITIONS)
    assert made.schema == {"a": pl.Float64, "b": pl.Float64}
    with pytest.raises(StatementError, match="has no field lon, only lat"):
        matcher("MEASURES place.lon AS a PATTERN (A) DEFINE A AS true", POSITIONS)


def test_statements_errors_and_matchers_travel_between_processes():
    parsed = pickle.loads(pickle.dumps(parse(EMERGENCY_STOP)))
    assert parsed == parse(EMERGENCY_STOP)
    assert repr(parsed) == f"parse({EMERGENCY_STOP!r})"
    made = matcher("MEASURES initcap(name) AS n PATTERN (A) DEFINE A AS LAST(value, 1) > 0", OTHER_TYPES)
    assert pickle.loads(pickle.dumps(made)).schema == made.schema
    with pytest.raises(StatementError) as caught:
        parse("SELECT")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_names_that_are_needed_inside_are_refused():
    with pytest.raises(DefinitionError, match="__label"):
        matcher("PATTERN (A) DEFINE A AS true", pl.DataFrame({"__label": [1]}))
