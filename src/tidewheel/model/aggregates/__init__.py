"""Aggregates over the elements of a window.

Used as `agg.count()`, `agg.sum("amount")`. A column is given by name or as a row-wise polars expression. Nulls are left
out, as in SQL: the sum of no values is null. NaN is a value, greater than every other.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.aggregates.aggregate import Aggregate, Column, whole_number
from tidewheel.model.aggregates.custom import Custom
from tidewheel.model.aggregates.moments import Count, Mean, Stddev, Sum, Variance
from tidewheel.model.aggregates.ordered import ArgMax, ArgMin, First, Last, Max, Min, TopK
from tidewheel.model.aggregates.sketches import ApproxCountDistinct, ApproxPercentile, MostFrequent
from tidewheel.model.aggregates.values import Collect, CountDistinct, Percentile, share_of

__all__ = [
    "Aggregate",
    "approx_count_distinct",
    "approx_percentile",
    "arg_max",
    "arg_min",
    "collect",
    "count",
    "custom",
    "count_distinct",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "most_frequent",
    "percentile",
    "stddev",
    "sum",
    "top_k",
    "variance",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports


def count(column: str | pl.Expr | None = None) -> Count:
    """Count rows, or the values of a column that are not null.

    >>> count().of([{"a": 1}, {"a": None}]), count("a").of([{"a": 1}, {"a": None}])
    (2, 1)
    """
    return Count(None if column is None else Column(column, what="count"))


def sum(column: str | pl.Expr) -> Sum:
    """The sum of numbers or durations.

    >>> sum("amount")
    sum('amount')
    """
    return Sum(Column(column, what="sum"))


def min(column: str | pl.Expr) -> Min:
    """The least value.

    >>> min("delay").of([{"delay": 7}, {"delay": None}, {"delay": 3}])
    3
    """
    return Min(Column(column, what="min"))


def max(column: str | pl.Expr) -> Max:
    """The greatest value.

    >>> max(pl.col("speed") * 3.6)
    max(...)
    """
    return Max(Column(column, what="max"))


def mean(column: str | pl.Expr) -> Mean:
    """The mean of numbers, durations or times.

    >>> mean("delay").of([{"delay": 7}, {"delay": None}, {"delay": 3}])
    5.0
    """
    return Mean(Column(column, what="mean"))


def variance(column: str | pl.Expr, *, ddof: int = 1) -> Variance:
    """The variance of numbers: of a sample, or with `ddof=0` of all there is. Null for `ddof` values or fewer.

    >>> rows = [{"delay": delay} for delay in (1, 3)]
    >>> variance("delay").of(rows), variance("delay", ddof=0).of(rows)
    (2.0, 1.0)
    """
    return Variance(Column(column, what="variance"), whole_number("variance: ddof", ddof, 0))


def stddev(column: str | pl.Expr, *, ddof: int = 1) -> Stddev:
    """The standard deviation of numbers; `ddof` as for `variance`.

    >>> stddev("delay", ddof=0).of([{"delay": delay} for delay in (1, 5)])
    2.0
    """
    return Stddev(Column(column, what="stddev"), whole_number("stddev: ddof", ddof, 0))


def first(column: str | pl.Expr) -> First:
    """The value with the lowest event time; among equals, that of the earliest arrival.

    >>> first("stop").of([{"stop": "b", "__time": 7}, {"stop": "a", "__time": 3}])
    'a'
    """
    return First(Column(column, what="first"))


def last(column: str | pl.Expr) -> Last:
    """The value with the highest event time; of equals the latest arrival.

    >>> last("stop").of([{"stop": "b", "__time": 7}, {"stop": "a", "__time": 3}])
    'b'
    """
    return Last(Column(column, what="last"))


def arg_max(column: str | pl.Expr, by: str | pl.Expr) -> ArgMax:
    """The value of `column` where `by` is greatest; among equals, that of the earliest arrival.

    >>> arg_max("vehicle", by="speed").of([{"vehicle": "a", "speed": 3}, {"vehicle": "b", "speed": 7}])
    'b'
    """
    return ArgMax(Column(column, what="arg_max"), Column(by, what="arg_max: by"))


def arg_min(column: str | pl.Expr, by: str | pl.Expr) -> ArgMin:
    """The value of `column` where `by` is least; among equals, that of the earliest arrival.

    >>> arg_min("vehicle", by="speed").of([{"vehicle": "a", "speed": 3}, {"vehicle": "b", "speed": 7}])
    'a'
    """
    return ArgMin(Column(column, what="arg_min"), Column(by, what="arg_min: by"))


def collect(column: str | pl.Expr) -> Collect:
    """Collect all values as a list, in no defined order.

    >>> sorted(collect("line").of([{"line": line} for line in ("9", None, "550", "9")]))
    ['550', '9', '9']
    """
    return Collect(Column(column, what="collect"))


def count_distinct(column: str | pl.Expr) -> CountDistinct:
    """Count the different values, exactly: all of them are kept.

    >>> count_distinct("line").of([{"line": line} for line in ("9", None, "550", "9")])
    2
    """
    return CountDistinct(Column(column, what="count_distinct"))


def approx_count_distinct(column: str | pl.Expr, *, lg_k: int = 12) -> ApproxCountDistinct:
    """Count the different values approximately (HyperLogLog with 2 ** lg_k registers of one byte; error 1.04 / 2 **
    (lg_k / 2)).

    >>> approx_count_distinct("user").of([{"user": name} for name in "abcab"])
    3
    """
    return ApproxCountDistinct(
        Column(column, what="approx_count_distinct"), whole_number("approx_count_distinct: lg_k", lg_k, 4, 21)
    )


def percentile(column: str | pl.Expr, percent: float, *, low: bool = False) -> Percentile:
    """The least value that at least `percent` per cent of the values do not exceed (nearest rank; all are kept). Since
    0.95 is probably meant as 95, a percentile up to 1 needs `low=True`.

    >>> percentile("delay", 50).of([{"delay": delay} for delay in (9, 1, 5, 7)])
    5
    """
    if not share_of(_percent("percentile", percent, low=low)):
        raise DefinitionError(f"percentile: percent must be at least 0.000001, got {percent!r}; for the least use min")
    return Percentile(Column(column, what="percentile"), percent)


def approx_percentile(
    column: str | pl.Expr, percent: float, *, compression: int = 200, low: bool = False
) -> ApproxPercentile:
    """About the value that `percent` per cent of the values do not exceed (t-digest; NaN is left out); `low` as for
    `percentile`.

    A higher `compression` is more exact and takes more room: about 20 bytes each, once there are many values.

    >>> approx_percentile("delay", 50).of([{"delay": delay} for delay in (9, 1, 5)])
    5.0
    """
    return ApproxPercentile(
        Column(column, what="approx_percentile"),
        _percent("approx_percentile", percent, low=low),
        whole_number("approx_percentile: compression", compression, 10, 65_535),
    )


def top_k(column: str | pl.Expr, k: int, *, by: str | pl.Expr | None = None) -> TopK:
    """The k greatest values, or the values of the k rows with the greatest `by`; the greatest first.

    >>> top_k("name", 2, by="score").of([{"name": n, "score": s} for n, s in (("a", 1), ("b", 3), ("c", 2))])
    ['b', 'c']
    """
    order = None if by is None else Column(by, what="top_k: by")
    return TopK(Column(column, what="top_k"), whole_number("top_k: k", k, 1), order)


def most_frequent(column: str | pl.Expr, k: int, *, size: int = 1024) -> MostFrequent:
    """The k most frequent values and how often each came, as a list of structs of `value` and `count`.

    Exact as long as there are at most three quarters of `size` different values; beyond that no count is wrong by more
    than about 3.5 / size of the number of all values. `size` is a power of 2.

    >>> most_frequent("line", 1).of([{"line": line} for line in ("550", "9", "550")])
    [{'value': '550', 'count': 2}]
    """
    if whole_number("most_frequent: size", size, 8, 2**26) & (size - 1):
        raise DefinitionError(f"most_frequent: size must be a power of 2, got {size}")
    return MostFrequent(Column(column, what="most_frequent"), whole_number("most_frequent: k", k, 1), size)


def custom(
    *,
    partial: Mapping[str, pl.Expr],
    merge: Mapping[str, pl.Expr] | None = None,
    finish: pl.Expr,
    name: str | None = None,
) -> Custom:
    """An aggregate of your own: named parts over rows, the same parts over rows of parts, the result over parts.

    Without `merge` all rows are kept until the window's result is asked for, in no defined order; windows that merge,
    like sessions, refuse it.

    >>> a, b = pl.col("a"), pl.col("b")
    >>> weighted = custom(
    ...     partial={"total": (a * b).sum(), "weight": b.sum()},
    ...     merge={"total": pl.col("total").sum(), "weight": pl.col("weight").sum()},
    ...     finish=pl.col("total") / pl.col("weight"),
    ... )
    >>> weighted.of([{"a": 1.0, "b": 1, "__time": 0}, {"a": 4.0, "b": 2, "__time": 1}])
    3.0
    """
    label = name or "custom"
    return Custom(
        parts=_parts(partial, f"{label}: partial"),
        merging=None if merge is None else _parts(merge, f"{label}: merge"),
        finishing=Column(finish, what=f"{label}: finish"),
        name=name,
    )


def _parts(expressions: Mapping[str, pl.Expr], what: str) -> tuple[tuple[str, Column], ...]:
    if not isinstance(expressions, Mapping) or not all(isinstance(expr, pl.Expr) for expr in expressions.values()):
        raise DefinitionError(f"{what}: expected a mapping of names to polars expressions, got {expressions!r}")
    return tuple((name, Column(expr, what=f"{what} {name!r}", rowwise=False)) for name, expr in expressions.items())


def _percent(what: str, percent: float, *, low: bool) -> float:
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 < percent <= 100:
        raise DefinitionError(f"{what}: percent must be above 0 and at most 100, got {percent!r}")
    if percent <= 1 and not low:
        raise DefinitionError(
            f"{what}: percent is out of 100, got {percent!r}; say {100 * percent:g}, or {percent!r}, low=True if "
            f"{percent:g} per cent is meant"
        )
    return percent
