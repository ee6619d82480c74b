"""Sub-queries in expressions: those over no table are constants, others are refused."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from tidewheel.errors import StatementError
from tidewheel.match_recognize.syntax.scalar import Scalar, span_of

__all__ = ["without_queries"]


def without_queries(scalar: Scalar, text: str) -> exp.Expr:
    """Replace `(SELECT 1)`, `x IN (SELECT 1)` and `EXISTS (SELECT 1)` by plain expressions."""

    def refuse(node: exp.Expr) -> NoReturn:
        start, end = span_of(node, scalar.span)
        raise StatementError(
            "a sub-query over a table cannot be used here; join the table to the input instead",
            text=text,
            start=start,
            end=end,
        )

    def values(node: exp.Expr) -> list[exp.Expr]:
        while isinstance(node, (exp.Subquery, exp.Paren)):
            node = node.this
        if isinstance(node, exp.Values):
            rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
            if all(len(row) == 1 for row in rows):
                return [row[0] for row in rows]
        if isinstance(node, exp.Select):
            others = [name for name, value in node.args.items() if value and name not in ("expressions", "kind")]
            if not others and len(node.expressions) == 1:
                only = node.expressions[0]
                return [only.this if isinstance(only, exp.Alias) else only]
        refuse(node)

    def plain(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return exp.In(this=node.this.copy(), expressions=[one.copy() for one in values(node.args["query"])])
        if isinstance(node, exp.Exists):
            values(node.this)
            return exp.true()
        if isinstance(node, (exp.Subquery, exp.Select, exp.SetOperation, exp.Values)):
            found = values(node)
            if len(found) != 1:
                refuse(node)
            return exp.Paren(this=found[0].copy())
        if isinstance(node, exp.Query):
            refuse(node)
        return node

    if scalar.tree.find(exp.Query, exp.Exists, exp.Values) is None:
        return scalar.tree
    return scalar.tree.copy().transform(plain, copy=False)
