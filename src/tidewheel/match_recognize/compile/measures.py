"""MEASURES as columns over all rows that come out at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from tidewheel.match_recognize.expressions.aggregates import AGGREGATES
from tidewheel.match_recognize.expressions.arguments import Resolved, resolve
from tidewheel.match_recognize.expressions.references import LABEL, NUMBER, Aggregate, MatchNumber, Navigation, analyse
from tidewheel.match_recognize.matching.matches import Integers, Matches, Output
from tidewheel.match_recognize.syntax.clause import Clause

__all__ = ["Measures"]

_PAIRS = 4_000_000
"""How many rows are put together at a time where an aggregate has to be computed anew for every row."""

Booleans = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class _Measure:
    name: str
    references: dict[str, Resolved]
    expression: pl.Expr
    dtype: pl.DataType


class Measures:
    """The measures of a clause, against a schema.

    ahead and behind: how many rows after a match's last and before its first row they look at.
    """

    def __init__(self, clause: Clause, schema: Mapping[str, pl.DataType]) -> None:
        self._names = clause.variables
        self._measures = []
        self.columns: set[str] = set()
        self.ahead = self.behind = 0
        self.uses_number = False
        for measure in clause.measures:
            what = f"the measure {measure.name}"
            expression = analyse(measure.value, clause, what=what)
            resolved, columns = resolve(expression, schema, text=clause.text, what=what)
            made = columns.expression(expression.tree)
            kind = columns.type_of(expression.tree, made)
            self._measures.append(_Measure(measure.name, resolved, made, kind))
            self._note(resolved)

    def _note(self, resolved: dict[str, Resolved]) -> None:
        for one in resolved.values():
            for argument in (*one.arguments, *([one.where] if one.where else [])):
                self.columns |= argument.columns - {LABEL, NUMBER}
                self.uses_number = self.uses_number or NUMBER in argument.columns
            self.uses_number = self.uses_number or isinstance(one.reference, MatchNumber)
            if isinstance(one.reference, Navigation):
                self.ahead = max(self.ahead, one.reference.physical)
                self.behind = max(self.behind, -one.reference.physical)

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The names and types of the measures."""
        return {measure.name: measure.dtype for measure in self._measures}

    def of(self, frame: pl.DataFrame, matches: Matches, output: Output) -> list[pl.Series]:
        """The measures' columns; those of rows of no match are null."""
        rows = _Rows(frame, matches, output, self._names)
        found = []
        for measure in self._measures:
            values = {name: rows.values(one) for name, one in measure.references.items()}
            wide = pl.DataFrame({"__matched": output.match >= 0, **values})
            value = measure.expression.cast(measure.dtype)
            result = wide.select(pl.when(pl.col("__matched")).then(value).alias(measure.name))
            found.append(result.to_series())
        return found


