"""Beside each event, what the event before it of the same key had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.process import DATETIME, Clock, DataType, Process
from tidewheel.model.time import Duration

__all__ = ["previous"]


@dataclass(frozen=True)
class _Previous:
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    prefix: str

    __name__ = "previous"

    @property
    def about(self) -> str:
        """In plain words."""
        return f"each row with {', '.join(self.prefix + name for name in self.columns)} of the one before it"

    def __call__(self, events: pl.DataFrame, state: pl.DataFrame, clock: Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
        first = pl.int_range(pl.len()).over(self.keys) == 0
        joined = events.join(state, on=self.keys, how="left", nulls_equal=True, maintain_order="left")
        results = joined.with_columns(
            pl.when(first).then(pl.col(self.prefix + name)).otherwise(pl.col(name).shift(1)).alias(self.prefix + name)
            for name in self.columns
        )
        new = events.group_by(self.keys, maintain_order=True).agg(
            pl.col(name).last().alias(self.prefix + name) for name in self.columns
        )
        return results, new


def previous(
    columns: str | Iterable[str],
    *,
    keys: str | Iterable[str],
    schema: Mapping[str, DataType],
    prefix: str = "previous_",
    ttl: Duration | str | None = None,
    time: str = "event_time",
) -> Process:
    """A process that adds the key's previous event's columns (null for its first event); `schema` is the input's.

    With `ttl`, an event that comes longer than that after the one before it counts as a first one.

    >>> previous("speed", keys="vehicle", schema={"vehicle": pl.String, "speed": pl.Float64}, ttl="5 min")
    Process(previous, keys=('vehicle',), state={'previous_speed': Float64}, ttl='5 min')
    """
    columns = (columns,) if isinstance(columns, str) else tuple(columns)
    keys = (keys,) if isinstance(keys, str) else tuple(keys)
    known = {**schema, time: DATETIME}
    if not columns:
        raise DefinitionError("previous needs at least one column to look back at")
    for name in columns:
        if name not in known:
            raise DefinitionError(f"previous: there is no column {name!r}; the input has {list(known)}")
        if prefix + name in known:
            raise DefinitionError(f"previous: the input already has {prefix + name!r}; pass another prefix=")
    state = {prefix + name: known[name] for name in columns}
    return Process(_Previous(columns, keys, prefix), keys=keys, state=state, ttl=ttl, time=time)
