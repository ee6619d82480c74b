"""How much room open partial matches take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import polars as pl
import pyarrow as pa

from bench.streams import BATCHES, Dataset
from tidewheel.engine.operators.operator import BatchTime
from tidewheel.engine.runtime.flow import prepared
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries
from tidewheel.engine.streams.result import Result
from tidewheel.model.columns import TIME
from tidewheel.transport.events.codec import decode_columns

__all__ = ["Room", "room"]

_DELAY = 1_000_000


@dataclass(frozen=True)
class Room:
    """open: how many partial matches there are; stored: the bytes of their state as it is written (with the events that
    they hold); held: the same in memory."""

    open: int
    stored: int
    held: int


def room(data: Dataset, result: Result, *, batches: int = 2) -> Room:
    """After some batches, in this process: all keys in one key group."""
    [stage] = result.stages
    operator, entries = stage.operator(), MemoryEntries()
    before = None
    for batch in range(min(batches, BATCHES)):
        fetched = [
            part.records
            for part in data.log.read(data.topic, 0, batch * data.per_batch, end=(batch + 1) * data.per_batch)
        ]
        values = pa.concat_batches(fetched).column("value")
        decoded = decode_columns(data.kind, values, only=frozenset([*stage.schema]))
        rows = prepared(stage, cast(pl.DataFrame, pl.from_arrow(decoded.columns)))
        mark = cast(int, rows[TIME].max()) - _DELAY
        sound, _ = operator.split_late(rows, before)
        state = KeyGroupState(entries)
        operator.step(state.store(""), operator.pre_aggregate(sound, before), BatchTime(before, mark, mark))
        state.save()
        before = mark
    state = KeyGroupState(entries)
    kept = {name: frame for name in state.names("match/") if (frame := state.get(f"match/{name}")) is not None}
    return Room(
        open=kept["runs"].height,
        stored=sum(len(value) for (name,), (value,) in entries.values.items() if name.startswith("match/")),
        held=int(sum(frame.estimated_size() for frame in kept.values())),
    )
