"""final-stop-distribution: where the vehicles are heading."""

from __future__ import annotations

from typing import Final

import polars as pl

import tidewheel as tw
from tidewheel_transit.final_stop.definition import FINAL_STOP
from tidewheel_transit.jobs.steps import VEHICLE, on_journey
from tidewheel_transit.jobs.vehicles_by_cell import vehicles_by_cell
from tidewheel_transit.transit_pb2 import FinalStopCount, VehiclePosition

__all__ = ["final_stop_distribution"]

# Where a vehicle was heading last may not be known, and the last value is never null. H3 has no cell of this number.
_NOT_KNOWN: Final = 0


@tw.job("final-stop-distribution", reads={"input.vehicle-position": VehiclePosition}, writes=FinalStopCount, key="cell")
def final_stop_distribution(
    positions: tw.Stream,
    *,
    resolution: int = 9,
    size: str = "5 min",
    every: str = "5 s",
    lateness: str = "5 s",
    mode: str = "value",
    early: str = "",
) -> tw.Result:
    """Vehicles per cell of their journey's final stop: each vehicle once, on its latest journey in the window.

    The final stop is looked up by route, direction, operating day and departure; a lookup worker must run beside the
    job (`tidewheel ask final-stop`). A position waits for it as long as windows wait for late ones, so none comes too
    late by waiting. Vehicles for which that is over are counted apart, in the output `unresolved`, and the output
    `failed` tells why: both counts together are all vehicles, whatever becomes of the service.
    """
    journeys = on_journey(positions).select(*VEHICLE, *FINAL_STOP.keys)
    heading = journeys.lookup(FINAL_STOP, timeout=lateness).with_columns(
        cell=tw.geo.cell("final_lat", "final_lon", resolution=resolution).cast(pl.Int64).fill_null(_NOT_KNOWN)
    )
    counted = vehicles_by_cell(heading, size=size, every=every, lateness=lateness, mode=mode, early=early)
    known = pl.when(pl.col("cell") != _NOT_KNOWN).then(pl.col("cell"))
    return counted.with_columns(cell=known).apart(unresolved=pl.col("cell").is_null())
