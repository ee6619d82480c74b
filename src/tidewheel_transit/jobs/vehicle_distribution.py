"""vehicle-distribution: vehicles per cell."""

from __future__ import annotations

import tidewheel as tw
from tidewheel_transit.jobs.steps import in_cells
from tidewheel_transit.jobs.vehicles_by_cell import vehicles_by_cell
from tidewheel_transit.transit_pb2 import VehicleCount, VehiclePosition

__all__ = ["vehicle_distribution"]


@tw.job("vehicle-distribution", reads={"input.vehicle-position": VehiclePosition}, writes=VehicleCount, key="cell")
def vehicle_distribution(
    positions: tw.Stream,
    *,
    resolution: int = 9,
    size: str = "30 s",
    every: str = "5 s",
    lateness: str = "5 s",
    mode: str = "value",
    early: str = "",
) -> tw.Result:
    """Vehicles per cell: each vehicle once, at its latest position in the window."""
    return vehicles_by_cell(
        in_cells(positions, resolution), size=size, every=every, lateness=lateness, mode=mode, early=early
    )
