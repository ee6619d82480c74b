"""The steps of a query as people read them: code where it can be written back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from tidewheel.engine.execution.input import DataFrameInput, LogInput
from tidewheel.engine.runtime.row_op import RowOp
from tidewheel.patterns.define.expressions import conjuncts, parse, source
from tidewheel.plain_text import plain

__all__ = ["expression_text", "key_by_text", "step_texts"]

_LONGEST = 80
"""Letters of an expression in polars' own words; what is longer is of no use to readers."""

_ALIAS = re.compile(r'\.alias\("(?:[^"\\]|\\.)*"\)$')


def expression_text(expression: Any) -> str:
    """An expression as code; one that cannot be written back, and is long, by the columns that it is made of.

    >>> expression_text(pl.col("speed") * 3.6), expression_text(pl.col("name").str.contains("x").alias("y"))
    ("pl.col('speed') * 3.6", 'col("name").str.contains(["x"])')
    """
    if not isinstance(expression, pl.Expr):
        return plain(repr(expression))
    parts = conjuncts(expression)
    if len(parts) > 1 and parse(expression) is None:
        return " & ".join(f"({expression_text(part)})" for part in parts)
    text = source(expression)
    while (shorter := _ALIAS.sub("", text)) != text:
        text = shorter
    text = plain(text)
    if len(text) <= _LONGEST:
        return text
    names = list(dict.fromkeys(expression.meta.root_names()))
    return f"computed from {', '.join(names)}" if names else text[: _LONGEST - 1] + "…"


def key_by_text(keys: Sequence[str]) -> str:
    """Keys as the user named them; nothing if there are none."""
    return f"key_by({', '.join(keys)})" if keys else ""


def step_texts(ops: Sequence[RowOp], given: LogInput | DataFrameInput | None = None) -> list[str]:
    """Steps over rows as the user wrote them, without those that were added. given: the input, if they are the first.

    >>> step_texts([RowOp("with_columns", ((pl.col("speed") * 3.6).alias("kmh"),)), RowOp("select", (pl.col("kmh"),))])
    ["with_columns(kmh=pl.col('speed') * 3.6)", 'select(kmh)']
    """
    own = list(ops)
    if given is not None and given.time_column != "event_time":
        own = own[1:]  # gives the rows' time its name
    return [_step(op) for op in own if not op.is_check and not _hidden(op)]


def _hidden(op: RowOp) -> bool:
    names = [_name(expression) for expression in op.exprs]
    return bool(names) and all(name is not None and name.startswith("__") for name in names)


def _name(expression: Any) -> str | None:
    if not isinstance(expression, pl.Expr):
        return None
    return expression.meta.output_name(raise_if_undetermined=False)


def _step(op: RowOp) -> str:
    name = f"{op.name}=" if op.name else ""
    return f"{op.kind}({name}{', '.join(map(_column if op.makes_columns else expression_text, op.exprs))})"


def _column(expression: Any) -> str:
    name = _name(expression)
    if name is None:
        return expression_text(expression)
    bare = expression.meta.undo_aliases()
    if bare.meta.is_column() and _name(bare) == name:
        return name
    return f"{name}={expression_text(expression)}"
