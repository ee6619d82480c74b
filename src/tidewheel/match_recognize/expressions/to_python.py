"""SQL expressions as Python functions over single values, for conditions that depend on the rows taken so far.

They mean what `columns` makes of the same trees. What is not worth writing twice is asked of polars, with one row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import polars as pl
from sqlglot import exp

from tidewheel.match_recognize.expressions.to_polars import Columns

__all__ = ["Getter", "Value", "compile_value"]

Value = Callable[[Any], Any]
"""From what is known now (a history, a row) to a value; None is SQL's null."""
Getter = Mapping[str, Value]
"""How to get the value of each column of a tree."""


def compile_value(tree: exp.Expr, columns: Columns, getters: Getter) -> Value:
    """Compile a tree over columns to a function that reads values by `getters`."""
    made = columns.expression(tree)
    names = sorted(set(made.meta.root_names()))
    if not names:
        constant = pl.select(made.alias("it")).item()
        return lambda known: constant
    compiled = _compiled(tree, columns, getters)
    if compiled is not None:
        return compiled
    if isinstance(tree, exp.Column):
        return getters[names[0]]
    return _by_polars(made, columns, {name: getters[name] for name in names})


def _by_polars(made: pl.Expr, columns: Columns, getters: Mapping[str, Value]) -> Value:
    schema = {name: columns.schema[name] for name in getters}
    expression = made.alias("it")

    def value(known: Any) -> Any:
        frame = pl.DataFrame({name: [get(known)] for name, get in getters.items()}, schema=schema)
        found = frame.select(expression).item()
        return found.to_list() if isinstance(found, pl.Series) else found

    return value


def _compiled(tree: exp.Expr, columns: Columns, getters: Getter) -> Value | None:
    kind = type(tree)
    if kind is exp.Paren:
        return compile_value(tree.this, columns, getters)
    if kind in (exp.And, exp.Or, exp.Not):
        return _logic(tree, columns, getters)
    if kind in _COMPARE and _alike(tree.this, tree.expression, columns):
        left, right = (compile_value(one, columns, getters) for one in (tree.this, tree.expression))
        return _comparison(_COMPARE[kind], left, right)
    if kind in _CALCULATE and _numbers(tree.this, columns) and _numbers(tree.expression, columns):
        left, right = (compile_value(one, columns, getters) for one in (tree.this, tree.expression))
        return _calculation(_CALCULATE[kind], left, right)
    if kind is exp.Neg and _numbers(tree.this, columns):
        inner = compile_value(tree.this, columns, getters)
        return lambda known: None if (value := inner(known)) is None else -value
    if kind is exp.Is and isinstance(tree.expression, exp.Null):
        inner = compile_value(tree.this, columns, getters)
        return lambda known: inner(known) is None
    if kind is exp.Between:
        low, high = (
            exp.GTE(this=tree.this, expression=tree.args["low"]),
            exp.LTE(this=tree.this, expression=tree.args["high"]),
        )
        return compile_value(exp.And(this=low, expression=high), columns, getters)
    if kind is exp.In:
        equals: list[exp.Expr] = [exp.EQ(this=tree.this, expression=one) for one in tree.expressions]
        whole = equals[0]
        for one in equals[1:]:
            whole = exp.Or(this=whole, expression=one)
        return compile_value(whole, columns, getters)
    return None


def _logic(tree: exp.Expr, columns: Columns, getters: Getter) -> Value:
    left = compile_value(tree.this, columns, getters)
    if isinstance(tree, exp.Not):
        return lambda known: None if (value := left(known)) is None else not value
    right = compile_value(tree.expression, columns, getters)
    decisive = isinstance(tree, exp.Or)

    def value(known: Any) -> Any:
        one = left(known)
        if one is decisive:
            return decisive
        other = right(known)
        if other is decisive:
            return decisive
        return None if one is None or other is None else not decisive

    return value


# In polars, as in Spark, nan equals itself and is larger than every other number.
def _equal(left: Any, right: Any) -> bool:
    return bool(left == right or (left != left and right != right))


def _less(left: Any, right: Any) -> bool:
    return bool(left < right or (right != right and left == left))


_COMPARE: dict[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: _equal,
    exp.NEQ: lambda left, right: not _equal(left, right),
    exp.LT: _less,
    exp.LTE: lambda left, right: _less(left, right) or _equal(left, right),
    exp.GT: lambda left, right: _less(right, left),
    exp.GTE: lambda left, right: _less(right, left) or _equal(left, right),
}
_CALCULATE: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: lambda left, right: left / right if right else None,
}


def _comparison(compare: Callable[[Any, Any], bool], left: Value, right: Value) -> Value:
    def value(known: Any) -> bool | None:
        one, other = left(known), right(known)
        return None if one is None or other is None else compare(one, other)

    return value


def _calculation(calculate: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    def value(known: Any) -> Any:
        one, other = left(known), right(known)
        return None if one is None or other is None else calculate(one, other)

    return value


def _type(tree: exp.Expr, columns: Columns) -> pl.DataType:
    return columns.type_of(tree, columns.expression(tree))


def _numbers(tree: exp.Expr, columns: Columns) -> bool:
    """Whether Python's numbers do what polars' would: large integers and doubles, not the small ones that overflow."""
    kind = _type(tree, columns)
    literal = isinstance(tree, exp.Literal) and not tree.is_string
    return literal or kind in (pl.Int64, pl.Float64)


def _alike(left: exp.Expr, right: exp.Expr, columns: Columns) -> bool:
    """Whether Python compares the two as polars would."""
    one, other = _type(left, columns), _type(right, columns)
    if one.is_numeric() and other.is_numeric():
        return not isinstance(one, pl.Decimal) and not isinstance(other, pl.Decimal)
    return one == other and not isinstance(one, (pl.List, pl.Struct, pl.Array, pl.Object))


def hashable(value: Any) -> Any:
    """A value that can be part of a key."""
    if isinstance(value, (list, tuple)):
        return tuple(hashable(one) for one in value)
    if isinstance(value, dict):
        return tuple((name, hashable(one)) for name, one in value.items())
    if isinstance(value, (float, Decimal)) and value != value:
        return "nan"
    return value


__all__ += ["hashable"]
