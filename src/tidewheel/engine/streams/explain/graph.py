"""The graph of a query: the user's steps, inside the operators that Spark runs them in.

Rows go through the operators one after the other. A stage's rows are prepared where they come from: in the log's
reader, or in the operator of the stage before it. What keeps state is behind a shuffle.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tidewheel.engine.execution.input import DataFrameInput, LogInput
from tidewheel.engine.runtime.flow import Flow, Stage
from tidewheel.engine.streams.explain.explain import about_stage, output_names, source_text
from tidewheel.engine.streams.step_text import key_by_text, step_texts
from tidewheel.html import counted

__all__ = ["Graph", "Operator", "Step", "graph_of"]

_SHOWN = {**{word: word for word in ("What", "Measures", "Where", "When", "How")}, "Kept": "State"}
"""The texts about a stage that are shown, with their labels here."""


@dataclass(frozen=True)
class Step:
    """A step of the query. outputs: its side outputs."""

    title: str
    lines: tuple[str, ...] = ()
    kind: Literal["input", "step", "stage", "added"] = "step"
    """`added`: not the user's, but what is done to make it fast."""
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operator:
    """An operator that Spark runs, and its parallelism."""

    title: str
    parallelism: str
    steps: tuple[Step, ...]
    link: str = ""
    """How rows come to it from the operator before."""


@dataclass(frozen=True)
class Graph:
    """Operators, each fed by the one before it, and what comes out of the last one."""

    operators: tuple[Operator, ...]
    outputs: tuple[str, ...] = ()


def graph_of(
    source: LogInput | DataFrameInput, flow: Flow, *, outputs: Sequence[str] = (), more: Sequence[str] = ()
) -> Graph:
    """The graph of a result with these outputs, or, without, of a stream that is still to become one. more: what was
    said after the last stage, besides what is done to each of its results."""
    stages = flow.stages
    beside = [tuple(output_names(flow, depth).values()) for depth in range(len(stages))]
    steps = [Step(source_text(source), (f"time: {source.time}", f"watermark: {source.watermark!r}"), "input")]
    operators: list[Operator] = []
    whole = isinstance(source, LogInput) and len(stages) == 1 and not flow.keeps_state
    title, parallelism, link = _reader(source)
    for depth, stage in enumerate(stages):
        steps += map(Step, step_texts(stage.ops, source if depth == 0 else None))
        if stage.keys:
            steps.append(Step(key_by_text(stage.keys)))
        if isinstance(source, LogInput) and not stage.operator().takes_rows:
            steps.append(Step("partial aggregates", ("before the shuffle, so that fewer rows travel",), "added"))
        if not whole:
            operators.append(Operator(title, parallelism, tuple(steps), link))
            steps = []
            title, parallelism, link = _keeper(source, flow, depth)
        steps.append(_stage(flow, depth, stage, beside[depth]))
    steps += map(Step, step_texts(flow.after, None if stages else source))
    steps += map(Step, more)
    if not outputs:
        title = f"{title}, so far" if not stages else title
    operators.append(Operator(title, parallelism, tuple(steps), link))
    left = {name for names in beside for name in names}
    return Graph(tuple(operators), tuple(name for name in outputs if name not in left))


def _stage(flow: Flow, depth: int, stage: Stage, outputs: tuple[str, ...]) -> Step:
    texts = tuple(f"{_SHOWN[word]}: {text}" for word, text in about_stage(flow, depth).items() if word in _SHOWN)
    return Step(stage.operation.label, texts, "stage", outputs)


def _reader(source: LogInput | DataFrameInput) -> tuple[str, str, str]:
    """The operator that Spark reads with."""
    if isinstance(source, LogInput):
        cores = os.cpu_count() or 1
        return "Spark: the log's reader", f"up to {counted(cores, 'task')} for a large batch, 1 for a small one", ""
    return "Spark: mapInArrow over the DataFrame", "as many tasks as the DataFrame has partitions", ""


def _keeper(source: LogInput | DataFrameInput, flow: Flow, depth: int) -> tuple[str, str, str]:
    """The operator that Spark runs a stage in: its title, its details, and how rows come to it."""
    number = f" {depth + 1}" if len(flow.stages) > 1 else ""
    known = _key_groups(source)
    count = "one task for each key group" if known is None else f"{counted(known, 'key group')}, a task each"
    if isinstance(source, DataFrameInput) and not source.frame.isStreaming:
        title, store = f"Spark: grouped by key group{number} (applyInArrow)", "in memory, all rows at once"
    else:
        title, store = f"Spark: state operator{number} (transformWithState)", "state in RocksDB"
    return title, f"{count} (key_groups=); {store}", "shuffle by key group"


def _key_groups(source: LogInput | DataFrameInput) -> int | None:
    """The default number of key groups; None if that cannot be known before there is a session."""
    from pyspark.sql import SparkSession

    from tidewheel.engine.execution.state_settings import key_group_count

    spark = source.spark if isinstance(source, DataFrameInput) else SparkSession.getActiveSession()
    if spark is None:
        return None
    try:
        return key_group_count(spark, None)
    except Exception:  # a session that was stopped: what it would have said does not matter any more
        return None
