"""Aggregates over elements that may be retracted.

Each row has a weight: 1 for an element, -1 for the retraction of an earlier one, which has the same values and event
time. What was retracted leaves no trace in the result, whatever the aggregate: the rows themselves are kept, and
cancel each other when they meet. Counts, and sums of whole numbers, are kept as totals instead, from which a
retraction subtracts exactly.

A result may also be of a part of the elements, what came since the last one. There a retraction may be of an element
that another part had. Counts and sums fall by it, so that those of all parts add up; other aggregates are of the
elements of the part that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.aggregates.aggregate import Aggregate, Row
from tidewheel.model.aggregates.buffered_aggregate import of_rows
from tidewheel.model.aggregates.moments import Count, Mean, Sum, total
from tidewheel.model.columns import TIME
from tidewheel.model.stored_fields import StoredFields

__all__ = ["WEIGHT", "RetractableRows", "Totals", "retractable"]

WEIGHT = "__weight"
"""The column that is 1 for an element and -1 for the retraction of one."""

_SMALL = (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32, pl.Boolean)


def retractable(aggregate: Aggregate, schema: Mapping[str, pl.DataType], *, instead: str = "") -> Aggregate:
    """The same aggregate over rows of this schema that also have a column `__weight`. `instead`: how to have rows that
    are not retracted, for errors about a sketch.

    >>> from tidewheel.model import aggregates
    >>> total = retractable(aggregates.sum("n"), pl.Schema({"n": pl.Int64()}))
    >>> total.of([{"n": 3, "__time": 0, "__weight": 1}, {"n": 3, "__time": 0, "__weight": -1}]) is None
    True
    """
    if aggregate.exact is not None:
        raise DefinitionError(
            f"{aggregate!r}: a sketch cannot retract what it has counted; use the exact {aggregate.exact}(...)"
            + (f", or {instead}" if instead else "")
        )
    result = aggregate.dtype(schema)
    if isinstance(aggregate, Count):
        return Totals(aggregate, result)
    if isinstance(aggregate, Sum | Mean) and aggregate.column.expr.meta.is_column():
        # Floats are not: 1e20 + 1 - 1e20 is not 1. Nor is the mean of wide numbers, whose sum may not fit.
        kind = schema[aggregate.column.names[0]] if aggregate.columns else pl.Int64()
        if kind in _SMALL or (kind == pl.Int64 and isinstance(aggregate, Sum)):
            return Totals(aggregate, result)
    types = {name: schema[name] for name in aggregate.columns} | {TIME: pl.Int64(), WEIGHT: pl.Int8()}
    return RetractableRows(aggregate, result, pl.Struct(types))


@dataclass(frozen=True, repr=False)
class _Retractable(Aggregate):
    stored: ClassVar[StoredFields] = StoredFields("aggregate")

    function: ClassVar[str] = "retractable"

    aggregate: Aggregate
    result: pl.DataType = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the aggregate; the weight is always there, as the event time is."""
        return self.aggregate.columns

    def of(self, rows: Sequence[Row]) -> Any:
        """The result over what was not retracted."""
        left: list[Row] = []
        waiting: list[Row] = []
        for row in rows:
            if row[WEIGHT] > 0:
                left.append(row)
                continue
            for place in reversed(range(len(left))):
                if self._identity(left[place]) == self._identity(row):
                    del left[place]
                    break
            else:
                waiting.append(row)
        return self._less(left, waiting) if waiting else self.aggregate.of(left)

    def _less(self, left: Sequence[Row], waiting: Sequence[Row]) -> Any:
        """The result over elements less those of another part that were retracted."""
        found, back = self.aggregate.of(left), self.aggregate.of(waiting)
        if not isinstance(self.aggregate, Count | Sum) or back is None:
            return found
        return -back if found is None else found - back

    def _identity(self, row: Row) -> list[str]:
        return [repr(row[name]) for name in (*self.columns, TIME)]  # by repr: NaN is not equal to itself

    def empty(self) -> Any:
        return self.aggregate.empty()

    def dtype(self, schema: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.DataType:
        return self.aggregate.dtype(schema)

    def __repr__(self) -> str:
        return repr(self.aggregate)  # how it is kept is no part of what it is


@dataclass(frozen=True, repr=False)
class Totals(_Retractable):
    """A count, and a sum of whole numbers: a retraction subtracts."""

    stable_name: ClassVar[str] = "agg.totals/1"

    def _less(self, left: Sequence[Row], waiting: Sequence[Row]) -> Any:
        if not isinstance(self.aggregate, Sum | Mean):
            return super()._less(left, waiting)
        values, back = (
            [value for value in self.aggregate.column.values(rows) if value is not None] for rows in (left, waiting)
        )
        count, total = len(values) - len(back), sum(values) - sum(back)
        if isinstance(self.aggregate, Mean):
            return total / count if count > 0 else None
        return total if count or total else None

    def partial(self, prefix: str) -> list[pl.Expr]:
        """The count and, unless only that is asked for, the sum."""
        weight = pl.col(WEIGHT).cast(pl.Int64)
        column = self.aggregate.column if isinstance(self.aggregate, Count | Sum | Mean) else None
        if column is None:
            return [weight.sum().alias(f"{prefix}.count")]
        count = weight.filter(column.expr.is_not_null()).sum().alias(f"{prefix}.count")
        if isinstance(self.aggregate, Count):
            return [count]
        return [count, total(column.expr * weight).alias(f"{prefix}.sum")]

    def merge(self, prefix: str) -> list[pl.Expr]:
        if isinstance(self.aggregate, Count):
            return [pl.col(f"{prefix}.count").sum()]
        return [pl.col(f"{prefix}.count").sum(), total(pl.col(f"{prefix}.sum"))]

    def finish(self, prefix: str) -> pl.Expr:
        """The count, the sum or the mean."""
        count = pl.col(f"{prefix}.count")
        if isinstance(self.aggregate, Count):
            return count.fill_null(0)
        sum_ = pl.col(f"{prefix}.sum")
        if isinstance(self.aggregate, Mean):
            return pl.when(count > 0).then(sum_ / count)
        # As many may have come as were retracted, with other values.
        return pl.when((count != 0) | (sum_ != 0)).then(sum_)


@dataclass(frozen=True, repr=False)
class RetractableRows(_Retractable):
    """Keeps the rows, for any other aggregate: a retraction cancels the latest equal row that is still there."""

    stable_name: ClassVar[str] = "agg.retractable_rows/1"

    row_type: pl.Struct = field(repr=False)

    def partial(self, prefix: str) -> list[pl.Expr]:
        """One part, the rows that are left."""
        row = pl.struct(pl.col(field.name).cast(field.dtype) for field in self.row_type.fields)
        return [self._left(row).alias(f"{prefix}.rows")]

    def merge(self, prefix: str) -> list[pl.Expr]:
        """The rows that are left of all."""
        return [self._left(pl.col(f"{prefix}.rows").explode().drop_nulls()).alias(f"{prefix}.rows")]

    def _left(self, rows: pl.Expr) -> pl.Expr:
        return rows.map_batches(_left, return_dtype=self.row_type)

    def finish(self, prefix: str) -> pl.Expr:
        """The aggregate of the rows that are left."""
        return pl.col(f"{prefix}.rows").map_batches(self._of_lists, return_dtype=self.result)

    def _of_lists(self, lists: pl.Series) -> pl.Series:
        found = of_rows(self.aggregate, lists, pl.col(WEIGHT) > 0)
        if not isinstance(self.aggregate, Sum):
            return found
        back = of_rows(self.aggregate, lists, pl.col(WEIGHT) < 0)
        return pl.select(pl.coalesce(found - back, found, -back)).to_series()


def _left(rows: pl.Series) -> pl.Series:
    """What is left when every retraction has removed the latest equal row before it.

    Equal rows and their retractions are matched like brackets, so that it does not matter where a stream is cut: the
    open ones of two parts still match. An element is left if the running weight never falls below its own level later;
    a retraction, waiting for an element of an earlier part, if the running weight never was as low before.
    """
    frame = rows.struct.unnest()
    if not (frame[WEIGHT] < 0).any():
        return rows
    same = [name for name in frame.columns if name != WEIGHT]
    weight = pl.col(WEIGHT).cast(pl.Int64)
    level = weight.cum_sum()
    added = (weight > 0) & (level.over(same) <= level.cum_min(reverse=True).over(same))
    waiting = (weight < 0) & (level.over(same) < (level - weight).cum_min().over(same))
    return rows.filter(frame.select(added | waiting).to_series())
