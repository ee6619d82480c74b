"""The map side of a windowed aggregation: rows to partial aggregates, one for each key and slice of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import polars as pl

from tidewheel.engine.operators.windows.assignment import END, SLICE, START, with_slices
from tidewheel.engine.operators.windows.vectorized_triggers import expected_column
from tidewheel.model.aggregates.aggregate import Aggregate
from tidewheel.model.aggregates.retractable import WEIGHT
from tidewheel.model.columns import TIME
from tidewheel.model.time import Instant
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Session

__all__ = [
    "HOLD",
    "LATEST",
    "LEFT",
    "N",
    "aggregates",
    "finished",
    "group",
    "merging",
    "partial_columns",
    "partial_aggregates",
    "prefix",
]

N = "__n"
LEFT = "__left"
"""How many elements there are, less those that were retracted; only where some may be."""
HOLD = "__hold"
LATEST = "__latest"


def aggregates(windowing: Windowing) -> dict[str, Aggregate]:
    """The aggregates, which here must know columns."""
    return cast("dict[str, Aggregate]", windowing.aggregates)


def prefix(name: str) -> str:
    """What the partial columns of an aggregate begin with."""
    return f"__agg.{name}"


def partial_aggregates(
    windowing: Windowing, rows: pl.DataFrame, keys: Sequence[str], before: Instant | None
) -> pl.DataFrame:
    """One row for each key and slice; `before` is the watermark in force when the rows came."""
    by = [START, END] if isinstance(windowing.windows, Session) else [SLICE]
    return group(windowing, with_slices(windowing.windows, rows, keys), [*keys, *by], before)


def group(windowing: Windowing, rows: pl.DataFrame, by: Sequence[str], before: Instant | None) -> pl.DataFrame:
    """Aggregate rows to partial aggregates."""
    wanted: list[pl.Expr] = [pl.len().cast(pl.Int64).alias(N)]
    if windowing.timestamp == "earliest":
        held = pl.col(TIME) if before is None else pl.col(TIME).filter(pl.col(TIME) >= before)
        wanted.append(held.min().alias(HOLD))
    if windowing.timestamp == "latest":
        wanted.append(pl.col(TIME).max().alias(LATEST))
    wanted += [pl.col(name).max().cast(pl.Int64).alias(expected_column(name)) for name in windowing.trigger.inputs]
    if windowing.weighted:
        wanted.append(pl.col(WEIGHT).cast(pl.Int64).sum().alias(LEFT))
    for name, aggregate in aggregates(windowing).items():
        wanted += aggregate.partial(prefix(name))
    return rows.group_by(by, maintain_order=True).agg(wanted)


def merging(windowing: Windowing) -> list[pl.Expr]:
    """Aggregations that make one partial of several."""
    exprs: list[pl.Expr] = []
    for name, aggregate in aggregates(windowing).items():
        exprs += aggregate.merge(prefix(name))
    if windowing.timestamp == "earliest":
        exprs.append(pl.col(HOLD).min())
    if windowing.timestamp == "latest":
        exprs.append(pl.col(LATEST).max())
    if windowing.weighted:
        exprs.append(pl.col(LEFT).sum())
    return exprs


def partial_columns(windowing: Windowing, frame: pl.DataFrame) -> list[str]:
    """The columns of a frame that hold partial aggregates."""
    starts = tuple(f"{prefix(name)}." for name in windowing.aggregates)
    return [name for name in frame.columns if name.startswith(starts) or name in (HOLD, LATEST)]


def finished(windowing: Windowing) -> list[pl.Expr]:
    """Finish partial columns to results."""
    return [aggregate.finish(prefix(name)).alias(name) for name, aggregate in aggregates(windowing).items()]
