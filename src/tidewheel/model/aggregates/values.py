"""Aggregates that keep the values themselves: lists, exact distinct counts, exact percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import polars as pl

from tidewheel.model.aggregates.aggregate import Aggregate, Column, Row
from tidewheel.model.aggregates.ordered import order_of
from tidewheel.model.stored_fields import StoredFields

__all__ = ["Collect", "CountDistinct", "Percentile", "share_of"]


def share_of(percent: float) -> Fraction:
    """The percent as an exact fraction, so that rounding never picks the neighbouring rank."""
    return Fraction(str(percent)).limit_denominator(1_000_000) / 100


@dataclass(frozen=True, repr=False)
class Collect(Aggregate):
    """All values in the order of arrival."""

    stable_name: ClassVar[str] = "agg.collect/1"
    stored: ClassVar[StoredFields] = StoredFields("column")

    function: ClassVar[str] = "collect"

    column: Column

    def partial(self, prefix: str) -> list[pl.Expr]:
        return [self.column.expr.drop_nulls().alias(f"{prefix}.values")]

    def merge(self, prefix: str) -> list[pl.Expr]:
        return [pl.col(f"{prefix}.values").explode().drop_nulls()]

    def finish(self, prefix: str) -> pl.Expr:
        return pl.col(f"{prefix}.values").fill_null([])

    def of(self, rows: Sequence[Row]) -> Any:
        return [value for value in self.column.values(rows) if value is not None]

    def empty(self) -> Any:
        return []


@dataclass(frozen=True, repr=False)
class CountDistinct(Collect):
    """How many different values, exactly."""

    stable_name: ClassVar[str] = "agg.count_distinct/1"

    function: ClassVar[str] = "count_distinct"

    def partial(self, prefix: str) -> list[pl.Expr]:
        """One part, the different values."""
        return [self.column.expr.drop_nulls().unique(maintain_order=True).alias(f"{prefix}.values")]

    def merge(self, prefix: str) -> list[pl.Expr]:
        """The different values of all."""
        return [pl.col(f"{prefix}.values").explode().drop_nulls().unique(maintain_order=True)]

    def finish(self, prefix: str) -> pl.Expr:
        return pl.col(f"{prefix}.values").list.len().cast(pl.Int64).fill_null(0)

    def of(self, rows: Sequence[Row]) -> Any:
        values = super().of(rows)
        return len({value for value in values if value == value}) + any(value != value for value in values)

    def empty(self) -> Any:
        return 0


@dataclass(frozen=True, repr=False)
class Percentile(Collect):
    """The least value that at least `percent` per cent of the values do not exceed (nearest rank)."""

    stable_name: ClassVar[str] = "agg.percentile/1"
    stored: ClassVar[StoredFields] = StoredFields("column", "percent")

    function: ClassVar[str] = "percentile"

    percent: float

    def finish(self, prefix: str) -> pl.Expr:
        values, share = pl.col(f"{prefix}.values"), share_of(self.percent)
        count = values.list.len().cast(pl.Int64)
        rank = (count * share.numerator + share.denominator - 1) // share.denominator
        return values.list.sort().list.get(rank - 1, null_on_oob=True)

    def of(self, rows: Sequence[Row]) -> Any:
        values = sorted(super().of(rows), key=order_of)
        return values[math.ceil(len(values) * share_of(self.percent)) - 1] if values else None

    def empty(self) -> Any:
        """Over no elements: null."""
        return None
