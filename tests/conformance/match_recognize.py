"""Cases of MATCH_RECOGNIZE: a query with its rows, or with the error that it must end in.

The clause is run by the Recogniser; what it reads and the statement around it by polars' own SQL.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import sqlglot
import yaml
from sqlglot import exp

from tidewheel.errors import TidewheelError
from tidewheel.patterns.sql import Recogniser, parse

FOLDER = "match_recognize"


@dataclass(frozen=True)
class Query:
    """A query, and its rows in any order (None: an error, whose words are in `error`)."""

    file: str
    name: str
    sql: str
    rows: list[Any] | None
    error: str = ""


@dataclass
class QueryVerdict:
    case: Query
    complaints: list[str] = field(default_factory=list)
    another_way: str | None = None

    @property
    def passed(self) -> bool:
        return not self.complaints


def load_queries(folder: Path) -> list[Query]:
    """All cases of the folder's `match_recognize`."""
    found = []
    for path in sorted((folder / FOLDER).glob("*.yaml")):
        with path.open(encoding="utf-8") as text:
            found += [_query(path.name, document) for document in yaml.safe_load_all(text) if document]
    return found


def _query(file: str, given: dict[str, Any]) -> Query:
    if "sql" not in given or not {"expected_rows", "expected_error"} & set(given):
        raise ValueError(f"{file}: a case of an unknown kind: {sorted(given)}")
    return Query(file, given["name"], given["sql"], given.get("expected_rows"), given.get("expected_error", ""))


def judge_queries(cases: list[Query]) -> list[QueryVerdict]:
    """Run the queries and say what is wrong, if anything."""
    return [QueryVerdict(case, _complaints(case)) for case in cases]


def _complaints(case: Query) -> list[str]:
    try:
        rows = run(case.sql)
    except TidewheelError as error:
        if case.rows is None and _same_error(case.error, str(error)):
            return []
        return [f"expected {case.error or case.rows}, got {type(error).__name__}: {error}"]
    except Exception as error:
        return [f"expected {case.error or case.rows}, got {type(error).__name__}: {error}"]
    if case.rows is None:
        return [f"expected the error {case.error}, got {rows}"]
    wanted, got = Counter(map(_plain, case.rows)), Counter(map(_plain, rows))
    return [] if wanted == got else [f"expected {case.rows}, got {rows}"]


def _same_error(wanted: str, got: str) -> bool:
    """Errors are told in other words: those that matter must be the same."""
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


def run(sql: str) -> list[tuple[Any, ...]]:
    """The rows of a statement."""
    statement = parse(sql)
    tables: dict[str, pl.DataFrame] = {}
    for recognition in statement.recognitions:
        frame = relation(recognition.relation, tables)
        tables[recognition.name] = Recogniser(recognition.clause, frame.schema).run(frame)
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
