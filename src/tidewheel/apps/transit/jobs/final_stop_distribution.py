"""final-stop-distribution: where the vehicles are heading."""

from __future__ import annotations

from typing import Final

import polars as pl

from tidewheel.apps.transit.final_stop.definition import FINAL_STOP
from tidewheel.apps.transit.jobs.preparing import VEHICLE, on_journey
from tidewheel.apps.transit.jobs.vehicles_by_cell import vehicles_by_cell
from tidewheel.apps.transit.transit_pb2 import FinalStopCount, VehiclePosition
from tidewheel.engine.job import job
from tidewheel.engine.result import Result
from tidewheel.engine.stream import Stream
from tidewheel.model.geo import cell

__all__ = ["UNKNOWN_CELL", "final_stop_distribution"]

UNKNOWN_CELL: Final = 0
"""The cell of final stops that could not be looked up; H3 has none of this number."""


@job("final-stop-distribution", reads={"input.vehicle-position": VehiclePosition}, writes=FinalStopCount, key="cell")
def final_stop_distribution(
    positions: Stream,
    *,
    resolution: int = 9,
    size: str = "5 min",
    every: str = "5 s",
    lateness: str = "5 s",
    mode: str = "value",
    early: str = "",
) -> Result:
    """Vehicles per cell of their journey's final stop: each vehicle once, on its latest journey in the window.

    The final stop is looked up by route, direction, operating day and departure; an asker must run beside the job
    (`tidewheel ask final-stop`). A position waits for it as long as windows wait for late ones, so none comes too late
    by waiting. When that is over it counts under the cell 0, and the output `failed` tells why: the cells and the cell
    0 together are all vehicles, whatever becomes of the service.
    """
    journeys = on_journey(positions).select(*VEHICLE, *FINAL_STOP.keys)
    heading = journeys.lookup(FINAL_STOP, timeout=lateness).with_columns(
        cell=cell("final_lat", "final_lon", resolution=resolution).cast(pl.Int64).fill_null(UNKNOWN_CELL)
    )
    return vehicles_by_cell(heading, size=size, every=every, lateness=lateness, mode=mode, early=early)
