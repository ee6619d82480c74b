"""Aggregates that choose by order: the least, the greatest, the first, the last, the top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from tidewheel.model.aggregates.aggregate import Aggregate, Column, Row
from tidewheel.model.columns import TIME
from tidewheel.model.stored_fields import StoredFields

__all__ = ["ArgMax", "ArgMin", "First", "Last", "Max", "Min", "TopK", "order_of"]


def order_of(value: Any) -> tuple[bool, Any]:
    """Make a sort key that puts NaN after every other value, and takes one NaN for another."""
    return (True, None) if value != value else (False, value)


@dataclass(frozen=True, repr=False)
class Min(Aggregate):
    """The least value."""

    stable_name: ClassVar[str] = "agg.min/1"
    stored: ClassVar[StoredFields] = StoredFields("column")

    function: ClassVar[str] = "min"

    column: Column

    def partial(self, prefix: str) -> list[pl.Expr]:
        return [self.column.expr.min().alias(f"{prefix}.min")]

    def merge(self, prefix: str) -> list[pl.Expr]:
        return [pl.col(f"{prefix}.min").min()]

    def finish(self, prefix: str) -> pl.Expr:
        return pl.col(f"{prefix}.min")

    def of(self, rows: Sequence[Row]) -> Any:
        return min((v for v in self.column.values(rows) if v is not None), key=order_of, default=None)


@dataclass(frozen=True, repr=False)
class Max(Aggregate):
    """The greatest value."""

    stable_name: ClassVar[str] = "agg.max/1"
    stored: ClassVar[StoredFields] = StoredFields("column")

    function: ClassVar[str] = "max"

    column: Column

    def partial(self, prefix: str) -> list[pl.Expr]:
        return [self.column.expr.nan_max().alias(f"{prefix}.max")]

    def merge(self, prefix: str) -> list[pl.Expr]:
        return [pl.col(f"{prefix}.max").nan_max()]

    def finish(self, prefix: str) -> pl.Expr:
        return pl.col(f"{prefix}.max")

    def of(self, rows: Sequence[Row]) -> Any:
        return max((v for v in self.column.values(rows) if v is not None), key=order_of, default=None)


@dataclass(frozen=True, repr=False)
class ArgMax(Aggregate):
    """The value of `column` in the row with the greatest `by`; among equals, that of the earliest arrival. Rows in
    which either is null are left out."""

    stable_name: ClassVar[str] = "agg.arg_max/1"
    stored: ClassVar[StoredFields] = StoredFields("column", "by")

    function: ClassVar[str] = "arg_max"
    greatest: ClassVar[bool] = True
    latest: ClassVar[bool] = False

    column: Column
    by: Column

    def partial(self, prefix: str) -> list[pl.Expr]:
        """The value, and the `by` that it was chosen with."""
        return self._choose(prefix, self.column.expr, self.by.expr)

    def merge(self, prefix: str) -> list[pl.Expr]:
        """The same choice among those chosen."""
        return self._choose(prefix, pl.col(f"{prefix}.value"), pl.col(f"{prefix}.by"))

    def _choose(self, prefix: str, value: pl.Expr, by: pl.Expr) -> list[pl.Expr]:
        whole = value.is_not_null() & by.is_not_null()
        among = by.filter(whole)
        best = among.nan_max() if self.greatest else among.min()
        chosen = value.filter(whole & by.eq(best))
        return [
            (chosen.last() if self.latest else chosen.first()).alias(f"{prefix}.value"),
            best.alias(f"{prefix}.by"),
        ]

    def finish(self, prefix: str) -> pl.Expr:
        return pl.col(f"{prefix}.value")

    def of(self, rows: Sequence[Row]) -> Any:
        pairs = zip(self.column.values(rows), self.by.values(rows), strict=True)
        whole = [(order_of(by), value) for value, by in pairs if value is not None and by is not None]
        if not whole:
            return None
        best = (max if self.greatest else min)(by for by, _ in whole)
        chosen = [value for by, value in whole if by == best]
        return chosen[-1 if self.latest else 0]


@dataclass(frozen=True, repr=False)
class ArgMin(ArgMax):
    """The value of `column` in the row with the least `by`; among equals, that of the earliest arrival."""

    stable_name: ClassVar[str] = "agg.arg_min/1"

    function: ClassVar[str] = "arg_min"
    greatest: ClassVar[bool] = False


_TIME = Column(TIME, what="event time")


@dataclass(frozen=True, repr=False)
class First(ArgMax):
    """The value with the lowest event time; among equals, that of the earliest arrival."""

    stable_name: ClassVar[str] = "agg.first/1"

    function: ClassVar[str] = "first"
    greatest: ClassVar[bool] = False

    by: Column = _TIME


@dataclass(frozen=True, repr=False)
class Last(ArgMax):
    """The value with the highest event time; of equals the latest arrival."""

    stable_name: ClassVar[str] = "agg.last/1"

    function: ClassVar[str] = "last"
    latest: ClassVar[bool] = True

    by: Column = _TIME


@dataclass(frozen=True, repr=False)
class TopK(Aggregate):
    """The k greatest values, or the values in the k rows with the greatest `by`, the greatest first; among equals,
    those of the earliest arrival. Rows in which either is null are left out."""

    stable_name: ClassVar[str] = "agg.top_k/1"
    stored: ClassVar[StoredFields] = StoredFields("column", "k", "by")

    function: ClassVar[str] = "top_k"

    column: Column
    k: int
    by: Column | None = None

    def partial(self, prefix: str) -> list[pl.Expr]:
        """One part: the values, with what they were chosen by."""
        if self.by is None:
            return [self._top(self.column.expr.drop_nulls()).alias(f"{prefix}.top")]
        whole = self.column.expr.is_not_null() & self.by.expr.is_not_null()
        rows = pl.struct(self.column.expr.alias("value"), self.by.expr.alias("by"))
        return [self._top(rows.filter(whole)).alias(f"{prefix}.top")]

    def merge(self, prefix: str) -> list[pl.Expr]:
        """The highest of all that were chosen."""
        return [self._top(pl.col(f"{prefix}.top").explode().drop_nulls()).alias(f"{prefix}.top")]

    def _top(self, rows: pl.Expr) -> pl.Expr:
        if self.by is None:
            return rows.sort(descending=True).head(self.k)
        # Structs, not two columns: polars 2.1 mixes up values that are exploded and filtered beside their order.
        return rows.sort_by(rows.struct.field("by"), descending=True, maintain_order=True).head(self.k)

    def finish(self, prefix: str) -> pl.Expr:
        top = pl.col(f"{prefix}.top")
        values = top if self.by is None else top.list.eval(pl.element().struct.field("value"))
        return pl.when(top.list.len() > 0).then(values)

    def of(self, rows: Sequence[Row]) -> list[Any] | None:
        pairs = zip(self.column.values(rows), (self.by or self.column).values(rows), strict=True)
        whole = [(order_of(by), value) for value, by in pairs if value is not None and by is not None]
        whole.sort(key=lambda pair: pair[0], reverse=True)  # equals stay in the order of arrival
        return [value for _, value in whole[: self.k]] or None
