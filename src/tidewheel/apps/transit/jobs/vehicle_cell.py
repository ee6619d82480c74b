"""vehicle-cell: each vehicle position with its H3 cell."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tidewheel.apps.transit.transit_pb2 import VehicleCell, VehiclePosition
from tidewheel.engine.geo import cell
from tidewheel.engine.job import job

__all__ = ["vehicle_cell"]


@job(
    "vehicle-cell",
    reads={"input.vehicle-position": VehiclePosition},
    writes=VehicleCell,
    key=("operator", "vehicle"),
)
def vehicle_cell(positions: DataFrame, *, resolution: int = 9) -> DataFrame:
    """Each vehicle position with its H3 cell.

    Positions between journeys (deadruns) and positions without coordinates are left out, and counted.
    """
    placed = positions.withColumn("cell", cell("lat", "lon", resolution=resolution))
    on_journey = f.col("journey") != "deadrun"
    return (
        placed.observe(
            "vehicle-cell",
            f.count_if(~on_journey).alias("deadruns left out"),
            f.count_if(on_journey & f.col("cell").isNull()).alias("without a place"),
        )
        .where(on_journey & f.col("cell").isNotNull())
        .select(
            "event_time",
            f.col("_clock").alias("ingestion_time"),
            "cell",
            "mode",
            "operator",
            "vehicle",
            "lat",
            "lon",
            "speed",
            "heading",
            "route",
            "direction",
            "delay",
        )
    )
