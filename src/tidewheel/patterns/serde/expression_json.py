"""Expressions as JSON and back, by our own list of what they may be made of.

What polars writes of itself changes with its versions and may hold Python code. This form is stable, and whoever reads
it runs nothing but the operators of this list, so it may come from anywhere.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.patterns.define.expressions import BINARY, UNARY

__all__ = ["expression_from_json", "expression_to_json"]

MOST_DEPTH = 50
_Build = Callable[..., pl.Expr]

_UNARY: dict[str, _Build] = {
    **UNARY,
    "exp": lambda part: part.exp(),
    "tan": lambda part: part.tan(),
    "arccos": lambda part: part.arccos(),
    "arctan": lambda part: part.arctan(),
    "degrees": lambda part: part.degrees(),
    "floor": lambda part: part.floor(),
    "ceil": lambda part: part.ceil(),
    "is_nan": lambda part: part.is_nan(),
    "is_finite": lambda part: part.is_finite(),
    "str.to_lowercase": lambda part: part.str.to_lowercase(),
    "str.to_uppercase": lambda part: part.str.to_uppercase(),
    "dt.hour": lambda part: part.dt.hour(),
    "dt.minute": lambda part: part.dt.minute(),
    "dt.weekday": lambda part: part.dt.weekday(),
}
_BINARY: dict[str, _Build] = {
    **BINARY,
    "^": operator.xor,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "eq_missing": lambda left, right: left.eq_missing(right),
    "ne_missing": lambda left, right: left.ne_missing(right),
    "fill_null": lambda left, right: left.fill_null(right),
    "is_in": lambda left, right: left.is_in(right),
    "str.starts_with": lambda left, right: left.str.starts_with(right),
    "str.ends_with": lambda left, right: left.str.ends_with(right),
}
_TERNARY: dict[str, _Build] = {
    "when": lambda condition, then, otherwise: pl.when(condition).then(then).otherwise(otherwise),
    "is_between": lambda value, low, high: value.is_between(low, high),
}
_OPERATORS = {1: _UNARY, 2: _BINARY, 3: _TERNARY}
_BUILDS = {name: (count, build) for count, known in _OPERATORS.items() for name, build in known.items()}


def expression_to_json(expression: pl.Expr, *, what: str = "expression") -> list[Any]:
    """The expression as lists of an operator and its parts; one that has no such form is refused.

    >>> expression_to_json((pl.col("speed") < 1) & pl.col("door").is_in(["open", "ajar"]))
    ['&', ['<', ['col', 'speed'], ['lit', 1]], ['is_in', ['col', 'door'], ['list', 'open', 'ajar']]]
    """
    expression = expression.meta.undo_aliases()
    if expression.meta.is_column():
        return ["col", expression.meta.root_names()[0]]
    inputs = expression.meta.pop()
    found = _literal(expression) if not inputs else _operator(expression, inputs)
    if found is None:
        raise DefinitionError(
            f"{what}: {expression} cannot be written as JSON. It may be made of columns, references, plain values "
            f"and {', '.join(_BUILDS)}; make a column of the rest before the match, with with_columns(...)"
        )
    name, parts = found
    return [name, *(expression_to_json(part, what=what) if isinstance(part, pl.Expr) else part for part in parts)]


def expression_from_json(given: Any, *, what: str = "expression") -> pl.Expr:
    """The expression that `expression_to_json` wrote; whatever else is refused.

    >>> str(expression_from_json(["<", ["col", "speed"], ["lit", 1]]))
    '[(col("speed")) < (dyn int: 1)]'
    """
    try:
        return _built(given, what, MOST_DEPTH)
    except DefinitionError:
        raise
    except (pl.exceptions.PolarsError, ArithmeticError, TypeError, ValueError) as error:
        raise DefinitionError(f"{what}: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None


def _operator(expression: pl.Expr, inputs: list[pl.Expr]) -> tuple[str, list[pl.Expr]] | None:
    """Find the structure of an expression: each guess is verified by building it again."""
    for parts in itertools.permutations(inputs) if len(inputs) in _OPERATORS else ():
        for name, build in _OPERATORS[len(inputs)].items():
            try:
                same = build(*parts).meta.eq(expression)
            except (pl.exceptions.PolarsError, TypeError, ValueError):
                continue  # these parts do not go together
            if same:
                return name, list(parts)
    return None


def _literal(expression: pl.Expr) -> tuple[str, list[Any]] | None:
    if not expression.meta.is_literal():
        return None
    series = pl.select(expression).to_series()
    value = series[0] if len(series) == 1 else None
    if isinstance(value, pl.Series):  # what is_in looks among
        name, found = "list", [_plain(one) for one in value.to_list()]
    elif pl.lit(value).meta.eq(expression):
        name, found = "lit", [_plain(value)]
    else:
        return None
    return None if any(one is _UNKNOWN for one in found) else (name, found)


_UNKNOWN = object()
_ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _plain(value: Any) -> Any:
    """A value as JSON; types that JSON lacks become an object that names the type."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, timedelta):
        return {"span": value // timedelta(microseconds=1)}
    if isinstance(value, datetime) and (value.tzinfo is None or str(value.tzinfo) == "UTC"):
        return {"time" if value.tzinfo is not None else "local": value.replace(tzinfo=None).isoformat()}
    return _UNKNOWN


def _value(given: Any, what: str) -> Any:
    if given is None or isinstance(given, (bool, int, float, str)):
        return given
    if isinstance(given, dict) and len(given) == 1:
        ((kind, text),) = given.items()
        if kind == "number" and text in _ODD:
            return _ODD[text]
        if kind == "span" and isinstance(text, int):
            return timedelta(microseconds=text)
        if kind == "local" and isinstance(text, str):
            return datetime.fromisoformat(text)
        if kind == "time" and isinstance(text, str):
            return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    raise DefinitionError(f"{what}: {given!r} is not a plain value")


def _built(given: Any, what: str, depth: int) -> pl.Expr:
    if depth == 0:
        raise DefinitionError(f"{what}: deeper than {MOST_DEPTH} operators in each other")
    if not isinstance(given, list) or not given or not isinstance(given[0], str):
        raise DefinitionError(f'{what}: expected a list like ["col", "speed"], got {_short(given)}')
    name, *parts = given
    if name == "col":
        if len(parts) != 1 or not isinstance(parts[0], str) or not parts[0]:
            raise DefinitionError(f"{what}: a column has one name, got {_short(parts)}")
        if parts[0] == "*" or parts[0].startswith("^"):
            raise DefinitionError(f"{what}: {parts[0]!r} would be several columns; name one")
        return pl.col(parts[0])
    if name == "lit" and len(parts) == 1:
        return pl.lit(_value(parts[0], what))
    if name not in _BUILDS:
        raise DefinitionError(f"{what}: there is no operator {_short(name)}")
    count, build = _BUILDS[name]
    if len(parts) != count:
        raise DefinitionError(f"{what}: {name} takes {count} parts, got {len(parts)}")
    if name == "is_in":
        among = parts[1]
        if not isinstance(among, list) or among[:1] != ["list"]:
            raise DefinitionError(f'{what}: is_in takes a list like ["list", 1, 2], got {_short(among)}')
        return build(_built(parts[0], what, depth - 1), [_value(one, what) for one in among[1:]])
    return build(*(_built(part, what, depth - 1) for part in parts))


def _short(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 60 else text[:57] + "..."
