"""SQL's types, intervals and LIKE patterns in polars' words."""

from __future__ import annotations

import re
from datetime import timedelta

import polars as pl
from sqlglot import exp

from tidewheel.errors import DefinitionError
from tidewheel.model.time import duration

__all__ = ["UTC", "interval_of", "like_pattern", "type_of"]

UTC = "UTC"
_TYPES: dict[str, pl.DataType] = {
    "BIGINT": pl.Int64(),
    "BOOLEAN": pl.Boolean(),
    "CHAR": pl.String(),
    "DATE": pl.Date(),
    "DATETIME": pl.Datetime("us"),
    "DOUBLE": pl.Float64(),
    "FLOAT": pl.Float32(),
    "INT": pl.Int32(),
    "NCHAR": pl.String(),
    "NVARCHAR": pl.String(),
    "SMALLINT": pl.Int16(),
    "TEXT": pl.String(),
    "TIMESTAMP": pl.Datetime("us"),
    "TIMESTAMPLTZ": pl.Datetime("us", UTC),
    "TIMESTAMPNTZ": pl.Datetime("us"),
    "TIMESTAMPTZ": pl.Datetime("us", UTC),
    "TINYINT": pl.Int8(),
    "VARCHAR": pl.String(),
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def type_of(node: exp.Expr) -> pl.DataType | None:
    """The polars type of an SQL type, if there is one."""
    name = str(getattr(node.this, "value", node.this)).upper()
    if name == "DECIMAL":
        numbers = [int(str(parameter.this.this)) for parameter in node.expressions]
        return pl.Decimal(numbers[0] if numbers else 38, numbers[1] if len(numbers) > 1 else 0)
    if name == "ARRAY" and len(node.expressions) == 1:
        inner = type_of(node.expressions[0])
        return None if inner is None else pl.List(inner)
    return _TYPES.get(name)


def interval_of(node: exp.Interval) -> tuple[timedelta | None, int]:
    """The length of an interval, or else its months; neither if it is not understood."""
    number = str(node.this.this) if node.this is not None else ""
    unit = str(node.args["unit"].this).upper().rstrip("S") if node.args.get("unit") is not None else ""
    if unit in _MONTHS:
        return (None, int(number) * _MONTHS[unit]) if number.lstrip("-").isdigit() else (None, 0)
    try:
        return timedelta(microseconds=duration(f"{number} {unit}".strip())), 0
    except (DefinitionError, OverflowError):
        return None, 0


def like_pattern(pattern: str, escape: str | None = None) -> str:
    """The regular expression of a LIKE pattern.

    >>> like_pattern("50!%_%", "!")
    '^50%..*$'
    """
    parts = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            parts.append(re.escape(next(letters, escape)))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
    return "^" + "".join(parts) + "$"
