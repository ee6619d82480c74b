"""Positions to put into logs."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import type_name
from tidewheel.transport.log.log_types import records
from tidewheel_transit.transit_pb2 import VehiclePosition

START = 1_760_000_000_000_000
"""The event time of the first position."""


def positions(numbers: range, *, journey: str = "journey", typed: bool = True) -> pa.RecordBatch:
    """One position for each number: of the vehicle of that number, a second after the one before."""
    numbered = np.array(numbers)
    columns = pl.DataFrame(
        {
            "mode": ["bus"] * len(numbered),
            "operator": numbered // 100_000 + 1,
            "vehicle": numbered % 100_000,
            "lat": 60.1 + numbered % 1_000 / 10_000,
            "lon": 24.8 + numbered % 777 / 5_000,
            "speed": numbered % 20,
            "journey": [journey] * len(numbered),
        }
    )
    times = pa.array(START + numbered * 1_000_000)
    values = codec.encode_columns(VehiclePosition, columns, event_time=times, ingestion_time=START)
    return records(values, event_times=times, type=type_name(VehiclePosition) if typed else None)
