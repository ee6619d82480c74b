"""vehicle-cell: each vehicle position with its H3 cell."""

from __future__ import annotations

import tidewheel as tw
from tidewheel_transit.jobs.steps import in_cells
from tidewheel_transit.transit_pb2 import VehicleCell, VehiclePosition

__all__ = ["vehicle_cell"]


@tw.job("vehicle-cell", reads={"input.vehicle-position": VehiclePosition}, writes=VehicleCell)
def vehicle_cell(positions: tw.Stream, *, resolution: int = 9) -> tw.Result:
    """Each vehicle position with its H3 cell.

    Positions between journeys and positions without a place are skipped, and counted.
    """
    columns = ["mode", "operator", "vehicle", "lat", "lon", "speed", "heading", "route", "direction", "delay"]
    return in_cells(positions, resolution).select("cell", *columns).key_by("operator", "vehicle").each_row()
