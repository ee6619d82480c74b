"""Spark SQL over DataFrames that have names for one statement only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from tidewheel.errors import DefinitionError

__all__ = ["query"]

_NOISE = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_END = re.compile(r"(?:\s|;)*$")
_QUERIES = {"select", "with", "from", "values", "table"}
_CHANGES = {"insert", "delete", "update", "merge"}


def query(spark: SparkSession, text: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    """Run a statement in which these names stand for these DataFrames.

    Spark reads a statement to its end at once. Until then the DataFrames are views, under names that nobody has; WITH
    gives them their own names inside the statement, so nobody's view of such a name is touched.
    """
    words = set(re.findall(r"\w+", text.lower()))
    used = {name: table for name, table in tables.items() if name.lower() in words}
    if not used:
        return spark.sql(text)
    views = {name: f"tidewheel_{uuid4().hex}" for name in used}
    try:
        for name, table in used.items():
            table.createTempView(views[name])
        return spark.sql(_named(text, views))
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)


def _named(text: str, views: Mapping[str, str]) -> str:
    names = ", ".join(f"`{name}` AS (SELECT * FROM {view})" for name, view in views.items())
    begin = _NOISE.match(text)
    first = re.match(r"\w*", text[begin.end() if begin else 0 :])
    kind = first[0].lower() if first else ""
    if kind in _QUERIES:
        return f"WITH {names} ({_END.sub('', text)}\n)"
    if kind in _CHANGES:
        return f"WITH {names} {text}"
    raise DefinitionError(
        f"sql: {next(iter(views))} was given for a statement that begins with {kind.upper()!r}; DataFrames have names "
        "in queries and in INSERT, DELETE, UPDATE and MERGE. Make it a view: df.createOrReplaceTempView(...)"
    )
