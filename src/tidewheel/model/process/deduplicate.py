"""The first of equal events, and apart from it the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.process.process import DATETIME, Clock, Process, ReadyMade
from tidewheel.model.segmented_search import first_at_or_after
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, duration, format_duration

__all__ = ["DUPLICATES", "deduplicate"]

DUPLICATES = "duplicates"
"""The output to which all but the first of equal events go: none vanishes."""

_KEPT_AT = "kept_at"


@dataclass(frozen=True)
class _Deduplicate(ReadyMade):
    stable_name: ClassVar[str] = "deduplicate/1"
    stored: ClassVar[StoredFields] = StoredFields("columns", "horizon", "time", micros=("horizon",))

    columns: tuple[str, ...]
    horizon: Duration
    time: str

    __name__ = "deduplicate"
    output_column: ClassVar[str] = "__output"  # rows may have a column called output
    keeps_time: ClassVar[bool] = True

    @property
    def about(self) -> str:
        """What the function does, in plain words."""
        horizon = format_duration(self.horizon)
        return f"the first of equal rows; those up to {horizon} after it go to the output {DUPLICATES}"

    def __call__(self, events: pl.DataFrame, state: pl.DataFrame, clock: Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
        lengths = events.group_by(self.columns, maintain_order=True).len()
        stop = lengths["len"].cast(pl.Int64).cum_sum().to_numpy()
        begin = stop - lengths["len"].cast(pl.Int64).to_numpy()
        times = events[self.time].cast(pl.Int64).to_numpy()
        seen = lengths.join(state, on=self.columns, how="left", nulls_equal=True, maintain_order="left")[_KEPT_AT]
        # A kept event hides what comes within the horizon of it; the next one after that is kept again. One turn of
        # the loop finds the next kept event of all groups.
        kept_at = seen.cast(pl.Int64).fill_null(-(2**62)).to_numpy().copy()
        kept = np.zeros(len(times), dtype=np.bool_)
        place = first_at_or_after(times, begin, stop, kept_at + self.horizon + 1)
        while (found := place < stop).any():
            kept[place[found]] = True
            kept_at[found] = times[place[found]]
            place = first_at_or_after(times, place, stop, kept_at + self.horizon + 1)
        new = lengths.select(self.columns).with_columns(pl.Series(_KEPT_AT, kept_at, dtype=pl.Int64).cast(DATETIME))
        return events.with_columns(pl.when(~pl.Series(kept)).then(pl.lit(DUPLICATES)).alias(self.output_column)), new


def deduplicate(*columns: str, horizon: Duration | str, time: str = "event_time") -> Process:
    """A process that keeps, of events that are equal in these columns, the first in event time.

    Those at most `horizon` after it go to the output `duplicates`; a later one is kept again, and so on.

    >>> deduplicate("sensor", "reading", horizon="1 h")
    Process(deduplicate, keys=('sensor', 'reading'), state={'kept_at': Datetime(...)}, ttl='1 h', ...)
    """
    if not columns:
        raise DefinitionError('deduplicate needs the columns in which equal events are equal, like deduplicate("id")')
    micros = duration(horizon, what="horizon of deduplicate", bare=True)
    if micros <= 0:
        raise DefinitionError(f"horizon of deduplicate must be more than nothing, got {format_duration(micros)}")
    function = _Deduplicate(columns, micros, time)
    # Events up to the horizon past the kept one may still come; the last event is never before the kept one.
    state = {_KEPT_AT: DATETIME}
    return Process(function, keys=columns, state=state, ttl=micros, outputs=(DUPLICATES,), time=time)
