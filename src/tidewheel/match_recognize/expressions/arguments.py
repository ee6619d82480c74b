"""Arguments of navigations and aggregates as expressions over the columns of one row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from sqlglot import exp

from tidewheel.match_recognize.expressions.aggregates import aggregate_of
from tidewheel.match_recognize.expressions.references import (
    LABEL,
    NUMBER,
    Aggregate,
    Expression,
    MatchNumber,
    Navigation,
    Reference,
)
from tidewheel.match_recognize.expressions.to_polars import Columns
from tidewheel.match_recognize.syntax.scalar import MARK

__all__ = ["Argument", "Resolved", "resolve"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A scalar over one row; labelled: it asks for the row's variable or the match's number."""

    expression: pl.Expr
    dtype: pl.DataType
    tree: exp.Expr
    columns: frozenset[str]

    @property
    def labelled(self) -> bool:
        """Whether it can be computed before the row is matched."""
        return LABEL in self.columns or NUMBER in self.columns


@dataclass(frozen=True, slots=True)
class Resolved:
    """A reference, its arguments checked, and its type; `aggregate` is over columns a0, a1, … and where."""

    reference: Reference
    arguments: tuple[Argument, ...]
    where: Argument | None
    dtype: pl.DataType
    aggregate: pl.Expr | None = None


def resolve(
    expression: Expression, schema: Mapping[str, pl.DataType], *, text: str, what: str
) -> tuple[dict[str, Resolved], Columns]:
    """Resolve the references of an expression to columns; returns them with the translator of the scalar over them."""
    rows = Columns({**schema, LABEL: pl.String(), NUMBER: pl.Int64()}, text=text, span=expression.span, what=what)
    resolved = {name: _resolved(reference, rows) for name, reference in expression.references.items()}
    known = {name: one.dtype for name, one in resolved.items()}
    return resolved, Columns(known, text=text, span=expression.span, what=what)


def _resolved(reference: Reference, rows: Columns) -> Resolved:
    if isinstance(reference, MatchNumber):
        return Resolved(reference, (), None, pl.Int64())
    if isinstance(reference, Navigation):
        argument = _argument(reference.argument, rows)
        return Resolved(reference, (argument,), None, argument.dtype)
    arguments = tuple(_argument(tree, rows) for tree in reference.arguments)
    where = None
    if reference.where is not None:
        rows.boolean(reference.where)
        where = _argument(reference.where, rows)
    return _aggregated(reference, arguments, where, rows)


def _argument(tree: exp.Expr, rows: Columns) -> Argument:
    made = rows.expression(tree)
    return Argument(made, rows.type_of(tree, made), tree, frozenset(made.meta.root_names()))


def _literal(tree: exp.Expr) -> str | int | None:
    """A string, or a whole number from 1 on, if it is a literal; else None."""
    if not isinstance(tree, exp.Literal):
        return None
    text = str(tree.this)
    return text if tree.is_string else int(text) if text.isdigit() and int(text) else None


def _aggregated(
    reference: Aggregate, arguments: tuple[Argument, ...], where: Argument | None, rows: Columns
) -> Resolved:
    names = [f"a{index}" for index in range(len(arguments))]
    schema = {name: argument.dtype for name, argument in zip(names, arguments, strict=True)}
    literals = [_literal(tree) for tree in reference.arguments]
    if reference.function.startswith("SEVERAL ") and not isinstance(literals[-1], int):
        name = reference.function.removeprefix("SEVERAL ").lower()
        rows.refuse(reference.arguments[-1], f"{name} with a count takes a whole number like 3, from 1 on")
    expression = aggregate_of(
        reference.function,
        [pl.col(name) for name in names],
        dtype=arguments[0].dtype if arguments else None,
        distinct=reference.distinct,
        where=None if where is None else pl.col("where"),
        literals=literals,
    )
    over = Columns({**schema, "where": pl.Boolean()}, text=rows.text, span=reference.span, what=rows.what)
    call = exp.Anonymous(this=MARK + reference.function)
    return Resolved(reference, arguments, where, over.type_of(call, expression), expression)
