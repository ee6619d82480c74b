"""vehicle-cell: each vehicle position with its H3 cell."""

from __future__ import annotations

import polars as pl

import tidewheel as tw
from tidewheel.apps.transit.transit_pb2 import VehicleCell, VehiclePosition

__all__ = ["vehicle_cell"]


@tw.job("vehicle-cell", reads={"input.vehicle-position": VehiclePosition}, writes=VehicleCell)
def vehicle_cell(positions: tw.Stream, *, resolution: int = 9) -> tw.Result:
    """Each vehicle position with its H3 cell.

    Positions between journeys (deadruns) and positions without coordinates are left out.
    """
    columns = ["mode", "operator", "vehicle", "lat", "lon", "speed", "heading", "route", "direction", "delay"]
    return (
        positions.filter(pl.col("journey") != "deadrun")
        .with_columns(cell=tw.geo.cell("lat", "lon", resolution=resolution))
        .filter(pl.col("cell").is_not_null())
        .select("cell", *columns)
        .key_by("operator", "vehicle")
        .each_row()
    )
