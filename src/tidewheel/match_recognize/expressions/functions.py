"""SQL's scalar functions as polars expressions; names and meanings are Spark's, where dialects differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import polars as pl

from tidewheel.match_recognize.expressions.arrays import ELSEWHERE, joined

__all__ = ["FUNCTIONS", "Function", "quotient", "remainder", "text_of", "truncated"]

Build = Callable[..., pl.Expr]
Function = tuple[int, int | None, Build]
"""The least and the largest number of arguments (None: any), and the expression over them."""

_TRUNCATIONS = {
    "microsecond": "1us",
    "millisecond": "1ms",
    "second": "1s",
    "minute": "1m",
    "hour": "1h",
    "day": "1d",
    "week": "1w",
    "month": "1mo",
    "quarter": "1q",
    "year": "1y",
}


def quotient(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """A fraction; nothing if the divisor is zero."""
    return pl.when(right != 0).then(left / right)


def remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """The remainder of a division, with the sign of the dividend; null if the divisor is zero."""
    return pl.when(right != 0).then(left.sign() * (left.abs() % right.abs()))


def text_of(value: pl.Expr) -> pl.Expr:
    """Write a value as text, as CAST does."""
    return value.cast(pl.String)


def truncated(unit: str, value: pl.Expr) -> pl.Expr | None:
    """A time truncated to a unit, if the unit is known."""
    step = _TRUNCATIONS.get(unit.lower())
    return None if step is None else value.dt.truncate(step)


def _concat(*values: pl.Expr) -> pl.Expr:
    return reduce(lambda left, right: text_of(left) + text_of(right), values)


def _substring(value: pl.Expr, start: pl.Expr, length: pl.Expr | None = None) -> pl.Expr:
    # Text begins at 1 in SQL; 0 is taken for 1, and a negative start counts from the end, as in Spark.
    offset = pl.when(start > 0).then(start - 1).otherwise(start)
    return value.str.slice(offset, length)


def _position(value: pl.Expr, part: pl.Expr) -> pl.Expr:
    before = value.str.find(part, literal=True)
    length = value.str.head(0).str.len_chars()  # nothing of a null is null
    # `find` counts bytes; people count letters.
    place = value.cast(pl.Binary).bin.slice(0, before).cast(pl.String).str.len_chars()
    return pl.when(before.is_null() & part.is_not_null()).then(length).otherwise(place + 1).cast(pl.Int32)


def _null_if(value: pl.Expr, other: pl.Expr) -> pl.Expr:
    return pl.when((value == other).fill_null(False)).then(None).otherwise(value)


def _coalesce(*values: pl.Expr) -> pl.Expr:
    # pl.coalesce of a column of nulls and a constant would be one row long.
    return reduce(lambda rest, value: pl.when(value.is_not_null()).then(value).otherwise(rest), reversed(values))


def _if(condition: pl.Expr, yes: pl.Expr, no: pl.Expr | None = None) -> pl.Expr:
    chosen = pl.when(condition).then(yes)
    return chosen if no is None else chosen.otherwise(no)


def _log(first: pl.Expr, second: pl.Expr | None = None) -> pl.Expr:
    return first.log() if second is None else second.log() / first.log()


def _round(value: pl.Expr, digits: pl.Expr | None = None) -> pl.Expr:
    if digits is None:
        return value.round(0, mode="half_away_from_zero")
    return value.round(int(pl.select(digits).item()), mode="half_away_from_zero")


def _element(values: pl.Expr, index: pl.Expr) -> pl.Expr:
    return values.list.get(pl.when(index > 0).then(index - 1).otherwise(index), null_on_oob=True)


def _epoch(unit: int) -> Build:
    return lambda value: value.cast(pl.Datetime("us")).cast(pl.Int64).floordiv(unit)


def _one(method: Callable[[pl.Expr], pl.Expr]) -> Function:
    return 1, 1, method


_LENGTH = _one(lambda value: value.str.len_chars().cast(pl.Int32))
_CEIL = _one(lambda value: value.ceil())
_POWER: Function = (2, 2, lambda base, exponent: base.cast(pl.Float64).pow(exponent))
_SIZE = _one(lambda value: value.list.len().cast(pl.Int32))
_UPPER = _one(lambda value: value.str.to_uppercase())
_LOWER = _one(lambda value: value.str.to_lowercase())
_STARTS: Function = (2, 2, lambda value, part: value.str.starts_with(part))
_ENDS: Function = (2, 2, lambda value, part: value.str.ends_with(part))
_COALESCE: Function = (1, None, _coalesce)
_IF: Function = (2, 3, _if)
_MATCHES: Function = (2, 2, lambda value, pattern: value.str.contains(pattern))

FUNCTIONS: dict[str, Function] = {
    **ELSEWHERE,
    "ABS": _one(lambda value: value.abs()),
    "ACOS": _one(lambda value: value.arccos()),
    "ARRAY_CONTAINS": (2, 2, lambda values, value: values.list.contains(value)),
    "ARRAY_LENGTH": _SIZE,
    "ARRAY_MAX": _one(lambda values: values.list.max()),
    "ARRAY_MIN": _one(lambda values: values.list.min()),
    "ASIN": _one(lambda value: value.arcsin()),
    "ATAN": _one(lambda value: value.arctan()),
    "ATAN2": (2, 2, lambda y, x: pl.arctan2(y, x)),
    "CARDINALITY": _SIZE,
    "CBRT": _one(lambda value: value.cbrt()),
    "CEIL": _CEIL,
    "CEILING": _CEIL,
    "CHARACTER_LENGTH": _LENGTH,
    "CHAR_LENGTH": _LENGTH,
    "COALESCE": _COALESCE,
    "CONCAT": (1, None, _concat),
    "CONCAT_WS": (2, None, joined),
    "CONTAINS": (2, 2, lambda value, part: value.str.contains(part, literal=True)),
    "COS": _one(lambda value: value.cos()),
    "DATE": _one(lambda value: value.cast(pl.Date)),
    "DATEDIFF": (2, 2, lambda end, start: (end.cast(pl.Date) - start.cast(pl.Date)).dt.total_days().cast(pl.Int32)),
    "DAY": _one(lambda value: value.dt.day().cast(pl.Int32)),
    "DAYOFMONTH": _one(lambda value: value.dt.day().cast(pl.Int32)),
    "DEGREES": _one(lambda value: value.degrees()),
    "ELEMENT_AT": (2, 2, _element),
    "ENDSWITH": _ENDS,
    "ENDS_WITH": _ENDS,
    "EXP": _one(lambda value: value.exp()),
    "FLOOR": _one(lambda value: value.floor()),
    "GREATEST": (2, None, lambda *values: pl.max_horizontal(*values)),
    "HOUR": _one(lambda value: value.dt.hour().cast(pl.Int32)),
    "IF": _IF,
    "IFF": _IF,
    "IFNULL": (2, 2, _coalesce),
    "INSTR": (2, 2, _position),
    "ISNAN": _one(lambda value: value.is_nan()),
    "ISNOTNULL": _one(lambda value: value.is_not_null()),
    "ISNULL": _one(lambda value: value.is_null()),
    "LCASE": _LOWER,
    "LEAST": (2, None, lambda *values: pl.min_horizontal(*values)),
    "LEFT": (2, 2, lambda value, length: value.str.head(length)),
    "LENGTH": _LENGTH,
    "LN": _one(lambda value: value.log()),
    "LOG": (1, 2, _log),
    "LOG10": _one(lambda value: value.log10()),
    "LOG2": _one(lambda value: value.log(2)),
    "LOWER": _LOWER,
    "LTRIM": _one(lambda value: value.str.strip_chars_start(" ")),
    "MINUTE": _one(lambda value: value.dt.minute().cast(pl.Int32)),
    "MOD": (2, 2, remainder),
    "MONTH": _one(lambda value: value.dt.month().cast(pl.Int32)),
    "NULLIF": (2, 2, _null_if),
    "NVL": (2, 2, _coalesce),
    "PI": (0, 0, lambda: pl.lit(math.pi)),
    "POW": _POWER,
    "POWER": _POWER,
    "RADIANS": _one(lambda value: value.radians()),
    "REGEXP_LIKE": _MATCHES,
    "REPLACE": (3, 3, lambda value, old, new: value.str.replace_all(old, new, literal=True)),
    "REVERSE": _one(lambda value: value.str.reverse()),
    "RIGHT": (2, 2, lambda value, length: value.str.tail(length)),
    "ROUND": (1, 2, _round),
    "RTRIM": _one(lambda value: value.str.strip_chars_end(" ")),
    "SECOND": _one(lambda value: value.dt.second().cast(pl.Int32)),
    "SIGN": _one(lambda value: value.sign()),
    "SIN": _one(lambda value: value.sin()),
    "SIZE": _SIZE,
    "SQRT": _one(lambda value: value.sqrt()),
    "STARTSWITH": _STARTS,
    "STARTS_WITH": _STARTS,
    "STRPOS": (2, 2, _position),
    "SUBSTR": (2, 3, _substring),
    "SUBSTRING": (2, 3, _substring),
    "TAN": _one(lambda value: value.tan()),
    "TO_UNIXTIME": _one(lambda value: value.cast(pl.Datetime("us")).cast(pl.Int64) / 1_000_000),
    "UCASE": _UPPER,
    "UNIX_MICROS": _one(_epoch(1)),
    "UNIX_MILLIS": _one(_epoch(1_000)),
    "UNIX_SECONDS": _one(_epoch(1_000_000)),
    "UNIX_TIMESTAMP": _one(_epoch(1_000_000)),
    "UPPER": _UPPER,
    "YEAR": _one(lambda value: value.dt.year().cast(pl.Int32)),
}


def arity(function: Function) -> str:
    """The number of arguments of a function, for messages."""
    least, most, _ = function
    if most is None:
        return f"{least} or more arguments"
    return f"{least} argument{'' if least == 1 else 's'}" if least == most else f"{least} to {most} arguments"


def fits(function: Function, given: Sequence[object]) -> bool:
    """Whether a function takes that many arguments."""
    least, most, _ = function
    return least <= len(given) and (most is None or len(given) <= most)


__all__ += ["arity", "fits"]
