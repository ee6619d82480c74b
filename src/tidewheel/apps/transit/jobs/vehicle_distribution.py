"""vehicle-distribution: vehicles per cell."""

from __future__ import annotations

from tidewheel.apps.transit.jobs.preparing import in_cells
from tidewheel.apps.transit.jobs.vehicles_by_cell import vehicles_by_cell
from tidewheel.apps.transit.transit_pb2 import VehicleCount, VehiclePosition
from tidewheel.engine.job import job
from tidewheel.engine.result import Result
from tidewheel.engine.stream import Stream

__all__ = ["vehicle_distribution"]


@job("vehicle-distribution", reads={"input.vehicle-position": VehiclePosition}, writes=VehicleCount, key="cell")
def vehicle_distribution(
    positions: Stream,
    *,
    resolution: int = 9,
    size: str = "30 s",
    every: str = "5 s",
    lateness: str = "5 s",
    mode: str = "value",
    early: str = "",
) -> Result:
    """Vehicles per cell: each vehicle once, at its latest position in the window."""
    return vehicles_by_cell(
        in_cells(positions, resolution), size=size, every=every, lateness=lateness, mode=mode, early=early
    )
