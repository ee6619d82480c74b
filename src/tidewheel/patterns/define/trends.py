"""Trends: values that rise, fall, or keep their direction over several events, as patterns."""

from __future__ import annotations

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.patterns.define.builder import Pattern, pattern
from tidewheel.patterns.define.references import count, first, last

__all__ = ["falling", "monotonic", "rising"]


def rising(column: str, events: int, *, name: str = "rising", or_equal: bool = False) -> Pattern:
    """Match n events in a row, each with a greater value than the one before.

    >>> from tidewheel.patterns.nfa.harness import Harness
    >>> harness = Harness(rising("x", 3), {"x": pl.Int64})
    >>> harness.add_all([(time, {"x": x}) for time, x in enumerate([5, 1, 2, 4, 4])])
    >>> harness.matches
    [{'rising': [1, 2, 3]}]
    """
    before = last(_checked(column, name))
    grows = pl.col(column) >= before if or_equal else pl.col(column) > before
    return _row(name, (count(name) == 0) | grows, column, events)


def falling(column: str, events: int, *, name: str = "falling", or_equal: bool = False) -> Pattern:
    """Match n events in a row, each with a smaller value than the one before.

    >>> from tidewheel.patterns.nfa.harness import Harness
    >>> harness = Harness(falling("x", 3), {"x": pl.Int64})
    >>> harness.add_all([(time, {"x": x}) for time, x in enumerate([1, 5, 4, 2])])
    >>> harness.matches
    [{'falling': [1, 2, 3]}]
    """
    before = last(_checked(column, name))
    shrinks = pl.col(column) <= before if or_equal else pl.col(column) < before
    return _row(name, (count(name) == 0) | shrinks, column, events)


def monotonic(column: str, events: int, *, name: str = "monotonic", or_equal: bool = False) -> Pattern:
    """Match n events in a row that all rise or all fall.

    >>> from tidewheel.patterns.nfa.harness import Harness
    >>> harness = Harness(monotonic("x", 3), {"x": pl.Int64})
    >>> harness.add_all([(time, {"x": x}) for time, x in enumerate([1, 2, 4, 3, 1])])
    >>> harness.matches
    [{'monotonic': [0, 1, 2]}, {'monotonic': [2, 3, 4]}]
    """
    reference = _checked(column, name)
    so_far = last(reference) - first(reference)
    now = pl.col(column) - last(reference)
    strictly = (now * so_far > 0) | ((count(name) == 1) & (now != 0))
    goes_on = now * so_far >= 0 if or_equal else strictly
    return _row(name, (count(name) == 0) | goes_on, column, events)


def _checked(column: str, name: str) -> str:
    if not isinstance(column, str) or not column:
        raise DefinitionError(f'a trend needs the name of a column, like rising("speed", 3), got {column!r}')
    return f"{name}.{column}"


def _row(name: str, condition: pl.Expr, column: str, events: int) -> Pattern:
    if not isinstance(events, int) or isinstance(events, bool) or events < 2:
        raise DefinitionError(f"a trend in {column!r} shows in 2 events or more, got {events!r}")
    return pattern(name, pl.col(column).is_not_null() & condition).times(events).consecutive()
