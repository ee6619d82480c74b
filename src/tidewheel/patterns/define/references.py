"""References to the events that a match has taken, for conditions and measures: first, last, count, sum and others.

A reference is an ordinary polars expression, a column whose name tells what it stands for, like `first(fast.speed)`.
So it mixes freely with the columns of the event itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import polars as pl

from tidewheel.errors import DefinitionError

__all__ = [
    "Reference",
    "collect",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "previous",
    "reference_of",
    "references_in",
    "resolve",
    "stages_named_in",
    "sum",
]

FUNCTIONS = ("first", "last", "previous", "count", "sum", "min", "max", "mean", "collect")
_ENCODED = re.compile(rf"({'|'.join(FUNCTIONS)})\((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reference:
    """A function over a column of the events taken by a stage; without a stage, over all events taken.

    >>> Reference("first", "fast", "speed").name
    'first(fast.speed)'
    """

    function: str
    stage: str | None
    column: str | None

    @property
    def name(self) -> str:
        """The column that stands for it in expressions."""
        return f"{self.function}({'.'.join(part for part in (self.stage, self.column) if part is not None)})"


def first(of: str) -> pl.Expr:
    """The value in the first event of a stage, `first("fast.speed")`, or of the match, `first("speed")`.

    >>> str(first("fast.speed") - pl.col("speed"))
    '[(col("first(fast.speed)")) - (col("speed"))]'
    """
    return _reference("first", of)


def last(of: str) -> pl.Expr:
    """The value in the last event that a stage has taken, `last("fast.speed")`, or the match, `last("speed")`.

    >>> str(pl.col("speed") < last("fast.speed"))
    '[(col("speed")) < (col("last(fast.speed)"))]'
    """
    return _reference("last", of)


def previous(column: str) -> pl.Expr:
    """In a condition: the value in the event taken just before, whatever its stage; null for the first event.

    >>> str(pl.col("speed") < previous("speed"))
    '[(col("speed")) < (col("previous(speed)"))]'
    """
    return _reference("previous", column)


def count(stage: str = "") -> pl.Expr:
    """Count the events that a stage has taken, `count("braking")`, or the match as a whole, `count()`.

    >>> str(count("braking") >= 2)
    '[(col("count(braking)")) >= (dyn int: 2)]'
    """
    if not isinstance(stage, str):
        raise DefinitionError(f'count: expected the name of a stage, like count("braking"), got {stage!r}')
    return pl.col(f"count({stage})")


def sum(of: str) -> pl.Expr:
    """The sum over a stage's events, `sum("braking.acc")`, or over the match; 0 where there is none.

    >>> str(sum("braking.acc"))
    'col("sum(braking.acc)")'
    """
    return _reference("sum", of)


def min(of: str) -> pl.Expr:
    """The least value in a stage's events, `min("braking.acc")`, or in the match's.

    >>> str(min("braking.acc"))
    'col("min(braking.acc)")'
    """
    return _reference("min", of)


def max(of: str) -> pl.Expr:
    """The greatest value in a stage's events, `max("braking.acc")`, or in the match's.

    >>> str(max("braking.acc"))
    'col("max(braking.acc)")'
    """
    return _reference("max", of)


def mean(of: str) -> pl.Expr:
    """The mean over a stage's events, `mean("braking.acc")`, or over the match's.

    >>> str(mean("braking.acc"))
    'col("mean(braking.acc)")'
    """
    return _reference("mean", of)


def collect(of: str) -> pl.Expr:
    """Collect a stage's values in a measure, `collect("braking.acc")`, or the match's, in order.

    >>> str(collect("braking.acc"))
    'col("collect(braking.acc)")'
    """
    return _reference("collect", of)


def _reference(function: str, of: str) -> pl.Expr:
    if not isinstance(of, str) or not of:
        raise DefinitionError(f'{function}: expected "stage.column" or "column", got {of!r}')
    return pl.col(f"{function}({of})")


def references_in(expression: pl.Expr) -> list[str]:
    """The names of the references in an expression, in order, each once.

    >>> references_in(first("fast.speed") - pl.col("speed"))
    ['first(fast.speed)']
    """
    return [name for name in dict.fromkeys(expression.meta.root_names()) if _ENCODED.fullmatch(name)]


def stages_named_in(expression: pl.Expr) -> set[str]:
    """The stages that an expression refers to, whether they exist or not.

    >>> sorted(stages_named_in(first("fast.speed") - last("speed") + count("slow")))
    ['fast', 'slow']
    """
    found = set()
    for name in references_in(expression):
        function, _, of = name[:-1].partition("(")
        stage, dot, _ = of.partition(".")
        if stage and (dot or function == "count"):
            found.add(stage)
    return found


def reference_of(name: str, stages: Collection[str], *, what: str) -> Reference:
    """The reference that a column's name stands for; refused if its stage does not exist."""
    match = _ENCODED.fullmatch(name)
    assert match is not None
    function, of = match[1], match[2]
    if function == "count":
        if of and of not in stages:
            raise DefinitionError(f"{what}: {name} refers to a stage {of!r}, {_known(stages)}")
        return Reference("count", of or None, None)
    stage, dot, column = of.partition(".")
    if not dot:
        return Reference(function, None, of)
    if function == "previous":
        raise DefinitionError(
            f"{what}: {name} names a stage, but previous is the event taken just before, whatever its stage. "
            f'Use last("{of}"), or previous("{column}").'
        )
    if stage not in stages:
        raise DefinitionError(f"{what}: {name} refers to a stage {stage!r}, {_known(stages)}")
    if not column:
        raise DefinitionError(f'{what}: {name} names no column; write {function}("{stage}.column")')
    return Reference(function, stage, column)


def resolve(expressions: Iterable[pl.Expr], stages: Collection[str], *, what: str) -> dict[str, Reference]:
    """Find all references in these expressions, by the names of their columns."""
    return {
        name: reference_of(name, stages, what=what) for expression in expressions for name in references_in(expression)
    }


def _known(stages: Collection[str]) -> str:
    if not stages:
        return "but no stage has taken an event by then"
    return f"but those that may have taken events by then are {', '.join(stages)}"
