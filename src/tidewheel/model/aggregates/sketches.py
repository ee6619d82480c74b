"""Aggregates of bounded size and known error: their parts are serialized sketches of Apache DataSketches.

The same values in the same order, chunked alike, give the same bytes in every process: nothing here is random.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import datasketches  # type: ignore[import-untyped]
import numpy as np
import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.aggregates.aggregate import Aggregate, Column, Row, carried_type
from tidewheel.model.aggregates.values import share_of
from tidewheel.model.stored_fields import StoredFields

__all__ = ["ApproxCountDistinct", "ApproxPercentile", "MostFrequent", "Sketch"]


@dataclass(frozen=True, repr=False)
class Sketch(Aggregate):
    """An aggregate whose parts are a sketch and, as a null, the type of the column."""

    column: Column

    @abstractmethod
    def build(self, values: pl.Series) -> bytes | None:
        """Build the sketch of values without nulls; None if there are none."""

    @abstractmethod
    def union(self, sketches: Sequence[bytes]) -> bytes:
        """The sketch of all that these have seen."""

    @abstractmethod
    def results(self, sketches: Sequence[bytes | None], kind: pl.DataType) -> pl.Series:
        """The results of these sketches of values of this type."""

    def partial(self, prefix: str) -> list[pl.Expr]:
        """Two parts: the sketch, and the type of its values."""
        values = self.column.expr
        return [_sketched(values.drop_nulls(), self._build).alias(f"{prefix}.sketch"), self._type(prefix, values)]

    def merge(self, prefix: str) -> list[pl.Expr]:
        """Merge sketches: their union."""
        return [_sketched(pl.col(f"{prefix}.sketch").drop_nulls(), self._union), pl.col(f"{prefix}.type").first()]

    def finish(self, prefix: str) -> pl.Expr:
        """Estimate the result from the sketch."""
        parts = pl.struct(pl.col(f"{prefix}.sketch"), pl.col(f"{prefix}.type"))
        return parts.map_batches(self._finish, return_dtype=self._result(pl.dtype_of(f"{prefix}.type")))

    def of(self, rows: Sequence[Row]) -> Any:
        """The result of one sketch of all the values."""
        values = pl.Series([value for value in self.column.values(rows) if value is not None])
        return self.results([self.build(values)], values.dtype).to_list()[0] if len(values) else self.empty()

    def _type(self, prefix: str, values: pl.Expr) -> pl.Expr:
        return carried_type(values).alias(f"{prefix}.type")

    def _result(self, kind: pl.DataTypeExpr) -> Any:
        return pl.Int64

    def _build(self, values: pl.Series) -> pl.Series:
        return pl.Series([self.build(values)], dtype=pl.Binary)

    def _union(self, sketches: pl.Series) -> pl.Series:
        found = sketches.to_list()
        union = found[0] if len(found) == 1 else self.union(found) if found else None
        return pl.Series([union], dtype=pl.Binary)

    def _finish(self, parts: pl.Series) -> pl.Series:
        sketches, kinds = parts.struct.unnest().get_columns()
        return self.results(sketches.to_list(), kinds.dtype)


def _sketched(values: pl.Expr, function: Any) -> pl.Expr:
    return values.map_batches(function, return_dtype=pl.Binary, returns_scalar=True)


def _plain(values: pl.Series) -> pl.Series:
    """The values as whole numbers, floats or strings, which hash the same everywhere."""
    kind = values.dtype
    if kind == pl.Boolean:
        return values.cast(pl.Int64)
    if kind.is_temporal():
        return values.to_physical().cast(pl.Int64)
    if kind == pl.Binary:
        return values.bin.encode("hex")
    if kind == pl.Int128 or kind.is_decimal() or isinstance(kind, pl.Categorical | pl.Enum):
        return values.cast(pl.String)
    if kind.is_numeric() or kind in (pl.String, pl.Null):
        return values
    raise DefinitionError(f"a sketch cannot distinguish values of type {kind}; give it a number, a time or a string")


def _restored(plain: pl.Series, kind: pl.DataType) -> pl.Series:
    """The original values of strings that `_plain` made."""
    if kind == pl.Boolean or kind.is_temporal():
        return plain.cast(pl.Int64).cast(kind)
    if kind == pl.Binary:
        return plain.str.decode("hex")
    return plain.cast(kind)


@dataclass(frozen=True, repr=False)
class ApproxCountDistinct(Sketch):
    """Counts different values approximately (HyperLogLog)."""

    stable_name: ClassVar[str] = "agg.approx_count_distinct/1"
    stored: ClassVar[StoredFields] = StoredFields("column", "lg_k")

    function: ClassVar[str] = "approx_count_distinct"
    exact: ClassVar[str | None] = "count_distinct"

    lg_k: int = 12

    def build(self, values: pl.Series) -> bytes | None:
        sketch = datasketches.hll_sketch(self.lg_k, datasketches.HLL_8)
        for value in _plain(values).to_list():
            sketch.update("\0" if value == "" else value)  # the library takes "" for no value
        return None if sketch.is_empty() else bytes(sketch.serialize_compact())

    def union(self, sketches: Sequence[bytes]) -> bytes:
        return bytes(self._together(sketches).get_result(datasketches.HLL_8).serialize_compact())

    def results(self, sketches: Sequence[bytes | None], kind: pl.DataType) -> pl.Series:
        # With itself: a sketch that was never merged has an estimate that depends on the order of the values, and the
        # result must not depend on how they were chunked.
        counts = [0 if s is None else round(self._together([s, s]).get_estimate()) for s in sketches]
        return pl.Series(counts, dtype=pl.Int64)

    def _together(self, sketches: Sequence[bytes]) -> Any:
        union = datasketches.hll_union(self.lg_k)
        for sketch in sketches:
            union.update(datasketches.hll_sketch.deserialize(sketch))
        return union

    def empty(self) -> int:
        return 0


_CENTROIDS = np.dtype([("mean", "<f8"), ("weight", "<u8")])


def _quantile(digest: bytes, share: Fraction) -> float:
    """The value at the nearest rank, between the digest's centroids; exact while each of them is one value.

    The library's own get_quantile weighs the two neighbours the wrong way round
    (https://github.com/apache/datasketches-java/pull/755), so that it is not even monotonic.
    """
    read = datasketches.tdigest_double.deserialize(digest)
    least, greatest = read.get_min_value(), read.get_max_value()
    if least == greatest:
        return float(least)
    centroids = np.frombuffer(digest, _CENTROIDS, offset=32)  # after the header, two counts, the least, the greatest
    weights = centroids["weight"].astype(np.float64)
    ends = np.cumsum(weights)
    places = np.concatenate(([0.0], ends - weights / 2, ends[-1:]))
    means = np.concatenate(([least], centroids["mean"], [greatest]))
    return float(np.interp(math.ceil(share * int(ends[-1])) - 0.5, places, means))


@dataclass(frozen=True, repr=False)
class ApproxPercentile(Sketch):
    """About the value that `percent` per cent of the values do not exceed (t-digest); NaN is left out."""

    stable_name: ClassVar[str] = "agg.approx_percentile/1"
    stored: ClassVar[StoredFields] = StoredFields("column", "percent", "compression")

    function: ClassVar[str] = "approx_percentile"
    exact: ClassVar[str | None] = "percentile"

    percent: float
    compression: int = 200

    def build(self, values: pl.Series) -> bytes | None:
        digest = datasketches.tdigest_double(self.compression)
        digest.update(values.to_physical().cast(pl.Float64).to_numpy(writable=True))  # it takes no other
        return None if digest.is_empty() else bytes(digest.serialize())

    def union(self, sketches: Sequence[bytes]) -> bytes:
        union = datasketches.tdigest_double(self.compression)
        for sketch in sketches:
            union.merge(datasketches.tdigest_double.deserialize(sketch))
        return bytes(union.serialize())

    def results(self, sketches: Sequence[bytes | None], kind: pl.DataType) -> pl.Series:
        """The quantiles; times as times, numbers as floats."""
        found = [None if sketch is None else _quantile(sketch, share_of(self.percent)) for sketch in sketches]
        return pl.Series(found, dtype=pl.Float64).cast(kind if kind.is_temporal() else pl.Float64)

    def _type(self, prefix: str, values: pl.Expr) -> pl.Expr:
        return carried_type(values.mean()).alias(f"{prefix}.type")

    def _result(self, kind: pl.DataTypeExpr) -> Any:
        return kind


@dataclass(frozen=True, repr=False)
class MostFrequent(Sketch):
    """The k most frequent values and about how often each came, the most frequent first.

    Exact as long as there are at most three quarters of `size` different values.
    """

    stable_name: ClassVar[str] = "agg.most_frequent/1"
    stored: ClassVar[StoredFields] = StoredFields("column", "k", "size")

    function: ClassVar[str] = "most_frequent"
    exact: ClassVar[str | None] = "collect"

    k: int
    size: int = 1024

    def build(self, values: pl.Series) -> bytes | None:
        sketch = self._new()
        for text, count in Counter(_plain(values).cast(pl.String).to_list()).items():
            sketch.update(text, count)
        return None if sketch.is_empty() else bytes(sketch.serialize())

    def union(self, sketches: Sequence[bytes]) -> bytes:
        union = self._new()
        for sketch in sketches:
            union.merge(datasketches.frequent_strings_sketch.deserialize(sketch))
        return bytes(union.serialize())

    def results(self, sketches: Sequence[bytes | None], kind: pl.DataType) -> pl.Series:
        """Lists of value and count; of equally frequent ones the least value first."""
        rows = [
            (row, text, count)
            for row, sketch in enumerate(sketches)
            if sketch is not None
            for text, count, *_ in datasketches.frequent_strings_sketch.deserialize(sketch).get_frequent_items(
                datasketches.NO_FALSE_NEGATIVES
            )
        ]
        found = pl.DataFrame(rows, schema={"row": pl.Int64, "value": pl.String, "count": pl.Int64}, orient="row")
        top = (
            found.with_columns(_restored(found["value"], kind))
            .sort("row", "count", "value", descending=[False, True, False])
            .group_by("row", maintain_order=True)
            .agg(pl.struct("value", "count").head(self.k).alias("top"))
        )
        every = pl.DataFrame({"row": range(len(sketches))}, schema={"row": pl.Int64})
        return every.join(top, on="row", how="left", maintain_order="left")["top"]

    def _new(self) -> Any:
        return datasketches.frequent_strings_sketch(self.size.bit_length() - 1)

    def _result(self, kind: pl.DataTypeExpr) -> Any:
        return pl.struct_with_fields({"value": kind, "count": pl.Int64}).wrap_in_list()
