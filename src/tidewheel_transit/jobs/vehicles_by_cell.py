"""Vehicles counted by cell, each once in a window: what two jobs do with different cells."""

from __future__ import annotations

import tidewheel as tw
from tidewheel_transit.jobs.steps import VEHICLE, results_of, windowed

__all__ = ["vehicles_by_cell"]


def vehicles_by_cell(rows: tw.Stream, *, size: str, every: str, lateness: str, mode: str, early: str) -> tw.Result:
    """The number of vehicles whose latest row of the window is in each cell.

    The first stage finds the cell of each vehicle in each window, the second counts these by cell, in the same windows
    (a result of the first is of its window's last moment, from which the second knows the window) and with the same
    lateness, so that what one accepts the other does. The first retracts what it said before it says something else,
    whatever `mode` is asked for: when a late row moves a vehicle to another cell, the one cell is counted down and the
    other up, in the same batch, and no vehicle is counted twice. If a cell loses its last vehicle so, its result is
    retracted, whatever the mode (with deltas it is counted down to 0).

    Repeats change nothing here, since a vehicle is counted once anyway. Of rows of the same moment the one that came
    last is the latest.
    """
    cells = windowed(
        rows.select(*VEHICLE, "cell").key_by(*VEHICLE),
        tw.windows.sliding(size, every=every),
        lateness=lateness,
        early=early,
        mode="retracting",
    ).aggregate(cell=tw.agg.last("cell"))
    # The first stage has chosen when results come: the second passes them on in the same batch.
    at_once = tw.triggers.after_watermark(
        early=tw.triggers.each_batch() if early else None, late=tw.triggers.each_batch()
    )
    return (
        windowed(cells.key_by("cell"), results_of(size), lateness=lateness, early=early, mode=mode)
        .trigger(at_once)
        .aggregate(vehicles=tw.agg.count())
    )
