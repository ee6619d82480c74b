"""Short ways to run a clause in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tidewheel.match_recognize import ClauseMatcher, parse


def statement(clause: str) -> str:
    return f"SELECT * FROM t MATCH_RECOGNIZE ({clause})"


def matcher(clause: str, frame: pl.DataFrame) -> ClauseMatcher:
    return ClauseMatcher(parse(statement(clause)).clause, frame.schema)


def recognize(clause: str, frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return matcher(clause, frame).run(frame).rows()


def numbers(*values: Any) -> pl.DataFrame:
    """Rows with an `id` from 1, and a `value`."""
    return pl.DataFrame({"id": range(1, len(values) + 1), "value": values}, schema_overrides={"id": pl.Int64})


def labels(pattern: str, define: str, values: Sequence[Any], more: str = "") -> list[str]:
    """Each match of a pattern over values as the variables of its rows."""
    clause = (
        f"ORDER BY id MEASURES array_agg(CLASSIFIER()) AS labels ONE ROW PER MATCH {more} "
        f"PATTERN ({pattern}) DEFINE {define}"
    )
    return ["".join(found or []) for (found,) in recognize(clause, numbers(*values))]
