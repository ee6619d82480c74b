"""Polars expressions taken apart: what is asked of one event and one partial match is asked in plain Python.

A polars query for a single row takes some hundred microseconds, a Python function one. So conditions over the events
taken so far are turned into functions where that can be done: each guess of what an expression is made of is proven by
building it again and comparing. What is not understood stays a polars expression.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl

__all__ = ["Node", "conjuncts", "function_of", "kind_of", "parse", "source"]

Value = Any
Function = Callable[[int, tuple[Any, ...]], Value]
"""Of the number of an event and the memory of a partial match."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression: an operator over parts, or a column, or a literal."""

    operator: str
    parts: tuple[Node, ...] = ()
    value: Any = None


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "&": operator.and_,
    "|": operator.or_,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_UNARY: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "~": operator.invert,
    "neg": operator.neg,
    "abs": lambda part: part.abs(),
    "sqrt": lambda part: part.sqrt(),
    "sin": lambda part: part.sin(),
    "cos": lambda part: part.cos(),
    "arcsin": lambda part: part.arcsin(),
    "radians": lambda part: part.radians(),
    "is_null": lambda part: part.is_null(),
    "is_not_null": lambda part: part.is_not_null(),
}
_LITERALS = (bool, int, float, str, datetime, timedelta, type(None))


def parse(expression: pl.Expr) -> Node | None:
    """The expression as a tree; None if there is something in it that is not known here.

    >>> parse(pl.col("speed") > 3).parts
    (Node(operator='col', parts=(), value='speed'), Node(operator='lit', parts=(), value=3))
    """
    expression = expression.meta.undo_aliases()
    if expression.meta.is_column():
        return Node("col", value=expression.meta.root_names()[0])
    inputs = expression.meta.pop()
    if not inputs:
        return _literal(expression)
    found = _operator(expression, inputs)
    if found is None:
        return None
    name, ordered = found
    parts = [parse(part) for part in ordered]
    if any(part is None for part in parts):
        return None
    return Node(name, tuple(part for part in parts if part is not None))


def _literal(expression: pl.Expr) -> Node | None:
    if not expression.meta.is_literal():
        return None
    value = pl.select(expression).to_series()
    if len(value) != 1 or not isinstance(value[0], _LITERALS):
        return None
    same = pl.lit(value[0]).meta.eq(expression)
    return Node("lit", value=value[0]) if same else None


def _operator(expression: pl.Expr, inputs: list[pl.Expr]) -> tuple[str, list[pl.Expr]] | None:
    if len(inputs) == 1:
        for name, build in _UNARY.items():
            if _same(build, inputs, expression):
                return name, inputs
    if len(inputs) == 2:
        for ordered in (inputs[::-1], inputs):
            for name, combine in _BINARY.items():
                if _same(combine, ordered, expression):
                    return name, ordered
    if len(inputs) == 3:
        for three in itertools.permutations(inputs):
            if _same(lambda a, b, c: pl.when(a).then(b).otherwise(c), three, expression):
                return "when", list(three)
            if _same(lambda a, b, c: a.is_between(b, c), three, expression):
                return "is_between", list(three)
    return None


def _same(build: Callable[..., pl.Expr], parts: Any, expression: pl.Expr) -> bool:
    return build(*parts).meta.eq(expression)


def conjuncts(expression: pl.Expr) -> list[pl.Expr]:
    """The parts of an expression that must all hold.

    >>> [str(part) for part in conjuncts((pl.col("a") > 1) & pl.col("b") & pl.col("c"))]
    ['[(col("a")) > (dyn int: 1)]', 'col("b")', 'col("c")']
    """
    inputs = expression.meta.pop()
    if len(inputs) == 2 and (inputs[1] & inputs[0]).meta.eq(expression):
        return conjuncts(inputs[1]) + conjuncts(inputs[0])
    return [expression]


_LEVELS = {"|": 1, "&": 2, "==": 3, "!=": 3, ">": 3, ">=": 3, "<": 3, "<=": 3, "+": 5, "-": 5, "*": 6, "/": 6}


