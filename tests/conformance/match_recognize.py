"""Cases of MATCH_RECOGNIZE: a query with its rows, or with the error that it must end in.

On the reference the clause is run by the ClauseMatcher, what it reads and the statement around it by polars' own SQL;
on Spark all of it by `tidewheel.sql`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import polars as pl
import sqlglot
import yaml
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from sqlglot import exp

from tests.conformance.cases import files_in
from tidewheel.engine.execution.session import session
from tidewheel.engine.sql.sql import sql
from tidewheel.errors import TidewheelError
from tidewheel.match_recognize import ClauseMatcher, parse

FOLDER = "match_recognize"
_OURS = "tidewheel.errors."


@dataclass(frozen=True)
class Query:
    """A query, and its rows in any order (None: an error, whose words are in `error`)."""

    file: str
    name: str
    sql: str
    rows: list[Any] | None
    error: str = ""


Answer = list[tuple[Any, ...]] | Exception
QueryRunner = Callable[[Sequence[Query]], list[Answer]]


@dataclass
class QueryResult:
    case: Query
    complaints: list[str] = field(default_factory=list)
    another_way: str | None = None

    @property
    def passed(self) -> bool:
        return not self.complaints


def load_queries(folder: Path) -> list[Query]:
    """All cases of the folder's `match_recognize`."""
    found = []
    for path in files_in(folder, FOLDER):
        with path.open(encoding="utf-8") as text:
            found += [_query(path.name, document) for document in yaml.safe_load_all(text) if document]
    return found


def _query(file: str, given: dict[str, Any]) -> Query:
    if "sql" not in given or not {"expected_rows", "expected_error"} & set(given):
        raise ValueError(f"{file}: a case of an unknown kind: {sorted(given)}")
    return Query(file, given["name"], given["sql"], given.get("expected_rows"), given.get("expected_error", ""))


def check_queries(cases: Sequence[Query], runner: QueryRunner | None = None) -> list[QueryResult]:
    """Run the queries and say what is wrong, if anything."""
    answers = (runner or reference)(cases)
    return [QueryResult(case, _complaints(case, answer)) for case, answer in zip(cases, answers, strict=True)]


def _complaints(case: Query, answer: Answer) -> list[str]:
    if isinstance(answer, Exception):
        if case.rows is None and _reported(answer) and _same_error(case.error, str(answer)):
            return []
        return [f"expected {case.error or case.rows}, got {type(answer).__name__}: {answer}"]
    if case.rows is None:
        return [f"expected the error {case.error}, got {answer}"]
    wanted, got = Counter(map(_plain, case.rows)), Counter(map(_plain, answer))
    return [] if wanted == got else [f"expected {case.rows}, got {answer}"]


def _reported(error: Exception) -> bool:
    """Whether it is ours; Spark wraps those of its workers."""
    return isinstance(error, TidewheelError) or (isinstance(error, PySparkException) and _OURS in str(error))


def _same_error(wanted: str, got: str) -> bool:
    """Errors have other words: those that matter must be the same."""
    words = {"AFTER MATCH SKIP", "first row of", "not present in"}
    return all(word in got for word in words if word in wanted)


def _plain(value: Any) -> Any:
    """Values as the cases write them, types dropped."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(one) for one in value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        return int(value)
    return value


# Runners ----------------------------------------------------------------------------------------------------


def reference(cases: Sequence[Query]) -> list[Answer]:
    """The ClauseMatcher, and polars' SQL around it."""
    return [_caught(lambda case=case: run(case.sql)) for case in cases]


def spark(cases: Sequence[Query]) -> list[Answer]:
    """`tidewheel.sql`: all cases that give rows as one job, those that end in an error each by itself."""
    answers: dict[int, Answer] = {}
    frames: dict[int, DataFrame] = {}
    for number, case in enumerate(cases):
        frame = _caught(lambda case=case: sql(case.sql, spark=session()))
        if isinstance(frame, Exception):
            answers[number] = frame
        else:
            frames[number] = frame
    sound = {number: frame for number, frame in frames.items() if cases[number].rows is not None}
    together = _caught(lambda: _collected(sound)) if sound else {}
    if not isinstance(together, Exception):
        answers |= together
    for number, frame in frames.items():
        if number not in answers:
            alone = _caught(lambda number=number, frame=frame: _collected({number: frame})[number])
            answers[number] = alone
    return [answers[number] for number in range(len(cases))]


def _collected(frames: dict[int, DataFrame]) -> dict[int, list[tuple[Any, ...]]]:
    """The rows of each, by its number, all in one job: as JSON, whatever their columns."""
    parts = []
    for number, frame in frames.items():
        plain = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
        row = f.to_json(f.array(*(_text(plain, name) for name in plain.columns)), {"ignoreNullFields": "false"})
        parts.append(plain.select(f.lit(number).alias("number"), row.alias("row")))
    # Two by two: Spark looks at all that a union is made of, each time.
    while len(parts) > 1:
        parts = [reduce(DataFrame.unionAll, parts[place : place + 2]) for place in range(0, len(parts), 2)]
    found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in frames}
    for number, row in parts[0].collect():
        found[number].append(tuple(None if value is None else json.loads(value)["it"] for value in json.loads(row)))
    return found


def _text(frame: DataFrame, name: str) -> Column:
    return f.when(f.col(name).isNotNull(), f.to_json(f.struct(f.col(name).alias("it"))))


def _caught(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return error


def run(sql: str) -> list[tuple[Any, ...]]:
    """The rows of a statement."""
    statement = parse(sql)
    tables: dict[str, pl.DataFrame] = {}
    for recognition in statement.recognitions:
        frame = relation(recognition.relation, tables)
        tables[recognition.name] = ClauseMatcher(recognition.clause, frame.schema).run(frame)
    context = pl.SQLContext(tables)
    return context.execute(_spoken(statement.outer), eager=True).rows()


def relation(text: str, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """The rows of VALUES with an alias for its columns, or of a query that polars runs."""
    source = sqlglot.parse_one(f"SELECT * FROM {text}").args["from_"].this
    names = [column.name for column in source.args["alias"].columns] if source.args.get("alias") else []
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Values):
        source = source.this
    if isinstance(source, exp.Values):
        frame = _values(source)
    else:
        inner = source.this.copy() if isinstance(source, exp.Subquery) else source
        for number, values in enumerate(inner.find_all(exp.Values)):
            tables = {**tables, f"values_{number}": _values(values)}
            around = values.parent if isinstance(values.parent, exp.Subquery) else values
            around.replace(exp.to_table(f"values_{number}"))
        query = inner if isinstance(inner, exp.Query) else exp.select("*").from_(inner)
        frame = pl.SQLContext(tables).execute(query.sql("postgres"), eager=True)
    return frame.rename(dict(zip(frame.columns, names, strict=False)))


def _values(values: exp.Values) -> pl.DataFrame:
    rows = [
        [one.sql("postgres") for one in (row.expressions if isinstance(row, exp.Tuple) else [row])]
        for row in values.expressions
    ]
    frames = [pl.select(pl.sql_expr(text).alias(f"_col{place}") for place, text in enumerate(row)) for row in rows]
    return pl.concat(frames, how="vertical_relaxed")


def _spoken(outer: str) -> str:
    """The outer statement in polars' dialect: names of columns that are keywords stand in quotes."""
    tree = sqlglot.parse_one(outer, read="trino")
    for identifier in tree.find_all(exp.Identifier):
        identifier.set("quoted", True)
    return tree.sql("postgres")


QUERY_RUNNERS: dict[str, QueryRunner] = {"reference": reference, "spark": spark}
