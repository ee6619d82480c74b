"""The interface of aggregates: partial results per group of rows, which merge, and finish to one value.

    rows  --partial-->  partial columns  --merge-->  partial columns  --finish-->  the result

All three are polars expressions, so a batch of any number of groups costs a few of them, not one call per row. `of` is
the same in plain Python over elements: slow, and the measure for the rest.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.columns import TIME
from tidewheel.model.expressions.rowwise import check_rowwise

__all__ = ["Aggregate", "Column", "Row", "carried_type", "whole_number"]

Row = Mapping[str, Any]

T = TypeVar("T", bound=type)


class Column:
    """A column by name, or a row-wise polars expression, as a value that can be compared and shown."""

    __slots__ = ("expr", "given")

    def __init__(self, given: str | pl.Expr, *, what: str, rowwise: bool = True) -> None:
        if isinstance(given, str) and given:
            self.expr = pl.col(given)
        elif isinstance(given, pl.Expr):
            self.expr = given
        else:
            raise DefinitionError(f"{what}: expected a column name or a polars expression, got {given!r}")
        self.given = given
        if self.expr.meta.has_multiple_outputs():
            raise DefinitionError(f"{what}: {given!s} stands for several columns; give one")
        if rowwise and not self.names:
            raise DefinitionError(f"{what}: {given!s} reads no column; use count() to count rows")
        if rowwise:
            check_rowwise(self.expr, what=what)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(dict.fromkeys(self.expr.meta.root_names()))

    def values(self, rows: Sequence[Row]) -> list[Any]:
        """Its value for each element."""
        if self.expr.meta.is_column():
            name = self.names[0]
            return [row[name] for row in rows]
        if not rows:
            return []
        frame = pl.DataFrame([pl.Series(name, [row[name] for row in rows], strict=False) for name in self.names])
        try:
            return frame.select(self.expr).to_series().to_list()
        except pl.exceptions.PolarsError:
            if pl.Null not in frame.dtypes:
                raise
            return [None] * len(rows)  # a column of nulls has no type in Python, so the operation is not known

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and self.expr.meta.eq(other.expr)

    def __hash__(self) -> int:
        return hash(str(self.expr))

    def __repr__(self) -> str:
        return repr(self.given) if isinstance(self.given, str) else str(self.given)

    def __reduce__(self) -> tuple[Any, ...]:
        return _column, (self.given,)


def _column(given: str | pl.Expr) -> Column:
    return Column(given, what="column", rowwise=False)


@dataclasses.dataclass(frozen=True, repr=False)
class Aggregate(ABC):
    """One result from many elements. Nulls are left out as in SQL; NaN is a value, greater than every other.

    The parts of an aggregate called `x` are columns named `x.<part>`. Rows, and rows of parts, come in the order of
    their arrival. Parts that are all null stand for no elements.
    """

    function: ClassVar[str]
    exact: ClassVar[str | None] = None
    """For a sketch: what gives the exact result."""

    @property
    def mergeable(self) -> bool:
        """Whether partial results can be merged; if not, all rows have to be kept."""
        return True

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns that it reads besides the event time."""
        inputs = (getattr(self, field.name) for field in dataclasses.fields(self))
        names = dict.fromkeys(name for value in inputs if isinstance(value, Column) for name in value.names)
        return tuple(name for name in names if name != TIME)

    @abstractmethod
    def partial(self, prefix: str) -> list[pl.Expr]:
        """The parts, for `group_by(...).agg(...)` over rows."""

    @abstractmethod
    def merge(self, prefix: str) -> list[pl.Expr]:
        """Merge parts: the same parts, for `group_by(...).agg(...)` over rows of parts."""

    @abstractmethod
    def finish(self, prefix: str) -> pl.Expr:
        """Compute the result, row-wise over parts."""

    @abstractmethod
    def of(self, rows: Sequence[Row]) -> Any:
        """The result over elements in the order of their arrival, in plain Python."""

    def empty(self) -> Any:
        """The result over no elements."""
        return None

    def dtype(self, schema: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.DataType:
        """The type of the result over rows of this schema; refuses columns that it cannot be computed over."""
        missing = [name for name in self.columns if name not in schema]
        if missing:
            raise DefinitionError(f"{self!r}: there is no column {missing[0]!r}, only {', '.join(schema)}")
        frame = pl.DataFrame(schema={TIME: pl.Int64(), **{name: schema[name] for name in self.columns}})
        try:
            parts = frame.group_by(pl.col(TIME).alias("")).agg(self.partial("x"))
            result = parts.select(self.finish("x").alias("x")).schema["x"]
        except pl.exceptions.PolarsError as error:
            types = ", ".join(f"{name}: {schema[name]}" for name in self.columns)
            reason = str(error).strip().split("\n")[0]
            raise DefinitionError(f"{self!r}: not possible over {types}: {reason}") from None
        if result == pl.Int128:
            raise DefinitionError(f"{self!r}: the result is wider than 64 bits; cast the column to Int64 or Float64")
        return result

    def __repr__(self) -> str:
        arguments = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING:
                arguments.append(repr(value))
            elif value != field.default:
                arguments.append(f"{field.name}={value!r}")
        return f"{self.function}({', '.join(arguments)})"


def carried_type(values: pl.Expr) -> pl.Expr:
    """A null column with the type of `values`: for results whose type the other parts do not determine."""
    return pl.lit(None).cast(pl.dtype_of(values))


def whole_number(what: str, value: object, least: int, most: int | None = None) -> int:
    """Return the value if it is a whole number within the bounds; refuse others."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise DefinitionError(f"{what} must be a whole number {bounds}, got {value!r}")
    return value
