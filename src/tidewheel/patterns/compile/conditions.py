"""The conditions of a program on events of a given schema.

What speaks of the event alone is asked as columns, of all events of all keys at once: each such condition is a bit of a
number per event. What also speaks of the events taken is asked of one partial match and one event, and only where those
of its parts that speak of the event alone hold.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.expressions.rowwise import check_rowwise
from tidewheel.patterns.compile.accumulators import Accumulators, Taken, reference_type
from tidewheel.patterns.compile.functions import Function, function_of, kind_of
from tidewheel.patterns.compile.program import Edge, Program, Test
from tidewheel.patterns.define.expressions import conjuncts, parse
from tidewheel.patterns.define.references import references_in, resolve
from tidewheel.patterns.define.stages import Condition

__all__ = ["ALWAYS", "Conditions", "check_columns"]

ALWAYS = 1
"""The bit that every event has."""

MOST_BITS = 62
Bits = npt.NDArray[np.int64]


def check_columns(needed: tuple[str, ...], schema: Mapping[str, pl.DataType], *, what: str = "pattern") -> None:
    """Refuse columns that events do not have."""
    for column in needed:
        if column not in schema:
            raise DefinitionError(f"{what}: events have no column {column!r}; they have {', '.join(schema)}")


class Conditions:
    """masks: for each test, the bit without which it does not hold. functions: what else must hold, if anything.

    start_masks: for each of the program's starts, the bit that says that an event begins a match.
    """

    def __init__(self, program: Program, schema: Mapping[str, pl.DataType]) -> None:
        self._schema = dict(schema)
        self._bits: dict[Condition, int] = {}
        self._references = resolve(
            [test.condition.expression for test in program.tests if test.condition], program.stages, what="pattern"
        )
        others = dict.fromkeys(test.differs_in for test in program.tests if test.differs_in is not None)
        self.accumulators = Accumulators(program, self._references.values(), others)
        self._types = {name: reference_type(one, self._schema) for name, one in self._references.items()}
        self.masks: list[int] = []
        self.functions: list[Function | None] = []
        for test in program.tests:
            mask, function = self._of(test)
            self.masks.append(mask)
            self.functions.append(function)
        self.start_masks = [self._start(program, edge) for edge in program.starts]
        self.columns = self.accumulators.columns
        if len(self._bits) > MOST_BITS:
            raise DefinitionError(f"the pattern has {len(self._bits)} different conditions, {MOST_BITS} is the most")

    def bits(self, events: pl.DataFrame) -> Bits:
        """A number per event, with a bit for each condition on the event alone."""
        found = np.full(events.height, ALWAYS, dtype=np.int64)
        if not self._bits or not events.height:
            return found
        if any(references_in(condition.expression) for condition in self._bits):
            events = events.with_columns(self._nothing_taken())
        asked = events.select(
            condition.expression.fill_null(False).alias(str(bit)) for condition, bit in self._bits.items()
        )
        for series in asked:
            values = series.to_numpy()
            if len(series) == 1 < events.height:
                values = np.repeat(values, events.height)
            found |= values.astype(np.int64) << int(series.name)
        return found

    def load(self, events: pl.DataFrame) -> None:
        """Load the events, which functions and accumulators look up by their number."""
        for name, values in self.columns.items():
            column = events[name]
            values[:] = (column.cast(pl.Float64) if column.dtype == pl.Float32 else column).to_list()

    def _bit(self, expression: pl.Expr) -> int:
        return 1 << self._bits.setdefault(Condition(expression), len(self._bits) + 1)

    def _of(self, test: Test) -> tuple[int, Function | None]:
        parts = [] if test.condition is None else conjuncts(test.condition.expression)
        if test.condition is not None:
            self._check(test.condition.expression)
        alone = [part for part in parts if not references_in(part)]
        taken = [part for part in parts if references_in(part)]
        mask = self._bit(functools.reduce(operator.and_, alone)) if alone else ALWAYS
        functions = [self._function(functools.reduce(operator.and_, taken))] if taken else []
        if test.differs_in is not None:
            functions.append(self._another(test.differs_in))
        if len(functions) < 2:
            return mask, functions[0] if functions else None
        first, second = functions
        return mask, lambda event, taken: first(event, taken) is True and second(event, taken)

    def _check(self, expression: pl.Expr) -> None:
        frame = pl.DataFrame(schema={**self._schema, **self._types})
        try:
            found = frame.select(expression.alias("it")).schema["it"]
        except pl.exceptions.PolarsError as error:
            raise DefinitionError(f"condition {expression}: {error}") from None
        if found != pl.Boolean:
            raise DefinitionError(f"condition {expression} must be true or false for each event, but gives {found}")
        check_rowwise(expression, what="condition")

    def _start(self, program: Program, edge: Edge) -> int:
        """The condition of a start: with nothing taken yet references are known, so it depends on the event alone."""
        test = program.tests[edge.test]
        parts = [] if test.condition is None else [test.condition.expression]
        for one in edge.untils:
            until = program.tests[one.test].condition
            assert until is not None
            parts.append(~until.expression.fill_null(False))
        return self._bit(functools.reduce(operator.and_, parts)) if parts else ALWAYS

    def _nothing_taken(self) -> list[pl.Expr]:
        readers = self.accumulators.readers()
        return [
            pl.lit(readers[one.name](self.accumulators.empty), dtype=self._types[name]).alias(name)
            for name, one in self._references.items()
        ]

    def _function(self, expression: pl.Expr) -> Function:
        for name in expression.meta.root_names():
            if name not in self._references:
                self.accumulators.columns.setdefault(name, [])
        readers = {name: self.accumulators.readers()[one.name] for name, one in self._references.items()}
        node = parse(expression)
        kinds = {name: kind for name, kind in self._kinds().items() if kind is not None}
        if node is not None and kind_of(node, kinds) == "truth":
            return function_of(node, self.accumulators.columns, readers)
        return self._query(expression, readers)

    def _query(self, expression: pl.Expr, readers: Mapping[str, Callable[[Taken], Any]]) -> Function:
        """Evaluate an expression by polars, where it is not understood here."""
        names = list(dict.fromkeys(expression.meta.root_names()))
        types = {name: _wide(self._types.get(name) or self._schema[name]) for name in names}
        columns = self.accumulators.columns

        def function(event: int, taken: Taken) -> Any:
            row = {name: [readers[name](taken) if name in readers else columns[name][event]] for name in names}
            return pl.DataFrame(row, schema=types).select(expression.alias("it")).item()

        return function

    def _another(self, differs_in: str) -> Function:
        slot, values = self.accumulators.slot_of(differs_in), self.accumulators.columns[differs_in]

        def function(event: int, taken: Taken) -> Any:
            return values[event] is not None and values[event] not in taken[slot]

        return function

    def _kinds(self) -> dict[str, str | None]:
        return {name: _kind(kind) for name, kind in {**self._schema, **self._types}.items()}


def _kind(dtype: pl.DataType) -> str | None:
    if dtype == pl.Boolean:
        return "truth"
    if dtype.is_integer() or dtype.is_float():
        return "number"
    if dtype == pl.String:
        return "text"
    if isinstance(dtype, pl.Datetime) and dtype.time_unit != "ns":
        return "moment"
    if isinstance(dtype, pl.Duration) and dtype.time_unit != "ns":
        return "span"
    return None


def _wide(dtype: pl.DataType) -> pl.DataType:
    if dtype == pl.Float32:
        return pl.Float64()
    return pl.Int64() if dtype.is_integer() and dtype != pl.UInt64 else dtype
