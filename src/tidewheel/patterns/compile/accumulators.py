"""The accumulators of a partial match: aggregates of the events it took, for the conditions that refer to them.

Each reference has a slot; taking an event gives new values. So a condition costs the same however long the match is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import polars as pl

from tidewheel.patterns.compile.extremes import greater, lesser
from tidewheel.patterns.compile.program import Program
from tidewheel.patterns.define.references import Reference

__all__ = ["Accumulators", "Taken"]

Taken = tuple[Any, ...]


def _first(old: Any, value: Any) -> Any:
    return (value,) if old is None else old


def _last(old: Any, value: Any) -> Any:
    return (value,)


def _count(old: Any, value: Any) -> Any:
    return old + 1


def _sum(old: Any, value: Any) -> Any:
    return old if value is None else old + value


def _min(old: Any, value: Any) -> Any:
    return old if value is None else value if old is None else lesser(old, value)


def _max(old: Any, value: Any) -> Any:
    return old if value is None else value if old is None else greater(old, value)


def _mean(old: Any, value: Any) -> Any:
    return old if value is None else (old[0] + value, old[1] + 1)


def _seen(old: Any, value: Any) -> Any:
    return old | {value}


_UPDATES: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "first": (None, _first),
    "last": (None, _last),
    "previous": (None, _last),
    "count": (0, _count),
    "sum": (0, _sum),
    "min": (None, _min),
    "max": (None, _max),
    "mean": ((0, 0), _mean),
    "seen": (frozenset(), _seen),
}


class Accumulators:
    """The slots of a program. Values of events are looked up by the events' numbers in `columns`."""

    def __init__(self, program: Program, references: Iterable[Reference], other_keys: Iterable[str]) -> None:
        self.slots: list[Reference] = [*references, *(Reference("seen", None, column) for column in other_keys)]
        self.columns: dict[str, list[Any]] = {slot.column: [] for slot in self.slots if slot.column is not None}
        self.empty: Taken = tuple(_UPDATES[slot.function][0] for slot in self.slots)
        nothing: list[Any] = []
        self._updates = [
            [
                (number, _UPDATES[slot.function][1], nothing if slot.column is None else self.columns[slot.column])
                for number, slot in enumerate(self.slots)
                if slot.stage is None or slot.stage == position.stage
            ]
            for position in program.positions
        ]

    def after(self, taken: Taken, position: int, event: int) -> Taken:
        """Return the accumulators after an event was taken at this position."""
        updates = self._updates[position]
        if not updates:
            return taken
        new = list(taken)
        for slot, update, values in updates:
            new[slot] = update(new[slot], values[event] if values else None)
        return tuple(new)

    def readers(self) -> dict[str, Callable[[Taken], Any]]:
        """Functions that read the value of each reference."""
        return {slot.name: _reader(number, slot.function) for number, slot in enumerate(self.slots)}

    def slot_of(self, differs_in: str) -> int:
        """The slot with the values of a column in all events taken."""
        return self.slots.index(Reference("seen", None, differs_in))


def _reader(slot: int, function: str) -> Callable[[Taken], Any]:
    if function in ("first", "last", "previous"):
        return lambda taken: None if taken[slot] is None else taken[slot][0]
    if function == "mean":
        return lambda taken: taken[slot][0] / taken[slot][1] if taken[slot][1] else None
    return lambda taken: taken[slot]


def reference_type(reference: Reference, schema: Mapping[str, pl.DataType]) -> pl.DataType:
    """The type of a reference's values, as polars would have it."""
    if reference.column is None:
        return pl.Int64()
    column = pl.col(reference.column)
    found = {"sum": column.sum(), "mean": column.mean()}.get(reference.function, column.first())
    kind = pl.DataFrame(schema={reference.column: schema[reference.column]}).select(found.alias("it")).schema["it"]
    return pl.List(kind) if reference.function == "collect" else kind
