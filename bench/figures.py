"""Figures: measured, compared with their aims, shown as a table and written as JSON."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

__all__ = ["Figure", "best_rate", "with_aim", "percentiles", "show", "write"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `aim` says in words what it should be; `met` whether it is (None: a baseline)."""

    group: str
    name: str
    value: float
    unit: str
    aim: str = ""
    met: bool | None = None


def best_rate(
    count: int, work: Callable[[], object], *, repeat: int = 3, clock: Callable[[], float] = time.perf_counter
) -> float:
    """How many a second, in the best of a few runs: the others were disturbed by something."""
    seconds = []
    for _ in range(repeat):
        begin = clock()
        work()
        seconds.append(clock() - begin)
    return count / min(seconds)


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th."""
    p50, p99 = np.percentile(np.array(values), [50, 99], method="inverted_cdf")
    return float(p50), float(p99)


def show(figures: Sequence[Figure], console: Console) -> None:
    """A table, a section for each group."""
    table = Table(box=None, pad_edge=False)
    for column, side in (("", "left"), ("value", "right"), ("unit", "left"), ("aim", "left"), ("", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]  # both are
    group = None
    for figure in figures:
        if figure.group != group:
            table.add_row(f"[bold]{figure.group}[/]") if group is None else table.add_row(f"\n[bold]{figure.group}[/]")
            group = figure.group
        digits = 0 if figure.value >= 1_000 else 1 if figure.value >= 10 else 2
        aim_text = "" if figure.met is None else "[green]met[/]" if figure.met else "[red]missed[/]"
        table.add_row(f"  {figure.name}", f"{figure.value:,.{digits}f}", figure.unit, figure.aim, aim_text)
    console.print(table)


def write(figures: Sequence[Figure], path: Path) -> None:
    """The same as JSON, with what machine and versions they are of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = ("tidewheel", "pyspark", "pyarrow", "polars", "protobuf", "ptars")
    content = {
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "versions": {name: version(name) for name in names},
        "figures": [asdict(figure) for figure in figures],
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def with_aim(
    group: str,
    name: str,
    value: float,
    unit: str,
    *,
    least: float | None = None,
    most: float | None = None,
    aim: str = "",
) -> Figure:
    """A figure with its aim.

    >>> with_aim("speed", "ratio", 1.2, "x", least=1.5)
    Figure(group='speed', name='ratio', value=1.2, unit='x', aim='at least 1.5', met=False)
    """
    if least is not None:
        return Figure(group, name, value, unit, aim or f"at least {least:g}", value >= least)
    assert most is not None
    return Figure(group, name, value, unit, aim or f"at most {most:g}", value <= most)
