"""Expressions as Python functions, for conditions on one event and one partial match.

A polars query for a single row takes some hundred microseconds, a Python function one. So conditions over the events
taken so far become functions where Python's answer is surely that of polars.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from tidewheel.patterns.define.expressions import Node

__all__ = ["Function", "function_of", "kind_of"]

Value = Any
Function = Callable[[int, tuple[Any, ...]], Value]
"""A function of the number of an event and the accumulators of a partial match."""


def kind_of(node: Node, kinds: Mapping[str, str]) -> str | None:
    """The kind of an expression's value: "truth", "number", "text", "moment", "span"; "null" for the literal; None
    where Python may differ from polars. kinds: those of the columns.

    >>> import polars as pl
    >>> from tidewheel.patterns.define.expressions import parse
    >>> kind_of(parse(pl.col("speed") + 1 > 3), {"speed": "number"})
    'truth'
    """
    if node.operator == "col":
        return kinds.get(node.value)
    if node.operator == "lit":
        return _KINDS[type(node.value)]
    parts = [kind_of(part, kinds) for part in node.parts]
    if any(part is None for part in parts):
        return None
    if node.operator in ("is_null", "is_not_null"):
        return "truth"
    if node.operator == "when":
        return parts[1] if parts[0] == "truth" and len({*parts[1:]} - {"null"}) == 1 and parts[1] != "null" else None
    if node.operator in ("&", "|", "~"):
        return "truth" if {*parts} == {"truth"} else None
    if node.operator in ("==", "!=", "<", "<=", ">", ">=", "is_between"):
        return "truth" if len({*parts}) == 1 and parts[0] != "null" else None
    if len(parts) == 2 and (times := _TIMES.get((node.operator, *parts))):
        return times
    return "number" if {*parts} == {"number"} else None


_KINDS = {
    bool: "truth",
    int: "number",
    float: "number",
    str: "text",
    datetime: "moment",
    timedelta: "span",
    type(None): "null",
}
_TIMES: dict[tuple[str | None, ...], str] = {
    ("-", "moment", "moment"): "span",
    ("-", "moment", "span"): "moment",
    ("+", "moment", "span"): "moment",
    ("+", "span", "moment"): "moment",
    ("+", "span", "span"): "span",
    ("-", "span", "span"): "span",
}


# Functions: nulls are None, and everything is null where an operand is, but for what is known all the same.


def function_of(node: Node, columns: Mapping[str, list[Any]], readers: Mapping[str, Callable[[Any], Any]]) -> Function:
    """Compile the expression to a function of an event's number and a partial match's accumulators.

    columns: the values of all events; readers: what reads the value of a reference from the accumulators.
    """
    if node.operator == "lit":
        value = node.value
        return lambda event, taken: value
    if node.operator == "col":
        if node.value in readers:
            read = readers[node.value]
            return lambda event, taken: read(taken)
        values = columns[node.value]
        return lambda event, taken: values[event]
    parts = [function_of(part, columns, readers) for part in node.parts]
    if node.operator in _SPECIAL:
        return _SPECIAL[node.operator](*parts)
    if len(parts) == 1:
        return _unary(_PLAIN[node.operator], *parts)
    return _binary(_PLAIN[node.operator], *parts)


def _unary(act: Callable[[Any], Any], part: Function) -> Function:
    def function(event: int, taken: tuple[Any, ...]) -> Value:
        value = part(event, taken)
        return None if value is None else act(value)

    return function


def _binary(act: Callable[[Any, Any], Any], left: Function, right: Function) -> Function:
    def function(event: int, taken: tuple[Any, ...]) -> Value:
        a = left(event, taken)
        if a is None:
            return None
        b = right(event, taken)
        return None if b is None else act(a, b)

    return function


def _logical(left: Function, right: Function, *, decisive: bool) -> Function:
    """Three-valued AND (where False decides) and OR (where True does)."""

    def function(event: int, taken: tuple[Any, ...]) -> Value:
        a = left(event, taken)
        if a is decisive:
            return decisive
        b = right(event, taken)
        return decisive if b is decisive else None if a is None or b is None else not decisive

    return function


def _when(condition: Function, then: Function, otherwise: Function) -> Function:
    def function(event: int, taken: tuple[Any, ...]) -> Value:
        return then(event, taken) if condition(event, taken) is True else otherwise(event, taken)

    return function


def _between(value: Function, low: Function, high: Function) -> Function:
    return _logical(_binary(_PLAIN[">="], value, low), _binary(_PLAIN["<="], value, high), decisive=False)


# polars orders NaN above all numbers and holds it equal to itself.
def _less(a: Any, b: Any) -> bool:
    return bool(a < b) if a == a and b == b else bool(a == a)


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if not a or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _safe(act: Callable[[float], float]) -> Callable[[float], float]:
    def function(value: float) -> float:
        try:
            return act(value)
        except ValueError:  # outside of what it is defined for
            return math.nan

    return function


_PLAIN: dict[str, Callable[..., Any]] = {
    "==": _equal,
    "!=": lambda a, b: not _equal(a, b),
    "<": _less,
    ">": lambda a, b: _less(b, a),
    "<=": lambda a, b: not _less(b, a),
    ">=": lambda a, b: not _less(a, b),
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "~": operator.not_,
    "neg": operator.neg,
    "abs": abs,
    "sqrt": _safe(math.sqrt),
    "sin": _safe(math.sin),
    "cos": _safe(math.cos),
    "arcsin": _safe(math.asin),
    "radians": math.radians,
}
_SPECIAL: dict[str, Callable[..., Function]] = {
    "&": partial(_logical, decisive=False),
    "|": partial(_logical, decisive=True),
    "when": _when,
    "is_between": _between,
    "is_null": lambda part: lambda event, taken: part(event, taken) is None,
    "is_not_null": lambda part: lambda event, taken: part(event, taken) is not None,
}