def source(expression: pl.Expr) -> str:
    """Python code that gives this expression; polars' own words for it where we have none.

    >>> source((pl.col("speed") > 3) & ~pl.col("stopped"))
    "(pl.col('speed') > 3) & ~pl.col('stopped')"
    """
    node = parse(expression)
    return str(expression) if node is None else _source(node)


def _source(node: Node) -> str:
    if node.operator == "col":
        return f"pl.col({node.value!r})"
    if node.operator == "lit":
        return repr(node.value)
    if node.operator in _BINARY:
        left, right = (_inside(part, node.operator) for part in node.parts)
        # A literal on the left has no operators of its own.
        if node.parts[0].operator == "lit":
            left = f"pl.lit({left})"
        return f"{left} {node.operator} {right}"
    if node.operator == "~":
        return f"~{_inside(node.parts[0], '~')}"
    if node.operator == "neg":
        return f"-{_inside(node.parts[0], '~')}"
    if node.operator == "when":
        condition, then, otherwise = (_alone(part) for part in node.parts)
        return f"pl.when({condition}).then({then}).otherwise({otherwise})"
    if node.operator == "is_between":
        return f"{_inside(node.parts[0], '~')}.is_between({', '.join(_alone(part) for part in node.parts[1:])})"
    return f"{_inside(node.parts[0], '~')}.{node.operator}()"


def _alone(part: Node) -> str:
    """A literal that is no operand: text would be taken for a column's name, and has no methods of expressions."""
    return f"pl.lit({part.value!r})" if part.operator == "lit" else _source(part)


def _inside(part: Node, outer: str) -> str:
    text = _alone(part) if outer == "~" else _source(part)
    if part.operator in _BINARY and (outer == "~" or part.operator != outer or outer not in "&|"):
        return f"({text})"
    return text


def kind_of(node: Node, kinds: Mapping[str, str]) -> str | None:
    """What an expression gives: "truth", "number", "text", "moment", "span"; "null" for the literal; None where the
    answer of Python may not be that of polars. kinds: those of the columns.

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


# Functions: nulls are None, and everything is null where an operand is, but for what can be told all the same.


def function_of(node: Node, columns: Mapping[str, list[Any]], memory: Mapping[str, Callable[[Any], Any]]) -> Function:
    """The expression as a function of an event's number and a partial match's memory.

    columns: the values of all events; memory: how a reference is read from the memory.
    """
    if node.operator == "lit":
        value = node.value
        return lambda event, taken: value
    if node.operator == "col":
        if node.value in memory:
            read = memory[node.value]
            return lambda event, taken: read(taken)
        values = columns[node.value]
        return lambda event, taken: values[event]
    parts = [function_of(part, columns, memory) for part in node.parts]
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


def _and(left: Function, right: Function) -> Function:
    def function(event: int, taken: tuple[Any, ...]) -> Value:
        a = left(event, taken)
        if a is False:
            return False
        b = right(event, taken)
        return False if b is False else None if a is None or b is None else True

    return function


def _or(left: Function, right: Function) -> Function:
    def function(event: int, taken: tuple[Any, ...]) -> Value:
        a = left(event, taken)
        if a is True:
            return True
        b = right(event, taken)
        return True if b is True else None if a is None or b is None else False

    return function


def _when(condition: Function, then: Function, otherwise: Function) -> Function:
    def function(event: int, taken: tuple[Any, ...]) -> Value:
        return then(event, taken) if condition(event, taken) is True else otherwise(event, taken)

    return function


def _between(value: Function, low: Function, high: Function) -> Function:
    return _and(_binary(_PLAIN[">="], value, low), _binary(_PLAIN["<="], value, high))


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
    "&": _and,
    "|": _or,
    "when": _when,
    "is_between": _between,
    "is_null": lambda part: lambda event, taken: part(event, taken) is None,
    "is_not_null": lambda part: lambda event, taken: part(event, taken) is not None,
}
