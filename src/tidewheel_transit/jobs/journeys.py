"""journeys: each journey of a vehicle, as a session."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

import tidewheel as tw
from tidewheel_transit.jobs.steps import VEHICLE, on_journey, once, windowed
from tidewheel_transit.transit_pb2 import Journey, VehiclePosition

__all__ = ["journeys"]

_JOURNEY = (*VEHICLE, "operating_day", "start", "route", "direction")


@tw.job("journeys", reads={"input.vehicle-position": VehiclePosition}, writes=Journey, key=_JOURNEY)
def journeys(
    positions: tw.Stream, *, gap: str = "10 min", lateness: str = "1 min", mode: str = "value", early: str = ""
) -> tw.Result:
    """Each journey of a vehicle: when, how long, how far, how fast, with how many stops.

    A journey is a session of one vehicle with one operating day, departure time, route and direction: it is over when
    nothing came for the `gap`. Stops are served where the doors were open. Distance is by the odometer; what no
    position gave (speed, odometer) is missing. Positions that do not say which journey they are on are skipped, and
    counted as `without_journey`.
    """
    known = pl.all_horizontal(pl.col(name).is_not_null() for name in _JOURNEY)
    given = on_journey(positions).skip(without_journey=~known).select(
        *_JOURNEY, "speed", "odometer", served=pl.when(pl.col("doors") == 1).then(pl.col("stop"))
    )  # fmt: skip
    # An event is accepted as long as a session of it alone would be.
    single = once(given, behind=timedelta(microseconds=tw.time.duration(gap) + tw.time.duration(lateness)))
    return windowed(
        single.key_by(*_JOURNEY), tw.windows.session(gap=gap), lateness=lateness, early=early, mode=mode
    ).aggregate(
        first_time=tw.agg.min("event_time"),
        last_time=tw.agg.max("event_time"),
        duration=_span("event_time", (pl.col("high") - pl.col("low")).dt.total_microseconds() / 1_000_000),
        distance=_span("odometer", pl.col("high") - pl.col("low")),
        events=tw.agg.count(),
        highest_speed=tw.agg.max("speed"),
        stops_served=tw.agg.count_distinct("served"),
    )


def _span(column: str, finish: pl.Expr) -> tw.agg.Aggregate:
    """The difference of the highest and the lowest value."""
    return tw.agg.custom(
        partial={"low": pl.col(column).min(), "high": pl.col(column).max()},
        merge={"low": pl.col("low").min(), "high": pl.col("high").max()},
        finish=finish,
    )
