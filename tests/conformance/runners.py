"""What runs conformance cases: a runner takes windowings with their steps, all at once, and gives the panes of each
step of each.

The elements of a case have one value, in the column `value`, and one key, in the column `key`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl
from pyspark import cloudpickle

from tests.conformance import texts
from tests.support.on_spark import panes_of, run_cases
from tidewheel.engine.execution.session import session
from tidewheel.engine.operators.window_operation import WindowOperation
from tidewheel.engine.runtime.flow import Stage
from tidewheel.model.panes import Element, Pane
from tidewheel.model.reference.windows import Reference
from tidewheel.model.time import Instant
from tidewheel.model.windowing import Windowing

SECOND = 1_000_000
INSTANT = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class Step:
    """A bundle of elements, and the time that it moves to (None: the watermark stays)."""

    elements: tuple[Element, ...] = ()
    watermark: Instant | None = None
    clock: Instant = 0


Predicate = tuple[Windowing, Sequence[Step]]
Panes = list[list[Pane]]
"""The panes of each step."""
Runner = Callable[[Sequence[Predicate]], list[Panes]]


def reference(questions: Sequence[Predicate]) -> list[Panes]:
    """The interpreter, case by case."""
    answers = []
    for windowing, steps in questions:
        interpreter = Reference(windowing)
        answers.append(
            [interpreter.step(step.elements, watermark=step.watermark, clock=step.clock).panes for step in steps]
        )
    return answers


def spark(questions: Sequence[Predicate]) -> list[Panes]:
    """The engine, all cases in one streaming query."""
    cloudpickle.register_pickle_by_value(sys.modules[texts.__name__])  # custom windows are functions of that module
    cases = []
    for windowing, steps in questions:
        values = [element.values["value"] for step in steps for element in step.elements]
        schema = {
            "event_time": INSTANT,
            "key": pl.String(),
            "value": pl.String() if any(isinstance(value, str) for value in values) else pl.Int64(),
        }
        frames = [(_frame(step.elements, schema), step.watermark, step.clock) for step in steps]
        cases.append((Stage((), ("key",), WindowOperation(windowing), schema), frames))
    found = run_cases(session(), cases)
    return [
        [panes_of(step.results, ("key",), list(windowing.aggregates)) for step in case]
        for (windowing, _), case in zip(questions, found, strict=True)
    ]


def _frame(elements: Sequence[Element], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "event_time": pl.Series([element.time for element in elements], dtype=pl.Int64).cast(INSTANT),
            "key": [element.key[0] for element in elements],
            "value": [element.values["value"] for element in elements],
        },
        schema=schema,
    )


RUNNERS: dict[str, Runner] = {"reference": reference, "spark": spark}
