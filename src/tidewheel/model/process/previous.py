"""Beside each event, what the event before it of the same key had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.process.process import DATETIME, Clock, DataType, Process, ReadyMade
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, duration

__all__ = ["RETRACTION", "previous"]

RETRACTION = "retraction"
"""The column that says of a result that it retracts an earlier one, which is the same in all others."""

_RECENT, _WAS, _NEW, _AFTER_NEW = "recent", "__was_", "__new", "__after_new"


@dataclass(frozen=True)
class _Previous(ReadyMade):
    stable_name: ClassVar[str] = "previous/1"
    stored: ClassVar[StoredFields] = StoredFields("columns", "keys", "prefix")

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    prefix: str

    __name__ = "previous"

    @property
    def about(self) -> str:
        """What the function does, in plain words."""
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


@dataclass(frozen=True)
class _Corrected(ReadyMade):
    """The same for events that may come late: those that a late one may still come between are kept, and one more."""

    stable_name: ClassVar[str] = "previous.corrected/1"
    stored: ClassVar[StoredFields] = StoredFields(
        "columns", "keys", "prefix", "time", "ttl", "lateness", micros=("ttl", "lateness")
    )

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    prefix: str
    time: str
    ttl: Duration | None
    lateness: Duration

    __name__ = "previous"

    @property
    def about(self) -> str:
        """What the function does, in plain words."""
        return f"each row with {', '.join(self.prefix + name for name in self.columns)} of the one before it"

    def __call__(self, events: pl.DataFrame, state: pl.DataFrame, clock: Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
        kept = state.select(*self.keys, _RECENT).explode(_RECENT).drop_nulls(_RECENT).unnest(_RECENT)
        kept = kept.select(events.columns).with_columns(*self._before(), pl.lit(False).alias(_NEW))
        new = events.with_columns(*(pl.lit(None).alias(_WAS + name) for name in self.columns), pl.lit(True).alias(_NEW))
        # Of one time those that came first, as they were kept, go first.
        rows = pl.concat([kept, new.cast(kept.schema)]).sort(*self.keys, self.time, maintain_order=True)
        rows = rows.with_columns(*self._before(self.prefix), pl.col(_NEW).shift(1).over(self.keys).alias(_AFTER_NEW))
        # A late event changes what is before the next one; if it looks the same, nobody need hear of it.
        differs = pl.any_horizontal(pl.col(_WAS + name).ne_missing(pl.col(self.prefix + name)) for name in self.columns)
        changed = rows.filter(~pl.col(_NEW) & pl.col(_AFTER_NEW) & differs)
        found = [
            changed.with_columns(pl.col(_WAS + name).alias(self.prefix + name) for name in self.columns).with_columns(
                pl.lit(True).alias(RETRACTION)
            ),
            changed.with_columns(pl.lit(False).alias(RETRACTION)),
            rows.filter(_NEW).with_columns(pl.lit(False).alias(RETRACTION)),
        ]
        names = [*events.columns, *(self.prefix + name for name in self.columns), RETRACTION]
        return pl.concat(found).select(names), self._recent(rows, events.columns, clock)

    def _before(self, prefix: str = _WAS) -> list[pl.Expr]:
        """What the event before each had, unless it was too long ago."""
        gap = (pl.col(self.time) - pl.col(self.time).shift(1)).over(self.keys).cast(pl.Int64)
        near = pl.lit(True) if self.ttl is None else gap <= self.ttl
        return [pl.when(near).then(pl.col(name).shift(1).over(self.keys)).alias(prefix + name) for name in self.columns]

    def _recent(self, rows: pl.DataFrame, columns: list[str], clock: Clock) -> pl.DataFrame:
        """The events that others of this batch or later ones may come before, and of each key the last of the others.
        Events of a batch may be handed in one after the other: the watermark before it says which are accepted."""
        if clock.before is not None:
            following = pl.col(self.time).shift(-1).over(self.keys).cast(pl.Int64)
            rows = rows.filter(following.is_null() | (following >= clock.before - self.lateness))
        values = [name for name in columns if name not in self.keys]
        return rows.group_by(self.keys, maintain_order=True).agg(pl.struct(values).alias(_RECENT))


def previous(
    columns: str | Iterable[str],
    *,
    keys: str | Iterable[str],
    schema: Mapping[str, DataType],
    prefix: str = "previous_",
    ttl: Duration | str | None = None,
    time: str = "event_time",
    lateness: Duration = 0,
) -> Process:
    """A process that adds the key's previous event's columns (null for its first event); `schema` is the input's.

    With `ttl`, an event that comes longer than that after the one before it counts as a first one. With `lateness`,
    events that come up to that far behind the watermark take their place: the result of the event after one is
    retracted and comes again. Results then have a column `retraction`.

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
    if not lateness:
        state = {prefix + name: known[name] for name in columns}
        return Process(_Previous(columns, keys, prefix), keys=keys, state=state, ttl=ttl, time=time)
    if RETRACTION in known:
        raise DefinitionError(f"previous: the input already has {RETRACTION!r}, which results with a lateness have")
    longest = None if ttl is None else duration(ttl, what="ttl of previous", bare=True)
    recent = pl.List(pl.Struct({name: kind for name, kind in known.items() if name not in keys}))
    return Process(
        _Corrected(columns, keys, prefix, time, longest, lateness),
        keys=keys,
        state={_RECENT: recent},
        # A late event may be so far behind what makes event time pass.
        ttl=None if longest is None else longest + lateness,
        time=time,
        lateness=lateness,
    )
