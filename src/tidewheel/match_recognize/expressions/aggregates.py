"""Aggregates over the rows of a match: as polars expressions over groups, running as columns, and step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tidewheel.match_recognize.expressions.arrays import entries
from tidewheel.patterns.compile.extremes import greater, lesser

__all__ = ["AGGREGATES", "AggregateFunction", "Fold"]

Columns = Callable[..., pl.Expr]


@dataclass(frozen=True, slots=True)
class Fold:
    """The same aggregate row by row, for conditions: states are values that can be compared and hashed."""

    start: Any
    step: Callable[[Any, Any], Any]
    value: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function: `of` columns of a group; `running` over a column that is null where rows do not count.

    several: the same with a number as its last argument, which gives an array of so many.
    """

    of: Columns
    arguments: tuple[int, int] = (1, 1)
    running: Callable[[pl.Expr], pl.Expr] | None = None
    fold: Fold | None = None
    several: str | None = None


def _widened(values: pl.Expr, dtype: pl.DataType | None = None) -> pl.Expr:
    """Sums of small integers are large ones."""
    return values.cast(pl.Int64) if dtype is not None and dtype.is_integer() else values


def _count(values: pl.Expr | None = None) -> pl.Expr:
    return (pl.len() if values is None else values.count()).cast(pl.Int64)


def _sum(values: pl.Expr) -> pl.Expr:
    return pl.when(values.count() > 0).then(values.sum())


def _running_count(values: pl.Expr) -> pl.Expr:
    return values.is_not_null().cast(pl.Int64).cum_sum()


def _running_sum(values: pl.Expr) -> pl.Expr:
    return pl.when(_running_count(values) > 0).then(values.fill_null(0).cum_sum())


def _running_mean(values: pl.Expr) -> pl.Expr:
    return _running_sum(values.cast(pl.Float64)) / _running_count(values)


def _by(values: pl.Expr, order: pl.Expr, *, descending: bool) -> pl.Expr:
    known = order.is_not_null()
    return values.filter(known).sort_by(order.filter(known), descending=descending, maintain_order=True).first()


def _several(values: pl.Expr, count: int, *, descending: bool, dtype: pl.DataType | None) -> pl.Expr:
    known = values.drop_nulls()
    # What is not a number is no extreme, as where only one is asked for.
    keys = [known.is_nan(), known] if dtype is not None and dtype.is_float() else [known]
    ordered = known.sort_by(keys, descending=[False] * (len(keys) - 1) + [descending], maintain_order=True)
    return _listed(ordered.head(count))


def _several_by(values: pl.Expr, order: pl.Expr, count: int, *, descending: bool) -> pl.Expr:
    known = order.is_not_null()
    ordered = values.filter(known).sort_by(order.filter(known), descending=descending, maintain_order=True)
    return _listed(ordered.head(count))


def _joined(values: pl.Expr, separator: Any = None) -> pl.Expr:
    text = separator if isinstance(separator, str) else ""
    known = values.drop_nulls().cast(pl.String)
    return pl.when(known.count() > 0).then(known.str.join(text))


def _listed(values: pl.Expr) -> pl.Expr:
    return pl.when(values.len() > 0).then(values.implode())


def _plus(state: tuple[int, Any], value: Any) -> tuple[int, Any]:
    return state if value is None else (state[0] + 1, state[1] + value if state[0] else value)


