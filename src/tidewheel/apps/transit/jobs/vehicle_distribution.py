"""vehicle-distribution: vehicles per cell."""

from __future__ import annotations

from tidewheel.apps.transit.jobs.preparing import VEHICLE, in_cells, results_of, windowed
from tidewheel.apps.transit.transit_pb2 import VehicleCount, VehiclePosition
from tidewheel.engine.job import job
from tidewheel.engine.result import Result
from tidewheel.engine.stream import Stream
from tidewheel.model import aggregates as agg
from tidewheel.model import triggers, windows

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
    """Vehicles per cell: each vehicle once, at its latest position in the window.

    The first stage finds the cell of each vehicle in each window, the second counts these by cell, in the same windows
    (a result of the first is of its window's last moment, from which the second knows the window) and with the same
    lateness, so that what one accepts the other does. The first takes back what it said before it says something else,
    whatever `mode` is asked for: when a late position moves a vehicle to another cell, the one cell is counted down and
    the other up, in the same batch, and no vehicle is counted twice. A cell that loses its last vehicle gives 0.

    Repeats change nothing here, since a vehicle is counted once anyway. Of positions of the same moment the one that
    came last is the latest.
    """
    cells = windowed(
        in_cells(positions, resolution).select(*VEHICLE, "cell").key_by(*VEHICLE),
        windows.sliding(size, every=every),
        lateness=lateness,
        early=early,
        mode="retracting",
    ).aggregate(cell=agg.last("cell"))
    # The first stage has chosen when to tell something: the second tells it on in the same batch.
    at_once = triggers.after_watermark(early=triggers.each_batch() if early else None, late=triggers.each_batch())
    return (
        windowed(cells.key_by("cell"), results_of(size), lateness=lateness, early=early, mode=mode)
        .trigger(at_once)
        .aggregate(vehicles=agg.count())
    )
