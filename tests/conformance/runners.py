"""What runs a conformance case: a runner takes a windowing and steps, and gives the panes of each step.

The elements of a case have one value, in the column `value`; its aggregates are those of `tests.conformance.cases`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidewheel.model.panes import Element, Pane
from tidewheel.model.reference import Reference
from tidewheel.model.time import Instant
from tidewheel.model.windowing import Windowing

SECOND = 1_000_000


@dataclass(frozen=True)
class Step:
    """A bundle of elements, and the time that it moves to (None: the watermark stays)."""

    elements: tuple[Element, ...] = ()
    watermark: Instant | None = None
    clock: Instant = 0


Runner = Callable[[Windowing, Sequence[Step]], list[list[Pane]]]


def reference(windowing: Windowing, steps: Sequence[Step]) -> list[list[Pane]]:
    interpreter = Reference(windowing)
    return [interpreter.step(step.elements, watermark=step.watermark, clock=step.clock).panes for step in steps]


RUNNERS: dict[str, Runner] = {"reference": reference}
