"""Aggregates that keep a few numbers: counts, sums, means and variances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, ClassVar

import polars as pl

from tidewheel.model.aggregates.aggregate import Aggregate, Column, Row, carried_type
from tidewheel.model.stored_fields import StoredFields

__all__ = ["Count", "Mean", "Stddev", "Sum", "Variance", "total"]


def total(values: pl.Expr) -> pl.Expr:
    """The sum, of whole numbers in 64 bits: polars sums those of 32 bits in 32, and lets those of 64 wrap around. One
    that has no room is an error."""
    kind = pl.dtype_of(values * pl.lit(1, dtype=pl.Int64))
    return (values * pl.lit(1, dtype=pl.Int128)).sum().cast(kind)


@dataclass(frozen=True, repr=False)
class Count(Aggregate):
    """How many rows, or values that are not null."""

    stable_name: ClassVar[str] = "agg.count/1"
    stored: ClassVar[StoredFields] = StoredFields("column")

    function: ClassVar[str] = "count"

    column: Column | None = None

    def partial(self, prefix: str) -> list[pl.Expr]:
        counted = pl.len() if self.column is None else self.column.expr.count()
        return [counted.cast(pl.Int64).alias(f"{prefix}.count")]

    def merge(self, prefix: str) -> list[pl.Expr]:
        return [pl.col(f"{prefix}.count").sum()]

    def finish(self, prefix: str) -> pl.Expr:
        return pl.col(f"{prefix}.count").fill_null(0)

    def of(self, rows: Sequence[Row]) -> int:
        if self.column is None:
            return len(rows)
        return len([value for value in self.column.values(rows) if value is not None])

    def empty(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "count()" if self.column is None else f"count({self.column!r})"


@dataclass(frozen=True, repr=False)
class Sum(Aggregate):
    """The sum of numbers or durations."""

    stable_name: ClassVar[str] = "agg.sum/1"
    stored: ClassVar[StoredFields] = StoredFields("column")

    function: ClassVar[str] = "sum"

    column: Column

    def partial(self, prefix: str) -> list[pl.Expr]:
        """One part, the sum, null if there was no value."""
        return [_sum(self.column.expr).alias(f"{prefix}.sum")]

    def merge(self, prefix: str) -> list[pl.Expr]:
        return [_sum(pl.col(f"{prefix}.sum")).alias(f"{prefix}.sum")]

    def finish(self, prefix: str) -> pl.Expr:
        return pl.col(f"{prefix}.sum")

    def of(self, rows: Sequence[Row]) -> Any:
        found = None
        for value in self.column.values(rows):
            if value is not None:
                found = value if found is None else found + value
        if isinstance(found, int) and not -(2**63) <= found < 2**63:
            raise OverflowError(f"{self!r}: {found} has no room in 64 bits; cast the column to Float64")
        return int(found) if isinstance(found, bool) else found


def _sum(values: pl.Expr) -> pl.Expr:
    return pl.when(values.count() > 0).then(total(values))


@dataclass(frozen=True, repr=False)
class Mean(Aggregate):
    """The mean of numbers, durations or times."""

    stable_name: ClassVar[str] = "agg.mean/1"
    stored: ClassVar[StoredFields] = StoredFields("column")

    function: ClassVar[str] = "mean"

    column: Column

    def partial(self, prefix: str) -> list[pl.Expr]:
        """The sum, as a float because times would soon overflow a whole number, the count, and the type."""
        values = self.column.expr
        numbers = values.cast(pl.dtype_of(values.mean())).to_physical().cast(pl.Float64)
        return [
            numbers.sum().alias(f"{prefix}.sum"),
            values.count().cast(pl.Int64).alias(f"{prefix}.count"),
            carried_type(values.mean()).alias(f"{prefix}.type"),
        ]

    def merge(self, prefix: str) -> list[pl.Expr]:
        return [
            pl.col(f"{prefix}.sum", f"{prefix}.count").sum(),
            pl.col(f"{prefix}.type").first(),
        ]

    def finish(self, prefix: str) -> pl.Expr:
        count = pl.col(f"{prefix}.count")
        mean = pl.when(count > 0).then(pl.col(f"{prefix}.sum") / count)
        return mean.cast(pl.dtype_of(f"{prefix}.type"))

    def of(self, rows: Sequence[Row]) -> Any:
        values = [value for value in self.column.values(rows) if value is not None]
        if not values:
            return None
        if isinstance(values[0], timedelta):
            return sum(values, timedelta()) / len(values)
        if isinstance(values[0], date):
            days = [v if isinstance(v, datetime) else datetime(v.year, v.month, v.day) for v in values]
            return days[0] + sum((day - days[0] for day in days), timedelta()) / len(days)
        return float(sum(values)) / len(values)


@dataclass(frozen=True, repr=False)
class Variance(Aggregate):
    """The variance, kept as count, mean and sum of squared deviations, which lose nothing when merged.

    Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979.
    """

    stable_name: ClassVar[str] = "agg.variance/1"
    stored: ClassVar[StoredFields] = StoredFields("column", "ddof")

    function: ClassVar[str] = "variance"

    column: Column
    ddof: int = 1

    def partial(self, prefix: str) -> list[pl.Expr]:
        """Count, mean and the sum of squared deviations from it."""
        values = self.column.expr.cast(pl.Float64)
        return [
            values.count().cast(pl.Int64).alias(f"{prefix}.count"),
            values.mean().alias(f"{prefix}.mean"),
            (values.var(ddof=0) * values.count()).alias(f"{prefix}.squares"),
        ]

    def merge(self, prefix: str) -> list[pl.Expr]:
        """The squares within the groups, and those of the groups' means."""
        count, mean = pl.col(f"{prefix}.count"), pl.col(f"{prefix}.mean")
        common = (mean * count).sum() / count.sum()
        between = (count * (mean - common) ** 2).sum()
        return [
            count.sum(),
            pl.when(count.sum() > 0).then(common).alias(f"{prefix}.mean"),
            (pl.col(f"{prefix}.squares").sum() + between).alias(f"{prefix}.squares"),
        ]

    def finish(self, prefix: str) -> pl.Expr:
        """The squares by the degrees of freedom; null if there are none."""
        count = pl.col(f"{prefix}.count")
        return pl.when(count > self.ddof).then(pl.col(f"{prefix}.squares") / (count - self.ddof))

    def of(self, rows: Sequence[Row]) -> float | None:
        values = [float(value) for value in self.column.values(rows) if value is not None]
        if len(values) <= self.ddof:
            return None
        mean = sum(values) / len(values)
        return sum((value - mean) ** 2 for value in values) / (len(values) - self.ddof)


@dataclass(frozen=True, repr=False)
class Stddev(Variance):
    """The standard deviation."""

    stable_name: ClassVar[str] = "agg.stddev/1"

    function: ClassVar[str] = "stddev"

    def finish(self, prefix: str) -> pl.Expr:
        return super().finish(prefix).sqrt()

    def of(self, rows: Sequence[Row]) -> float | None:
        variance = super().of(rows)
        return None if variance is None else math.sqrt(variance)
