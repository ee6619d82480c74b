"""A morning of the simulated fleet, made once for all tests that look at it."""

from __future__ import annotations

from functools import lru_cache

import polars as pl

from tidewheel.model.time import Instant, instant
from tidewheel_transit.simulator import Simulator

MORNING: Instant = instant("2025-10-09T07:40:00+03:00")
NOON: Instant = instant("2025-10-09T12:00:00+03:00")


@lru_cache(maxsize=1)
def morning() -> pl.DataFrame:
    """Half an hour of the morning rush: about 280 vehicles and 550,000 events, in the order of arrival."""
    simulator = Simulator(start=MORNING, seed=7, rate=200)
    chunks = simulator.chunks(seconds=300.0)
    frame = pl.concat(next(chunks).frame for _ in range(6))
    return frame.with_columns(lag=(pl.col("arrival_time") - pl.col("event_time")).dt.total_microseconds() / 1e6)


@lru_cache(maxsize=1)
def history() -> pl.DataFrame:
    """The morning as a reader would want it: repeats left out, by vehicle and event time."""
    frame = morning().drop("lag", "arrival_time").unique(maintain_order=True)
    return frame.sort("operator", "vehicle", "event_time", maintain_order=True)


def positions() -> pl.DataFrame:
    """The history's positions, with the time, way and change since the vehicle's last one."""
    vehicle = ["operator", "vehicle"]
    return (
        history()
        .filter(pl.col("event") == "vp")
        .with_columns(
            seconds=pl.col("event_time").diff().over(vehicle).dt.total_milliseconds() / 1_000,
            north=pl.col("lat").diff().over(vehicle) * 111_320,
            east=pl.col("lon").diff().over(vehicle) * 55_300,
        )
        .with_columns(metres=(pl.col("north") ** 2 + pl.col("east") ** 2).sqrt())
    )
