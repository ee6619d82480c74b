"""Schema evolution: stored rows of a stage whose input may have other columns by now."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tidewheel.errors import CheckpointError

__all__ = ["conform"]


def conform(stored: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Convert stored rows to the current schema: new columns are null, removed columns are dropped.

    >>> conform(pl.DataFrame({"x": [1], "old": [2]}), {"x": pl.Int64(), "new": pl.String()}).rows()
    [(1, None)]
    """
    if dict(stored.schema) == dict(schema):
        return stored
    for name, kind in schema.items():
        if name in stored.columns and stored.schema[name] != kind:
            raise CheckpointError(
                f"waiting rows have a column {name!r} of type {stored.schema[name]}, but it is {kind} now; start on a "
                "new checkpoint, or give the changed column a new name"
            )
    return stored.select(
        pl.col(name) if name in stored.columns else pl.lit(None, kind).alias(name) for name, kind in schema.items()
    )
