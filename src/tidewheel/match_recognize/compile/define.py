"""DEFINE: each variable's condition, as columns as far as possible, the rest as a function of the rows taken so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import polars as pl
from sqlglot import exp

from tidewheel.match_recognize.expressions.aggregates import AGGREGATES
from tidewheel.match_recognize.expressions.arguments import Argument, Resolved, resolve
from tidewheel.match_recognize.expressions.references import (
    LABEL,
    NUMBER,
    Aggregate,
    MatchNumber,
    Navigation,
    analyse,
    rebuilt,
)
from tidewheel.match_recognize.expressions.to_polars import Columns
from tidewheel.match_recognize.expressions.to_python import Value, compile_value, hashable
from tidewheel.match_recognize.matching.history import FoldedRows, History, edge, folded, whole
from tidewheel.match_recognize.syntax.clause import Clause

__all__ = ["PARTITION", "Definitions"]

PARTITION = "__partition"
"""The column that tells partitions apart."""


@dataclass(slots=True)
class _Columnar:
    """A condition as columns: what it refers to, and the condition over that; null is false."""

    references: dict[str, pl.Expr]
    condition: pl.Expr


@dataclass(slots=True)
class _Lists:
    """Columns as lists, for conditions on single values; refilled for every frame."""

    expressions: list[pl.Expr] = field(default_factory=list)
    values: list[list[Any]] = field(default_factory=list)

    def add(self, expression: pl.Expr) -> int:
        self.expressions.append(expression)
        return len(self.expressions) - 1

    def fill(self, frame: pl.DataFrame) -> None:
        named = [expression.alias(str(index)) for index, expression in enumerate(self.expressions)]
        # Beside a column, a constant becomes one too.
        wide = frame.select(pl.int_range(pl.len()).alias("__row"), *named)
        self.values[:] = [wide[str(index)].to_list() for index in range(len(named))]


class Definitions:
    """The conditions of all variables, against a schema.

    ahead: for each variable, how many rows after a row its condition looks at. behind: how many before it any looks at.
    """

    def __init__(self, clause: Clause, schema: Mapping[str, pl.DataType]) -> None:
        self._clause = clause
        self._indices = {name: index for index, name in enumerate(clause.variables)}
        self._columnar: list[_Columnar | None] = [None] * len(clause.variables)
        self.residues: list[Value | None] = [None] * len(clause.variables)
        self.ahead = [0] * len(clause.variables)
        self.behind = 0
        self.columns: set[str] = set()
        self.uses_number = False
        self._sets: list[frozenset[int]] = []
        self._folds: list[FoldedRows] = []
        self._remembered: list[Callable[[History], Hashable]] = []
        self._lists = _Lists()
        for name in clause.define:
            self._define(name, schema)
        self.history = (
            History(self._sets, self._folds, self._remembered, len(clause.variables)) if any(self.residues) else None
        )

    def _define(self, name: str, schema: Mapping[str, pl.DataType]) -> None:
        what = f"the condition of {name}"
        expression = analyse(self._clause.define[name], self._clause, what=what, in_define=True)
        resolved, columns = resolve(expression, schema, text=self._clause.text, what=what)
        columns.boolean(expression.tree)
        index = self._indices[name]
        for one in resolved.values():
            self.uses_number = self.uses_number or isinstance(one.reference, MatchNumber)
            for argument in (*one.arguments, *([one.where] if one.where else [])):
                self.columns |= argument.columns - {LABEL, NUMBER}
                self.uses_number = self.uses_number or NUMBER in argument.columns
            if isinstance(one.reference, Navigation):
                self.ahead[index] = max(self.ahead[index], one.reference.physical)
                self.behind = max(self.behind, -one.reference.physical)
        simple = {key for key, one in resolved.items() if self._is_columnar(one, name)}
        now: list[exp.Expr] = []
        later: list[exp.Expr] = []
        for conjunct in _conjuncts(expression.tree):
            used = {str(column.this.this) for column in conjunct.find_all(exp.Column)}
            (now if used <= simple else later).append(conjunct)
        if now:
            used = {str(column.this.this) for conjunct in now for column in conjunct.find_all(exp.Column)}
            references = {key: self._shifted(resolved[key], name, schema) for key in sorted(used)}
            condition = reduce(lambda left, right: left & right, [columns.boolean(one) for one in now])
            self._columnar[index] = _Columnar(references, condition.fill_null(False))
        if later:
            rest = reduce(lambda left, right: exp.And(this=left, expression=right), later)
            getters = {
                str(column.this.this): self._getter(resolved[str(column.this.this)], schema)
                for column in rest.find_all(exp.Column)
            }
            self.residues[index] = compile_value(rest, columns, getters)

    # Columns ---------------------------------------------------------------------------------------------------

    def _is_columnar(self, one: Resolved, name: str) -> bool:
        """Whether a reference is to the row itself, or to one at a fixed distance from it."""
        reference = one.reference
        if not isinstance(reference, Navigation) or reference.first or reference.offset:
            return False
        if reference.variables is not None and name not in reference.variables:
            return False
        used = one.arguments[0].columns
        return NUMBER not in used and (LABEL not in used or reference.physical == 0)

    def _shifted(self, one: Resolved, name: str, schema: Mapping[str, pl.DataType]) -> pl.Expr:
        assert isinstance(one.reference, Navigation)
        argument = one.arguments[0]
        expression = argument.expression
        if argument.labelled:
            tree = _with_label(argument.tree, name)
            expression = Columns(schema, text=self._clause.text, span=one.reference.span, what=name).expression(tree)
        distance = -one.reference.physical
        if not distance:
            return expression
        same = pl.col(PARTITION).shift(distance) == pl.col(PARTITION)
        return pl.when(same).then(expression.shift(distance))

    def masks(self, frame: pl.DataFrame) -> list[np.ndarray[Any, np.dtype[np.bool_]] | None]:
        """For each variable, which rows may be mapped to it as far as columns can decide; None for all."""
        asked: dict[str, pl.Expr] = {}
        conditions = {}
        for index, columnar in enumerate(self._columnar):
            if columnar is not None:
                names = {name: f"{index}.{name}" for name in columnar.references}
                asked |= {names[name]: expression for name, expression in columnar.references.items()}
                renamed = columnar.condition.meta.root_names()
                conditions[index] = (columnar.condition, {name: names[name] for name in renamed})
        if not conditions:
            return [None] * len(self._columnar)
        wide = frame.select(pl.col(PARTITION), **asked)
        found: list[np.ndarray[Any, np.dtype[np.bool_]] | None] = [None] * len(self._columnar)
        for index, (condition, names) in conditions.items():
            own = wide.select(pl.col(PARTITION), *[pl.col(new).alias(old) for old, new in names.items()])
            found[index] = own.select(pl.col(PARTITION), condition.alias("it"))["it"].to_numpy()
        return found

    # Values ----------------------------------------------------------------------------------------------------

    def prepare(self, frame: pl.DataFrame) -> None:
        """Make the columns of a frame ready for conditions that look at single values."""
        if self.history is not None:
            self._lists.fill(frame)

    def _set(self, variables: frozenset[str] | None) -> int:
        names = self._indices.values() if variables is None else [self._indices[name] for name in variables]
        wanted = frozenset(names)
        if wanted not in self._sets:
            self._sets.append(wanted)
        return self._sets.index(wanted)

    def _getter(self, one: Resolved, schema: Mapping[str, pl.DataType]) -> Value:
        reference = one.reference
        if isinstance(reference, MatchNumber):
            return lambda history: history.number
        if isinstance(reference, Aggregate):
            return self._aggregate(reference, one, schema)
        of_row = self._row_value(one.arguments[0], schema)
        index = self._set(reference.variables)
        first, offset, physical = reference.first, reference.offset, reference.physical
        labelled = LABEL in one.arguments[0].columns
        if labelled and physical:
            self._remembered.append(whole)
        else:
            self._remembered.append(edge(index, first=first, count=offset + 1, labelled=labelled))

        def value(history: History) -> Any:
            rows = history.rows[index]
            place = offset if first else len(rows) - 1 - offset
            if not 0 <= place < len(rows):
                return None
            row = rows[place] + physical
            return of_row((history, row)) if history.first <= row < history.last else None

        return value

    def _row_value(self, argument: Argument, schema: Mapping[str, pl.DataType]) -> Value:
        """A function of (history, row)."""
        values = self._lists.values
        if not argument.labelled:
            place = self._lists.add(argument.expression)
            return lambda known: values[place][known[1]]
        names = self._clause.variables

        def label(known: tuple[History, int]) -> str | None:
            index = known[0].label(known[1])
            return None if index is None else names[index]

        getters: dict[str, Value] = {LABEL: label, NUMBER: lambda known: known[0].number}
        for column in sorted(argument.columns - {LABEL, NUMBER}):
            place = self._lists.add(pl.col(column))
            getters[column] = _at(values, place)
        whole_schema = {**schema, LABEL: pl.String(), NUMBER: pl.Int64()}
        columns = Columns(whole_schema, text=self._clause.text, span=(0, 0), what="a condition")
        return compile_value(argument.tree, columns, getters)

    def _aggregate(self, reference: Aggregate, one: Resolved, schema: Mapping[str, pl.DataType]) -> Value:
        index = self._set(reference.variables)
        arguments = [self._row_value(argument, schema) for argument in one.arguments]
        where = None if one.where is None else self._row_value(one.where, schema)
        fold = AGGREGATES[reference.function].fold
        if fold is not None and not reference.distinct and len(arguments) <= 1 and _exact(one):
            take = arguments[0] if arguments else (lambda known: True)

            def step(state: Any, history: History, row: int) -> Any:
                known = (history, row)
                return state if where is not None and where(known) is not True else fold.step(state, take(known))

            folding = FoldedRows(index, fold.start, step)
            self._folds.append(folding)
            self._remembered.append(folded(folding))
            return lambda history: fold.value(folding.state(history))

        def append(state: tuple[Any, ...], history: History, row: int) -> tuple[Any, ...]:
            known = (history, row)
            values = (*(take(known) for take in arguments), where(known) if where is not None else True)
            return (*state, values)

        listing = FoldedRows(index, (), append)
        self._folds.append(listing)
        self._remembered.append(lambda history: hashable(listing.state(history)))
        types = {f"a{place}": argument.dtype for place, argument in enumerate(one.arguments)}
        types["where"] = pl.Boolean()
        assert one.aggregate is not None
        whole_aggregate = one.aggregate.alias("it")

        def value(history: History) -> Any:
            frame = pl.DataFrame(list(listing.state(history)), schema=types, orient="row")
            result = frame.select(whole_aggregate).item()
            return result.to_list() if isinstance(result, pl.Series) else result

        return value


def _at(values: list[list[Any]], place: int) -> Value:
    return lambda known: values[place][known[1]]


def _exact(one: Resolved) -> bool:
    """Whether Python's sums and means are polars': not where types have a size or a scale."""
    if not one.arguments:
        return True
    kind = one.arguments[0].dtype
    return kind.is_integer() or kind in (pl.Float64, pl.String, pl.Boolean) or kind.is_temporal()


def _conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    """The parts of a condition of which each must be true."""
    found: list[exp.Expr] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        else:
            found.append(node)
    return found


def _with_label(tree: exp.Expr, name: str) -> exp.Expr:
    def visit(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and str(node.this.this) == LABEL:
            return exp.Literal.string(name)
        return rebuilt(node, visit)

    return visit(tree)
