"""The state of each partition between batches, and the partitions that have work in a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from tidewheel.errors import CheckpointError
from tidewheel.match_recognize.compile.define import PARTITION
from tidewheel.match_recognize.matching.matches import Integers
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.time import Instant

__all__ = ["COUNTS", "VERSION", "Batch", "Partitions", "State"]

VERSION = 1
"""Of the state's frames."""

State = Mapping[str, pl.DataFrame]
"""Frames by name: `version`; `rows`, those that open attempts need, in order; `partitions`, one row for each."""

COUNTS = ("__following", "__dropped", "__matched", "__number", "__place", "__reached")
"""What is counted of each partition."""
_DUE = "__due"


@dataclass(slots=True)
class Batch:
    """Rows of the partitions that have work, partition by partition, with their state.

    first, last: where a partition is in the frame. following: the row of it that the search goes on from. dropped: how
    many rows before its first were forgotten. matched: how many of its rows are in matches that already came out.
    place, reached: where its open attempt stood: at which instruction (from 1, 0 if it must be searched anew), and how
    many rows after its start.
    """

    frame: pl.DataFrame
    keys: pl.DataFrame
    first: Integers
    last: Integers
    following: Integers
    dropped: Integers
    matched: Integers
    number: Integers
    place: Integers
    reached: Integers
    idle_rows: pl.DataFrame | None = None
    idle: pl.DataFrame | None = None


class Partitions:
    """Puts batches together from state and events, and state from batches.

    behind: how many rows before the next start are kept. keep_idle: whether partitions without rows are remembered.
    """

    def __init__(
        self,
        keys: Mapping[str, pl.DataType],
        columns: Mapping[str, pl.DataType],
        *,
        behind: int,
        keep_idle: bool,
    ) -> None:
        self._keys, self._names = dict(keys), list(keys)
        self._columns, self._behind, self._keep_idle = dict(columns), behind, keep_idle

    def batch(self, state: State, events: pl.DataFrame, watermark: Instant | None) -> Batch:
        """Join the rows kept and the new ones, of partitions with new rows or with an attempt that has run out of
        time."""
        rows, known = self._read(state)
        idle_rows = idle = None
        ended = watermark is not None and watermark >= END_OF_TIME
        if known is not None and rows is not None and not ended and self._names:
            due = pl.col(_DUE) <= watermark if watermark is not None else pl.lit(False)
            fresh = events.select(self._names).unique()
            active = pl.concat([fresh, known.filter(due).select(self._names)]).unique()
            idle = known.join(active, on=self._names, how="anti", nulls_equal=True)
            idle_rows = rows.join(active, on=self._names, how="anti", nulls_equal=True, maintain_order="left")
            rows = rows.join(active, on=self._names, how="semi", nulls_equal=True, maintain_order="left")
        frame = events if rows is None else pl.concat([rows, events])
        if self._names:
            frame = frame.sort(self._names, maintain_order=True)
        elif known is not None and rows is not None and not len(frame):
            idle, idle_rows = known, rows
        frame, first, last = self._bounded(frame)
        keys = frame.select(self._names)[first] if self._names else pl.DataFrame()
        following, dropped, matched, number, place, reached = self._counts(keys, known, len(first))
        return Batch(frame, keys, first, last, following, dropped, matched, number, place, reached, idle_rows, idle)

    def _read(self, state: State) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        if not state:
            return None, None
        version = state["version"]["version"].item() if "version" in state else None
        if version != VERSION:
            raise CheckpointError(f"the state of a MATCH_RECOGNIZE is of version {version}, this knows {VERSION}")
        if dict(state["rows"].schema) != self._columns:
            raise CheckpointError(
                f"the state of a MATCH_RECOGNIZE has columns {dict(state['rows'].schema)}, the statement has "
                f"{self._columns}; start it with a new checkpoint"
            )
        return state["rows"], state["partitions"]

    def _bounded(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Integers, Integers]:
        """The frame with its partitions numbered, and where each begins and ends."""
        if not self._names or not len(frame):
            first = np.zeros(min(len(frame), 1), dtype=np.int64)
            return frame.with_columns(pl.lit(0, pl.UInt32).alias(PARTITION)), first, first + len(frame)
        changed = pl.any_horizontal([pl.col(name).ne_missing(pl.col(name).shift()) for name in self._names])
        begins = frame.select(begins=changed | (pl.int_range(pl.len()) == 0))["begins"]
        first = begins.arg_true().to_numpy().astype(np.int64)
        last = np.append(first[1:], len(frame))
        return frame.with_columns(begins.cast(pl.UInt32).cum_sum().alias(PARTITION)), first, last

    def _counts(self, keys: pl.DataFrame, known: pl.DataFrame | None, count: int) -> list[Integers]:
        if known is None or not len(known):
            return [np.zeros(count, dtype=np.int64) for _ in COUNTS]
        if not self._names:
            return [known[name].to_numpy().copy() if count else np.zeros(0, np.int64) for name in COUNTS]
        found = keys.join(known, on=self._names, how="left", nulls_equal=True, maintain_order="left")
        return [found[name].fill_null(0).to_numpy().copy() for name in COUNTS]

    def state(self, batch: Batch, following: Integers, due: Integers | None) -> dict[str, pl.DataFrame]:
        """The state for the next batch: rows from each partition's next start on, and as many before as are looked
        at."""
        kept = np.maximum(batch.first, following - self._behind)
        lengths = batch.last - batch.first
        rows = np.arange(len(batch.frame)) >= np.repeat(kept, lengths)
        frame = batch.frame.drop(PARTITION).filter(pl.Series(rows))
        gone = kept - batch.first
        counts = (
            following - kept,
            batch.dropped + gone,
            np.maximum(batch.matched - gone, 0),
            batch.number,
            batch.place,
            batch.reached,
        )
        columns = [pl.Series(name, values, dtype=pl.Int64) for name, values in zip(COUNTS, counts, strict=True)]
        columns.append(pl.Series(_DUE, [None] * len(kept) if due is None else due, dtype=pl.Int64))
        known = pl.DataFrame([*batch.keys.get_columns(), *columns])
        if not self._keep_idle:
            known = known.filter(pl.Series(batch.last > kept))
        if batch.idle_rows is not None and batch.idle is not None:
            frame = pl.concat([batch.idle_rows, frame])
            known = pl.concat([batch.idle, known])
        return {"version": pl.DataFrame({"version": [VERSION]}), "rows": frame, "partitions": known}
