"""Aggregates whose partial results cannot be merged: the rows themselves are kept and merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl

from tidewheel.model.aggregates.aggregate import Aggregate, Row
from tidewheel.model.columns import TIME
from tidewheel.model.stored_fields import StoredFields

__all__ = ["Buffered", "of_rows", "buffered"]

_ROW = "__row"


def buffered(aggregate: Aggregate, schema: Mapping[str, pl.DataType]) -> Aggregate:
    """The same aggregate over rows of this schema, with parts that merge.

    >>> from tidewheel.model import aggregates
    >>> middle = aggregates.custom(partial={"m": pl.col("n").median()}, finish=pl.col("m"))
    >>> middle.mergeable, buffered(middle, {"n": pl.Int64()}).mergeable
    (False, True)
    """
    if aggregate.mergeable:
        return aggregate
    result = aggregate.dtype(schema)
    types = {name: schema[name] for name in aggregate.columns} | {TIME: pl.Int64()}
    return Buffered(aggregate, result, pl.Struct(types))


@dataclass(frozen=True, repr=False)
class Buffered(Aggregate):
    """One part, the rows, of which the result is made when it is asked for."""

    stable_name: ClassVar[str] = "agg.unmerged/1"
    stored: ClassVar[StoredFields] = StoredFields("aggregate")

    function: ClassVar[str] = "buffered"

    aggregate: Aggregate
    result: pl.DataType = field(repr=False)
    kept: pl.Struct = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.aggregate.columns

    def partial(self, prefix: str) -> list[pl.Expr]:
        """One part: the rows themselves."""
        return [pl.struct(pl.col(field.name).cast(field.dtype) for field in self.kept.fields).alias(f"{prefix}.rows")]

    def merge(self, prefix: str) -> list[pl.Expr]:
        return [pl.col(f"{prefix}.rows").explode().drop_nulls()]

    def finish(self, prefix: str) -> pl.Expr:
        rows = pl.col(f"{prefix}.rows")
        return rows.map_batches(lambda lists: of_rows(self.aggregate, lists), return_dtype=self.result)

    def of(self, rows: Sequence[Row]) -> Any:
        return self.aggregate.of(rows)

    def empty(self) -> Any:
        return self.aggregate.empty()

    def dtype(self, schema: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.DataType:
        return self.aggregate.dtype(schema)

    def __repr__(self) -> str:
        return repr(self.aggregate)  # how it is kept is no part of what it is


def of_rows(aggregate: Aggregate, lists: pl.Series, *chosen: pl.Expr) -> pl.Series:
    """The aggregate's result for each list of rows, of those rows that are chosen."""
    every = lists.alias("rows").to_frame().with_row_index(_ROW)
    rows = every.explode("rows").drop_nulls("rows").unnest("rows").filter(*chosen)
    parts = rows.group_by(_ROW, maintain_order=True).agg(aggregate.partial("x"))
    found = every.select(_ROW).join(parts, on=_ROW, how="left", maintain_order="left")
    return found.select(aggregate.finish("x")).to_series()
