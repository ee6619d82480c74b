"""The parts of a pattern: stages that take events, stages that must not come, and groups of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration
from tidewheel.patterns.define.expressions import source

__all__ = ["ONCE", "Condition", "Contiguity", "Group", "Kind", "Part", "Quantifier", "Stage"]
__all__ += ["conditions_of", "stages_of"]

Contiguity = Literal["next", "followed_by", "followed_by_any"]
"""What may lie between an event and the one taken before it: nothing; nothing that could have been taken; anything."""

Kind = Literal["sequence", "any_of", "all_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """An expression that is equal to another if it is written the same."""

    stable_name: ClassVar[str] = "pattern.condition/1"
    stored: ClassVar[StoredFields] = StoredFields("expression")

    expression: pl.Expr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and self.expression.meta.eq(other.expression)

    def __hash__(self) -> int:
        return hash(str(self.expression))

    def __repr__(self) -> str:
        return source(self.expression)


@dataclass(frozen=True, slots=True)
class Quantifier:
    """How often, and how the events of a loop lie to each other. within: how far apart neighbours in it may be."""

    stable_name: ClassVar[str] = "pattern.quantifier/1"
    stored: ClassVar[StoredFields] = StoredFields(
        "least", "most", "inner", "greedy", "optional", "until", "within", micros=("within",)
    )

    least: int = 1
    most: int | None = 1
    inner: Contiguity = "followed_by"
    greedy: bool = False
    optional: bool = False
    until: Condition | None = None
    within: Duration | None = None

    @property
    def loops(self) -> bool:
        """Whether it may take more than one event."""
        return self.most != 1


ONCE = Quantifier()


@dataclass(frozen=True, slots=True)
class Stage:
    """Takes events that satisfy a condition (None: any event). forbids: such an event must not come.

    within: how long after the event before it. differs_in: a column in which it differs from all events taken.
    """

    stable_name: ClassVar[str] = "pattern.stage/1"
    stored: ClassVar[StoredFields] = StoredFields(
        "name", "condition", "contiguity", "quantifier", "forbids", "within", "differs_in", micros=("within",)
    )

    name: str
    condition: Condition | None = None
    contiguity: Contiguity = "followed_by"
    quantifier: Quantifier = ONCE
    forbids: bool = False
    within: Duration | None = None
    differs_in: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences as one part: one sequence, one of several, or all of several in any order."""

    stable_name: ClassVar[str] = "pattern.group/1"
    stored: ClassVar[StoredFields] = StoredFields("kind", "sequences", "contiguity", "quantifier")

    kind: Kind
    sequences: tuple[tuple[Part, ...], ...]
    contiguity: Contiguity = "followed_by"
    quantifier: Quantifier = ONCE


Part = Stage | Group


def conditions_of(parts: tuple[Part, ...]) -> Iterator[Condition]:
    """All conditions of stages, and those that end loops."""
    for part in parts:
        own = (part.condition,) if isinstance(part, Stage) else ()
        yield from (condition for condition in (*own, part.quantifier.until) if condition is not None)
        for sequence in () if isinstance(part, Stage) else part.sequences:
            yield from conditions_of(sequence)


def stages_of(parts: tuple[Part, ...]) -> Iterator[Stage]:
    """All stages, in the order in which they are written."""
    for part in parts:
        if isinstance(part, Stage):
            yield part
        else:
            for sequence in part.sequences:
                yield from stages_of(sequence)
