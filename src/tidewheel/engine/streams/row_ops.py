"""Checks of the expressions that users give for each row, and the columns that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from tidewheel.engine.runtime.row_op import RowOp
from tidewheel.engine.streams.step_text import step_texts
from tidewheel.errors import DefinitionError
from tidewheel.model.aggregates.retractable import WEIGHT
from tidewheel.plain_text import plain

__all__ = ["after_ops", "check_expressions", "named_expressions"]

_TIME = "event_time"


def check_expressions(what: str, given: Iterable[Any]) -> None:
    """Refuse anything but polars expressions, with a message for Spark users."""
    for each in given:
        if isinstance(each, str):
            raise DefinitionError(
                f'{what}: {each!r} is text, and a polars expression is wanted, like pl.col("amount") > 5; one that is '
                f"written in SQL is pl.sql_expr({each!r})"
            )
        if type(each).__module__.startswith("pyspark."):
            raise DefinitionError(
                f"{what}: {each!r} is a column of Spark's, and a polars expression is wanted, like "
                'pl.col("amount") > 5 (import polars as pl); or do it in Spark, before tidewheel.stream(df, ...)'
            )
        if not isinstance(each, pl.Expr):
            raise DefinitionError(f'{what}: a polars expression is wanted, like pl.col("amount") > 5, got {each!r}')


def named_expressions(what: str, given: Mapping[str, Any]) -> list[pl.Expr]:
    """Columns given by name, as expressions; other values than expressions and names of columns are constants."""
    check_expressions(what, (each for each in given.values() if type(each).__module__.startswith("pyspark.")))
    return [
        (value if isinstance(value, pl.Expr) else pl.col(value) if isinstance(value, str) else pl.lit(value)).alias(
            name
        )
        for name, value in given.items()
    ]


def after_ops(ops: Iterable[RowOp], schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """The columns after these steps; a column that is not there is an error now, not when the first row comes."""
    frame = pl.DataFrame(schema=dict(schema))
    for op in ops:
        try:
            frame = op.apply(frame)
        except pl.exceptions.PolarsError as error:
            step = next(iter(step_texts([op])), plain(repr(op)))
            reason = str(error).splitlines()[0].partition("; valid columns: ")[0]
            raise DefinitionError(f"{step}: {reason}; there are the columns {', '.join(frame.columns)}") from None
    if _TIME in frame.columns and frame.schema[_TIME] != pl.Datetime("us", "UTC"):
        if not isinstance(frame.schema[_TIME], pl.Datetime):
            raise DefinitionError(f"the column {_TIME} must stay a time, it would become {frame.schema[_TIME]}")
    elif _TIME not in frame.columns and schema:
        raise DefinitionError(f"the column {_TIME} must stay: every row has a time")
    strange = [name for name in frame.columns if name.startswith("__") and name != WEIGHT]
    if strange:
        raise DefinitionError(f"the column {strange[0]!r}: names that begin with __ are kept for Tidewheel; rename it")
    return dict(frame.schema)
