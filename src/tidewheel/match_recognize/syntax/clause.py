"""A MATCH_RECOGNIZE clause as typed parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tidewheel.match_recognize.syntax.row_pattern import RowPattern
from tidewheel.match_recognize.syntax.scalar import Scalar, Span
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration

__all__ = ["Clause", "ColumnName", "Measure", "OrderBy", "Rows", "Skip", "SkipTo"]

Rows = Literal["one", "all", "all but empty", "all and unmatched"]
SkipTo = Literal["past last row", "next row", "first", "last"]


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column of the input, as it was written."""

    stable_name: ClassVar[str] = "match_recognize.column_name/1"
    stored: ClassVar[StoredFields] = StoredFields("name")

    name: str
    span: Span = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OrderBy:
    """One column of the order; nulls are least, as in Spark, unless the statement says where they are."""

    stable_name: ClassVar[str] = "match_recognize.order_by/1"
    stored: ClassVar[StoredFields] = StoredFields("column", "descending", "nulls_last")

    column: ColumnName
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the result."""

    stable_name: ClassVar[str] = "match_recognize.measure/1"
    stored: ClassVar[StoredFields] = StoredFields("name", "value")

    name: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Skip:
    """Where the search goes on after a match; `variable` is for first and last."""

    stable_name: ClassVar[str] = "match_recognize.skip/1"
    stored: ClassVar[StoredFields] = StoredFields("to", "variable")

    to: SkipTo = "past last row"
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """All parts of a clause; variables are in upper case unless they were quoted.

    rows: what a match gives: "one" row with its measures, or "all" its rows, with or without a row for an empty match,
    and perhaps with the rows of no match. within: a match is shorter than this, from its first row to its last, in µs.
    initial: the first match begins with the first row of the partition, and each other where the search goes on.
    """

    stable_name: ClassVar[str] = "match_recognize.clause/1"
    stored: ClassVar[StoredFields] = StoredFields(
        "partition_by",
        "order_by",
        "measures",
        "rows",
        "skip",
        "pattern",
        "within",
        "subsets",
        "define",
        "variables",
        "initial",
        micros=("within",),
    )

    partition_by: tuple[ColumnName, ...]
    order_by: tuple[OrderBy, ...]
    measures: tuple[Measure, ...]
    rows: Rows
    skip: Skip
    pattern: RowPattern
    within: Duration | None
    subsets: Mapping[str, tuple[str, ...]]
    define: Mapping[str, Scalar]
    variables: tuple[str, ...]
    """The pattern's variables in the order of their first appearance."""
    text: str = field(repr=False, compare=False, default="")
    """The whole statement, for messages that show a place."""
    span: Span = field(repr=False, compare=False, default=(0, 0))
    """Where the clause's parts are in the text."""
    initial: bool = False

    def union(self, variable: str) -> tuple[str, ...]:
        """The variables of the pattern that a variable stands for: itself, or the members of a SUBSET."""
        return self.subsets.get(variable, (variable,))
