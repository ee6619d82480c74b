"""The state of a matcher between batches, as frames: partial matches, matches held back, and the events they hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from tidewheel.errors import CheckpointError
from tidewheel.model.columns import TIME
from tidewheel.patterns.compile.program import Program
from tidewheel.patterns.vectorized.measures import EVENTS, POSITIONS

__all__ = ["ID", "VERSION", "Frames", "MatchState", "Layout"]

VERSION = 2  # 1 knew the program's shape by Python's text of it
ID = "__id"
Frames = dict[str, pl.DataFrame]

_PATH = {EVENTS: pl.List(pl.Int64()), POSITIONS: pl.List(pl.Int32())}
RUN = {
    "__position": pl.Int32(),
    "__open": pl.Int64(),
    "__released": pl.Int64(),
    "__fresh": pl.Boolean(),
    "__start": pl.Int64(),
    "__start_time": pl.Int64(),
    "__last_time": pl.Int64(),
    "__due": pl.Int64(),
    **_PATH,
}
HELD = {"__start": pl.Int64(), "__at": pl.Int64(), "__by": pl.Int64(), **_PATH}


@dataclass(frozen=True)
class MatchState:
    """runs: a row per partial match; held: a row per match that is held back; events: all events in their paths.

    Events have identities that rise with their order; next_id is the one to give next.
    """

    runs: pl.DataFrame
    held: pl.DataFrame
    events: pl.DataFrame
    next_id: int


class Layout:
    """The frames of a program's state, for keys and columns of these types."""

    def __init__(self, program: Program, keys: Mapping[str, pl.DataType], columns: Mapping[str, pl.DataType]) -> None:
        self.runs = {**keys, **RUN}
        self.held = {**keys, **HELD}
        self.events = {ID: pl.Int64(), TIME: pl.Int64(), **columns}
        # Positions are numbers: they mean the same only in a program of the same shape.
        shape = [(position.stage, [edge.target for edge in position.edges]) for position in program.positions]
        self._shape = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]

    def read(self, frames: Mapping[str, pl.DataFrame] | None) -> MatchState:
        """Read the state; empty if there are no frames."""
        if not frames:
            return MatchState(pl.DataFrame(schema=self.runs), pl.DataFrame(schema=self.held), self.none, 0)
        meta = frames["meta"].row(0, named=True)
        if meta["version"] != VERSION:
            raise CheckpointError(
                f"the state of a pattern has version {meta['version']}, this release reads {VERSION}; "
                "use the release that wrote it, or start on a new checkpoint"
            )
        if meta["shape"] != self._shape:
            raise CheckpointError(
                "the state was written by a pattern of other stages; give the changed pattern a new name or version"
            )
        return MatchState(frames["runs"], frames["held"], frames["events"], meta["next_id"])

    def write(self, kept: MatchState) -> Frames:
        """Return the frames to keep; none if there is nothing open."""
        if not kept.runs.height and not kept.held.height:
            return {}
        meta = {"version": [VERSION], "shape": [self._shape], "next_id": [kept.next_id]}
        return {
            "meta": pl.DataFrame(meta, schema={"version": pl.Int32, "shape": pl.String, "next_id": pl.Int64}),
            "runs": kept.runs,
            "held": kept.held,
            "events": kept.events,
        }

    @property
    def none(self) -> pl.DataFrame:
        """A frame without events."""
        return pl.DataFrame(schema=self.events)


def needed(paths: Iterable[pl.DataFrame]) -> pl.Series:
    """The identities of the events in these paths, in order, each once."""
    found = pl.concat([frame[EVENTS].explode() for frame in paths])
    return found.drop_nulls().unique().sort()