class _Rows:
    """Looks up what references refer to, for all rows that come out."""

    def __init__(self, frame: pl.DataFrame, matches: Matches, output: Output, names: tuple[str, ...]) -> None:
        self._frame, self._matches, self._output, self._names = frame, matches, output, names
        self._of = np.where(output.match >= 0, output.match, 0)

    def values(self, one: Resolved) -> pl.Series:
        if not len(self._output.match):
            return pl.Series(dtype=one.dtype)
        if not len(self._matches.start):
            return pl.Series([None], dtype=one.dtype).new_from_index(0, len(self._output.match))
        if isinstance(one.reference, MatchNumber):
            return pl.Series(self._matches.number[self._of])
        if isinstance(one.reference, Navigation):
            return self._navigated(one, one.reference)
        if one.reference.final or bool(np.all(self._output.upto == self._matches.length[self._of])):
            return self._whole(one, one.reference)
        return self._running(one, one.reference)

    def _in_set(self, variables: frozenset[str] | None) -> Booleans:
        if variables is None:
            return np.ones(len(self._matches.row), dtype=bool)
        wanted = [index for index, name in enumerate(self._names) if name in variables]
        return np.isin(self._matches.label, wanted)

    # Navigation ------------------------------------------------------------------------------------------------

    def _navigated(self, one: Resolved, reference: Navigation) -> pl.Series:
        matches, of = self._matches, self._of
        member = self._in_set(reference.variables)
        places = np.flatnonzero(member)
        before = np.concatenate(([0], np.cumsum(member)))
        begin = before[matches.offset[of]]
        seen = matches.length[of] if reference.final else self._output.upto
        count = before[matches.offset[of] + seen] - begin
        index = np.full_like(count, reference.offset) if reference.first else count - 1 - reference.offset
        valid = (index >= 0) & (index < count)
        place = places[np.where(valid, begin + index, 0)] if len(places) else np.zeros_like(index)
        row = (matches.row[place] if len(places) else place) + reference.physical
        valid &= (row >= matches.first[of]) & (row < matches.last[of])
        gathered = self._gathered(one, np.where(valid, row, 0), of)
        value = pl.when(pl.Series(valid)).then(one.arguments[0].expression.cast(one.dtype))
        return gathered.select(value.alias("it")).to_series()

    def _gathered(self, one: Resolved, row: Integers, match: Integers) -> pl.DataFrame:
        """The columns that a reference's arguments need, at these rows as these matches see them."""
        arguments = [*one.arguments, *([one.where] if one.where else [])]
        needed = sorted({column for argument in arguments for column in argument.columns})
        columns = [column for column in needed if column not in (LABEL, NUMBER)]
        extra: dict[str, Any] = {"__row": row}
        if LABEL in needed:
            extra[LABEL] = self._labels(row, match)
        if NUMBER in needed:
            extra[NUMBER] = self._matches.number[match]
        own = pl.DataFrame(extra)
        return self._frame.select(columns)[row].hstack(own) if columns else own

    def _labels(self, row: Integers, match: Integers) -> pl.Series:
        matches = self._matches
        position = row - matches.start[match]
        inside = (position >= 0) & (position < matches.length[match])
        if not len(matches.label):
            return pl.Series([None], dtype=pl.String).new_from_index(0, len(row))
        label = matches.label[np.where(inside, matches.offset[match] + position, 0)]
        names = pl.Series(self._names, dtype=pl.String).gather(label)
        return pl.DataFrame({"it": names}).select(pl.when(pl.Series(inside)).then(pl.col("it"))).to_series()

    # Aggregates ------------------------------------------------------------------------------------------------

    def _arguments(self, one: Resolved, places: Integers) -> pl.DataFrame:
        """The arguments of an aggregate at these places."""
        matches = self._matches
        gathered = self._gathered(one, matches.row[places], matches.match_of[places])
        columns = {
            f"a{index}": argument.expression.cast(argument.dtype) for index, argument in enumerate(one.arguments)
        }
        if one.where is not None:
            columns["where"] = one.where.expression.fill_null(False)
        return gathered.select(pl.col("__row"), **columns)

    def _whole(self, one: Resolved, reference: Aggregate) -> pl.Series:
        places = np.flatnonzero(self._in_set(reference.variables))
        groups = self._matches.match_of[places]
        return self._grouped(one, places, groups, self._of)

    def _running(self, one: Resolved, reference: Aggregate) -> pl.Series:
        running = AGGREGATES[reference.function].running
        kind = one.arguments[0].dtype if one.arguments else pl.Boolean()
        numeric = kind.is_numeric() and not isinstance(kind, pl.Decimal)
        if running is not None and not reference.distinct and (numeric or reference.function == "COUNT"):
            return self._cumulated(one, reference)
        member = self._in_set(reference.variables)
        offset = self._matches.offset[self._of]
        parts = []
        # Every row that comes out, with every row of its match up to it: not too many at a time.
        chunk = np.cumsum(self._output.upto) // _PAIRS
        for begin, end in pairwise([*np.flatnonzero(np.diff(chunk, prepend=-1)).tolist(), len(chunk)]):
            upto = self._output.upto[begin:end]
            groups = np.repeat(np.arange(end - begin), upto)
            places = np.arange(len(groups)) - (np.cumsum(upto) - upto)[groups] + offset[begin:end][groups]
            kept = member[places]
            parts.append(self._grouped(one, places[kept], groups[kept], np.arange(end - begin)))
        return pl.concat(parts)

    def _grouped(self, one: Resolved, places: Integers, groups: Integers, wanted: Integers) -> pl.Series:
        assert one.aggregate is not None
        arguments = self._arguments(one, places).with_columns(__group=pl.Series(groups))
        found = arguments.group_by("__group", maintain_order=True).agg(one.aggregate.cast(one.dtype).alias("it"))
        none = arguments.clear().select(one.aggregate.cast(one.dtype).alias("it"))
        index = np.full(max(int(wanted.max(initial=0)), int(groups.max(initial=0))) + 1, len(found))
        index[found["__group"].to_numpy()] = np.arange(len(found))
        return pl.concat([found.select("it"), none])["it"].gather(index[wanted])

    def _cumulated(self, one: Resolved, reference: Aggregate) -> pl.Series:
        """Sums and the like of every beginning of every match, in one pass."""
        matches, output = self._matches, self._output
        running = AGGREGATES[reference.function].running
        assert running is not None
        assert one.aggregate is not None
        arguments = self._arguments(one, np.arange(len(matches.row)))
        value = pl.col("a0") if one.arguments else pl.lit(True)
        if one.arguments and one.arguments[0].dtype.is_integer() and reference.function == "SUM":
            value = value.cast(pl.Int64)
        counts = pl.col("__member") if one.where is None else pl.col("__member") & pl.col("where")
        masked = arguments.select(
            pl.Series("__match", matches.match_of),
            pl.Series("__member", self._in_set(reference.variables)),
            *arguments.columns,
        ).select("__match", pl.when(counts).then(value).alias("value"))
        summed = masked.select(running(pl.col("value")).over("__match").cast(one.dtype).alias("it"))
        none = arguments.clear().select(one.aggregate.cast(one.dtype).alias("it"))
        place = np.where(output.upto > 0, matches.offset[self._of] + output.upto - 1, len(summed))
        return pl.concat([summed, none])["it"].gather(place)
