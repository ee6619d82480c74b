"""emergency-stop: vehicles that brake hard, by a pattern."""

from __future__ import annotations

from typing import Final

import polars as pl

import tidewheel as tw
from tidewheel_transit.jobs.steps import VEHICLE, on_journey, once
from tidewheel_transit.transit_pb2 import EmergencyStop, VehiclePosition

__all__ = ["USED", "emergency_stop"]

USED: Final = (*VEHICLE, "mode", "speed", "acc", "lat", "lon")
"""The columns that an emergency stop is found by, and reported with."""


@tw.job(
    "emergency-stop",
    reads={"input.vehicle-position": VehiclePosition},
    writes=EmergencyStop,
    key=("operator", "vehicle"),
)
def emergency_stop(
    positions: tw.Stream, *, fast: float = 10.0, standing: float = 1.0, within: str = "10 s"
) -> tw.Result:
    """Vehicles that stop from speed within seconds: how much slower, how hard, where and when.

    A position at `fast` m/s or more, then braking ones, at least one and all that follow each other, then one below
    `standing` m/s, each the next of its vehicle in event time, the last less than `within` after the first. A vehicle
    that still brakes does not stand yet, however slow it is. The search goes on behind a stop that was found. A
    position without speed or acceleration satisfies no condition on it; one without a place does not matter.
    """
    hard_stop = (
        tw.pattern("fast", pl.col("speed") >= fast)
        .next("braking", pl.col("acc") < 0).one_or_more().consecutive().greedy()
        .next("standing", pl.col("speed") < standing)
        .within(within)
        .after_match("skip past last")
    )  # fmt: skip
    return (
        once(on_journey(positions).select(*USED))
        .key_by(*VEHICLE)
        .match(
            hard_stop,
            measures={
                "mode": tw.measures.last("standing.mode"),
                "speed_difference": tw.measures.first("fast.speed") - tw.measures.last("standing.speed"),
                "strongest_deceleration": tw.measures.min("braking.acc"),
                "lat": tw.measures.last("standing.lat"),
                "lon": tw.measures.last("standing.lon"),
            },
        )
    )
