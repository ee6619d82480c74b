"""flow-direction: where vehicles go that leave a cell."""

from __future__ import annotations

from typing import Final

import polars as pl
import polars_h3

import tidewheel as tw
from tidewheel_transit.jobs.steps import VEHICLE, in_cells, once, windowed
from tidewheel_transit.transit_pb2 import CellFlow, VehiclePosition

__all__ = ["flow_direction"]


@tw.job("flow-direction", reads={"input.vehicle-position": VehiclePosition}, writes=CellFlow, key="cell")
def flow_direction(
    positions: tw.Stream,
    *,
    resolution: int = 9,
    size: str = "5 min",
    every: str = "5 s",
    lateness: str = "5 s",
    mode: str = "value",
    early: str = "",
    forget: str = "1 h",
) -> tw.Result:
    """Where vehicles go that leave a cell: the neighbour that most crossed to, how many did, and how many left in all.

    A crossing is a vehicle's change to a neighbouring cell between two successive positions in event time, at the time
    of the second; jumps further than a neighbour are none. Of neighbours with as many crossings the smaller cell id
    wins. After a silence longer than `forget` a vehicle begins anew.

    A position that comes up to `lateness` behind the watermark takes its place between those before and after it: the
    crossing between these is retracted, and those to and from it count instead. Later ones are late.
    """
    seen = once(in_cells(positions, resolution).select(*VEHICLE, "cell"), behind=lateness)
    steps = seen.key_by(*VEHICLE).previous("cell", prefix="left_", ttl=forget, lateness=lateness)
    moved = steps.filter(pl.col("left_cell") != pl.col("cell"))
    crossings = (
        moved.filter(polars_h3.are_neighbor_cells("left_cell", "cell"))
        .select(near=_near("left_cell"), cell="left_cell", neighbour="cell")
        .with_columns(**{name: pl.when(place == pl.col("neighbour")).then(1) for name, place in _PLACES.items()})
    )
    counts = windowed(
        crossings.key_by("cell"), tw.windows.sliding(size, every=every), lateness=lateness, early=early, mode=mode
    ).aggregate(total=tw.agg.count(), **{name: tw.agg.count(name) for name in _PLACES})
    most = pl.max_horizontal(*_PLACES)
    first = pl.coalesce(pl.when(pl.col(name) == most).then(place) for name, place in _PLACES.items())
    return (
        counts.with_columns(near=_near("cell"), crossings=most)
        .with_columns(neighbour=first)
        .select(
            *("cell", "window_start", "window_end", "neighbour", "crossings", "total"),
            *("pane_index", "pane_timing", "pane_first", "pane_last", "retraction"),
        )
    )


# Each neighbour is counted by itself, by its place among the six: what was counted can be subtracted from a number,
# while a list of all crossings would have to be searched for it.
_PLACES: Final = {f"to_{place}": pl.col("near").list.get(place, null_on_oob=True) for place in range(7)}


def _near(cell: str) -> pl.Expr:
    """A cell and its neighbours, by their ids."""
    disk: pl.Expr = polars_h3.grid_disk(pl.col(cell).cast(pl.UInt64), 1)
    # The polars-h3 that Python 3.10 gets gives lists, too, but says that they were numbers.
    return disk.cast(pl.List(pl.UInt64)).list.drop_nulls().list.sort().cast(pl.List(pl.Int64))
