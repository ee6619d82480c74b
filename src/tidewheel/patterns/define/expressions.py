"""Polars expressions taken apart, to be written as code or asked as functions.

Each guess of what an expression is made of is proven by building it again and comparing. What is not understood stays a
polars expression.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl

__all__ = ["BINARY", "UNARY", "Node", "conjuncts", "parse", "source"]


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression: an operator over parts, or a column, or a literal."""

    operator: str
    parts: tuple[Node, ...] = ()
    value: Any = None


BINARY: dict[str, Callable[[Any, Any], Any]] = {
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
UNARY: dict[str, Callable[[pl.Expr], pl.Expr]] = {
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
    """Parse the expression into a tree; None if there is something in it that is not known here.

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
        for name, build in UNARY.items():
            if _same(build, inputs, expression):
                return name, inputs
    if len(inputs) == 2:
        for ordered in (inputs[::-1], inputs):
            for name, combine in BINARY.items():
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
    if node.operator in BINARY:
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
    """A literal that cannot be an operand: text would be taken for a column's name, and has no methods of
    expressions."""
    return f"pl.lit({part.value!r})" if part.operator == "lit" else _source(part)


def _inside(part: Node, outer: str) -> str:
    text = _alone(part) if outer == "~" else _source(part)
    if part.operator in BINARY and (outer == "~" or part.operator != outer or outer not in "&|"):
        return f"({text})"
    return text
