"""A step that is applied to each row by itself: what the kinds of them do is known here only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import polars as pl

from tidewheel.errors import JobError
from tidewheel.model.stored_fields import StoredFields

__all__ = ["ARRIVAL", "RowOp"]

ARRIVAL = "_arrival"
"""The column with the time (µs) at which a row reached the log."""


@dataclass(frozen=True)
class RowOp:
    """A step that is applied to each row by itself. `reason`: why rows are skipped, or must not be there at all; of
    rows that are set apart, the output that they go to."""

    stable_name: ClassVar[str] = "row_op/1"
    stored: ClassVar[StoredFields] = StoredFields("kind", "exprs", "reason")

    kind: Literal["with_columns", "filter", "select", "skip", "apart", "refuse"]
    exprs: tuple[Any, ...]
    reason: str = ""

    @property
    def makes_columns(self) -> bool:
        """Whether its expressions are columns, rather than conditions."""
        return self.kind in ("with_columns", "select")

    @property
    def selects(self) -> bool:
        """Whether it leaves no other columns than its own."""
        return self.kind == "select"

    @property
    def is_check(self) -> bool:
        """Whether it changes nothing, and only refuses rows."""
        return self.kind == "refuse"

    @property
    def skipped_as(self) -> str | None:
        """The reason by which the rows that it skips are counted; None if it is no such step."""
        return self.reason if self.kind == "skip" else None

    @property
    def output(self) -> str | None:
        """The output of the rows that it sets apart; None if it is no such step."""
        return self.reason if self.kind == "apart" else None

    @property
    def name(self) -> str | None:
        """The name that the user gave its condition, if there is one."""
        return self.skipped_as or self.output

    def chosen(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that are set apart."""
        return frame.filter(expr.fill_null(False) for expr in self.exprs)

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Apply the step to a frame."""
        match self.kind:
            case "with_columns":
                return frame.with_columns(*self.exprs)
            case "filter":
                return frame.filter(*self.exprs)
            case "skip" | "apart":
                return frame.filter(~expr.fill_null(False) for expr in self.exprs)
            case "refuse":
                found = frame.filter(*self.exprs)
                if found.height:
                    raise JobError(f"{self.reason}. Got {found.row(0, named=True)}")
                return frame
            case _:
                # Nobody selects what the engine has put there: by it rows from the future are found.
                mine = [ARRIVAL] if ARRIVAL in frame.columns else []
                return frame.select(*self.exprs, *mine)

    def __repr__(self) -> str:
        name = f"{self.name}=" if self.name else ""
        return f"{self.kind}({name}{', '.join(map(str, self.exprs))})"
