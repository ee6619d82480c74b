"""A set of figures in parts, which may be measured alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from bench.figures import Figure

__all__ = ["Part", "run_parts"]

Bench = TypeVar("Bench")


@dataclass(frozen=True)
class Part(Generic[Bench]):
    """Figures that are measured together, on what the parts of the set share."""

    about: str
    run: Callable[[Bench], list[Figure]]


def run_parts(parts: Mapping[str, Part[Bench]], bench: Bench, only: Sequence[str]) -> Iterator[list[Figure]]:
    """The figures of these parts, or of all, part by part.

    >>> parts = {"a": Part("one", lambda x: [Figure("g", "n", x, "")]), "b": Part("none", lambda x: [])}
    >>> [len(figures) for figures in run_parts(parts, 7.0, [])]
    [1, 0]
    """
    for name in only or parts:
        yield parts[name].run(bench)
