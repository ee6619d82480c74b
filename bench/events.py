"""Events to measure with: vehicle positions from the simulator."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import type_name, types
from tidewheel.transport.log.log_types import records
from tidewheel_transit.simulator import Simulator
from tidewheel_transit.transit_pb2 import VehiclePosition

__all__ = ["TOPIC", "columns_of", "encoded", "positions"]

TOPIC = "input.vehicle-position"
_START = 1_760_000_000_000_000  # a weekday morning
_FIELDS = list(VehiclePosition.DESCRIPTOR.fields_by_name)


def positions(count: int) -> pl.DataFrame:
    """So many simulated positions in the order of arrival: event_time, arrival_time and the message's fields."""
    simulator = Simulator(start=_START, rate=20_000, rush_hours=False)
    parts: list[pl.DataFrame] = []
    have = 0
    while have < count:
        frame = simulator.advance(simulator.position + 5_000_000).frame.filter(pl.col("event") == "vp")
        parts.append(frame.select("event_time", "arrival_time", *_FIELDS))
        have += frame.height
    return pl.concat(parts).head(count).rechunk()


def columns_of(frame: pl.DataFrame) -> pa.RecordBatch:
    """The envelope's times and the message's fields as Arrow columns of the message's own types."""
    schema = types.schema(VehiclePosition)
    times = [frame[name].to_arrow() for name in ("event_time", "arrival_time")]
    arrays = [frame[name].to_arrow().cast(schema.field(name).type) for name in _FIELDS]
    return pa.RecordBatch.from_arrays([*times, *arrays], names=["event_time", "arrival_time", *_FIELDS])


def encoded(columns: pa.RecordBatch) -> pa.RecordBatch:
    """The records of the log, from what `columns_of` gives."""
    event_time = columns.column("event_time")
    values = codec.encode_columns(
        VehiclePosition,
        columns.select(_FIELDS),
        event_time=event_time,
        ingestion_time=columns.column("arrival_time"),
    )
    return records(values, event_times=event_time, type=type_name(VehiclePosition))
