"""Measures: expressions over the events of matches, evaluated as columns over all matches at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.patterns.define.references import Reference, resolve

__all__ = ["EVENTS", "POSITIONS", "Measures"]

EVENTS, POSITIONS = "__events", "__positions"
"""The columns that hold the path of a match: events, and the positions at which they were taken."""


class Measures:
    """stages: the stage of each position."""

    def __init__(self, measures: Mapping[str, pl.Expr], stages: list[str], schema: Mapping[str, pl.DataType]) -> None:
        self._measures = dict(measures)
        self._names = list(dict.fromkeys(stages))
        self._numbers = [self._names.index(stage) for stage in stages]
        self._references = resolve(self._measures.values(), self._names, what="measures")
        self._columns = list(dict.fromkeys(one.column for one in self._references.values() if one.column is not None))
        self._schema = {name: schema[name] for name in self._columns}
        try:
            empty = pl.DataFrame(schema={EVENTS: pl.List(pl.Int64), POSITIONS: pl.List(pl.Int32)})
            self.schema = dict(self.of(empty, pl.DataFrame(schema=self._schema), lambda ids: ids).schema)
        except pl.exceptions.PolarsError as error:
            raise DefinitionError(f"measures: {error}") from None

    def of(self, paths: pl.DataFrame, events: pl.DataFrame, place: Callable[[pl.Series], pl.Series]) -> pl.DataFrame:
        """A row of measures for each path. place: the rows of the path's events in `events`."""
        if not self._measures:
            return pl.DataFrame()
        steps = paths.select(pl.int_range(pl.len()).alias("__match"), EVENTS, POSITIONS).explode(EVENTS, POSITIONS)
        stage = pl.Series("__stage", self._numbers, dtype=pl.Int32)
        rows = events.select(self._columns)[place(steps[EVENTS])] if self._columns else pl.DataFrame()
        known = pl.concat(
            [steps.select("__match"), stage[steps[POSITIONS]].to_frame(), rows.cast(pl.Schema(self._schema))],
            how="horizontal",
        )
        values = known.group_by("__match", maintain_order=True).agg(
            self._value(reference).alias(name) for name, reference in self._references.items()
        )
        return values.select(measure.alias(name) for name, measure in self._measures.items())

    def _value(self, reference: Reference) -> pl.Expr:
        taken = pl.col("__match" if reference.column is None else reference.column)
        if reference.stage is not None:
            taken = taken.filter(pl.col("__stage") == self._names.index(reference.stage))
        if reference.function == "count":
            return taken.len().cast(pl.Int64)
        if reference.function == "collect":
            return taken
        found: pl.Expr = getattr(taken, reference.function)()
        return found