def _best(better: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda state, value: state if value is None else value if state is None else better(state, value)


def _mean(state: tuple[int, Any]) -> Any:
    if not state[0]:
        return None
    return state[1] / state[0]


_COUNT = AggregateFunction(
    _count, (0, 1), _running_count, Fold(0, lambda state, value: state + (value is not None), int)
)
_SUM = AggregateFunction(_sum, (1, 1), _running_sum, Fold((0, None), _plus, lambda state: state[1]))
_MEAN = AggregateFunction(lambda values: values.mean(), (1, 1), _running_mean, Fold((0, None), _plus, _mean))
_MIN = AggregateFunction(
    lambda values: values.min(),
    running=lambda values: values.cum_min().forward_fill(),
    fold=Fold(None, _best(lesser), lambda state: state),
    several="SEVERAL MIN",
)
_MAX = AggregateFunction(
    lambda values: values.max(),
    running=lambda values: values.cum_max().forward_fill(),
    fold=Fold(None, _best(greater), lambda state: state),
    several="SEVERAL MAX",
)
_ANY = AggregateFunction(
    lambda values: values.cast(pl.Int8).max().cast(pl.Boolean), fold=Fold(None, _best(lambda a, b: a or b), lambda s: s)
)
_ALL = AggregateFunction(
    lambda values: values.cast(pl.Int8).min().cast(pl.Boolean),
    fold=Fold(None, _best(lambda a, b: a and b), lambda s: s),
)
_LIST = AggregateFunction(_listed)
_KNOWN_LIST = AggregateFunction(lambda values: values.drop_nulls().implode())
_SET = AggregateFunction(lambda values: values.drop_nulls().unique(maintain_order=True).implode())
_FIRST_KNOWN = AggregateFunction(lambda values: values.drop_nulls().first())
_DISTINCT = AggregateFunction(lambda values: values.drop_nulls().n_unique().cast(pl.Int64))
_COUNT_IF = AggregateFunction(
    lambda values: values.fill_null(False).sum().cast(pl.Int64), fold=Fold(0, lambda s, value: s + (value is True), int)
)
_STD = AggregateFunction(lambda values: values.std())
_VAR = AggregateFunction(lambda values: values.var())
_TEXT = AggregateFunction(_joined, (1, 2))
_MIN_BY = AggregateFunction(
    lambda values, order: _by(values, order, descending=False), (2, 2), several="SEVERAL MIN_BY"
)
_MAX_BY = AggregateFunction(lambda values, order: _by(values, order, descending=True), (2, 2), several="SEVERAL MAX_BY")

AGGREGATES: dict[str, AggregateFunction] = {
    "ANY_VALUE": _FIRST_KNOWN,
    "APPROX_COUNT_DISTINCT": _DISTINCT,
    "APPROX_DISTINCT": _DISTINCT,
    "ARBITRARY": _FIRST_KNOWN,
    "ARRAY_AGG": _LIST,
    "AVG": _MEAN,
    "BOOL_AND": _ALL,
    "BOOL_OR": _ANY,
    "COLLECT_LIST": _KNOWN_LIST,
    "COLLECT_SET": _SET,
    "COUNT": _COUNT,
    "COUNT_IF": _COUNT_IF,
    "EVERY": _ALL,
    "LISTAGG": _TEXT,
    "MAX": _MAX,
    "MAP_AGG": AggregateFunction(entries, (2, 2)),
    "MAX_BY": _MAX_BY,
    "MEAN": _MEAN,
    "MEDIAN": AggregateFunction(lambda values: values.median()),
    "MIN": _MIN,
    "MIN_BY": _MIN_BY,
    "SEVERAL MAX": AggregateFunction(_several, (2, 2)),
    "SEVERAL MAX_BY": AggregateFunction(_several_by, (3, 3)),
    "SEVERAL MIN": AggregateFunction(_several, (2, 2)),
    "SEVERAL MIN_BY": AggregateFunction(_several_by, (3, 3)),
    "STDDEV": _STD,
    "STDDEV_POP": AggregateFunction(lambda values: values.std(ddof=0)),
    "STDDEV_SAMP": _STD,
    "STRING_AGG": _TEXT,
    "SUM": _SUM,
    "VARIANCE": _VAR,
    "VAR_POP": AggregateFunction(lambda values: values.var(ddof=0)),
    "VAR_SAMP": _VAR,
}


def aggregate_of(
    name: str,
    columns: Sequence[pl.Expr],
    *,
    dtype: pl.DataType | None,
    distinct: bool = False,
    where: pl.Expr | None = None,
    literals: Sequence[Any] = (),
) -> pl.Expr:
    """The expression that aggregates a group: over its columns, those rows only that `where` holds for.

    literals: for each argument what is written there, if it is a constant; otherwise None.
    """
    if not columns:
        return pl.len().cast(pl.Int64) if where is None else where.fill_null(False).sum().cast(pl.Int64)
    given = [column if where is None else column.filter(where) for column in columns]
    if distinct:
        given[0] = given[0].unique(maintain_order=True)
    if name == "SUM":
        given[0] = _widened(given[0], dtype)
    if AGGREGATES[name] is _TEXT:
        return _joined(given[0], literals[1] if len(literals) > 1 else None)
    if name in ("SEVERAL MIN", "SEVERAL MAX"):
        return _several(given[0], literals[1], descending=name == "SEVERAL MAX", dtype=dtype)
    if name in ("SEVERAL MIN_BY", "SEVERAL MAX_BY"):
        return _several_by(given[0], given[1], literals[2], descending=name == "SEVERAL MAX_BY")
    return AGGREGATES[name].of(*given)


__all__ += ["aggregate_of"]
