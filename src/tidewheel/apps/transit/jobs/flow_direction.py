"""flow-direction: where vehicles go that leave a cell."""

from __future__ import annotations

import polars as pl
import polars_h3

from tidewheel.apps.transit.jobs.preparing import VEHICLE, in_cells, once, windowed
from tidewheel.apps.transit.transit_pb2 import CellFlow, VehiclePosition
from tidewheel.engine.job import job
from tidewheel.engine.result import Result
from tidewheel.engine.stream import Stream
from tidewheel.model import aggregates as agg
from tidewheel.model import windows
from tidewheel.model.custom_aggregate import Custom

__all__ = ["flow_direction"]


@job("flow-direction", reads={"input.vehicle-position": VehiclePosition}, writes=CellFlow, key="cell")
def flow_direction(
    positions: Stream,
    *,
    resolution: int = 9,
    size: str = "5 min",
    every: str = "5 s",
    lateness: str = "5 s",
    mode: str = "value",
    early: str = "",
    forget: str = "1 h",
) -> Result:
    """Where vehicles go that leave a cell: the neighbour that most crossed to, how many did, and how many left in all.

    A crossing is a vehicle's change to a neighbouring cell between two successive positions in event time, at the time
    of the second; jumps further than a neighbour are none. Of neighbours with as many crossings the smaller cell id
    wins. After a silence longer than `forget` a vehicle begins anew.

    Which positions are successive is known when the watermark has passed them, so positions behind the watermark are
    late, however long `lateness` keeps the windows open.
    """
    seen = once(in_cells(positions, resolution).select(*VEHICLE, "cell"))
    steps = seen.key_by(*VEHICLE).previous("cell", prefix="left_", ttl=forget)
    moved = steps.filter(pl.col("left_cell") != pl.col("cell"))
    crossings = moved.filter(polars_h3.are_neighbor_cells("left_cell", "cell")).select(
        cell="left_cell", neighbour="cell"
    )
    return windowed(
        crossings.key_by("cell"), windows.sliding(size, every=every), lateness=lateness, early=early, mode=mode
    ).aggregate(
        # Of the most frequent neighbours the least; a cell has six, so this is short.
        neighbour=_of_neighbours(pl.element().mode().min()),
        crossings=_of_neighbours(pl.element().unique_counts().max().cast(pl.Int64)),
        total=agg.count(),
    )


def _of_neighbours(what: pl.Expr) -> Custom:
    """An aggregate over all neighbours that were crossed to."""
    return agg.custom(
        partial={"all": pl.col("neighbour").implode()},
        merge={"all": pl.col("all").explode().implode()},
        finish=pl.col("all").list.eval(what).list.first(),
    )
