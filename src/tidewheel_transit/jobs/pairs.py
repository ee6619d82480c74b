"""Pairs of vehicles of one route: how far apart they are, sampled every so often."""

from __future__ import annotations

from typing import Final

import polars as pl

import tidewheel as tw
from tidewheel_transit.jobs.steps import VEHICLE, placed

__all__ = ["PAIR", "pairs"]

_ROUTE = ("route", "direction")
_OTHER = ("other_operator", "other_vehicle")
_SAMPLE = pl.Struct({"operator": pl.Int32, "vehicle": pl.Int32, "lat": pl.Float64, "lon": pl.Float64})

PAIR: Final = (*_ROUTE, *VEHICLE, *_OTHER)
"""What makes a pair: of two vehicles the one with the smaller operator, or number, comes first."""


def pairs(positions: tw.Stream, *, every: str) -> tw.Stream:
    """The distance of every two vehicles of a route and direction, in metres: each vehicle's last position of a window
    is its sample, and two samples of one window make a pair, at the window's last moment.

    Positions that name no route or direction are skipped, and counted as `without_route`. What comes when its window is
    over is late: those who follow the pairs can retract nothing.
    """
    known = pl.all_horizontal(pl.col(name).is_not_null() for name in _ROUTE)
    samples = (
        placed(positions)
        .skip(without_route=~known)
        .select(*_ROUTE, *VEHICLE, place=pl.struct("lat", "lon"))
        .key_by(*_ROUTE, *VEHICLE)
        .window(tw.windows.tumbling(every))
        .aggregate(place=tw.agg.last("place"))
        .select(*_ROUTE, *VEHICLE, lat=pl.col("place").struct.field("lat"), lon=pl.col("place").struct.field("lon"))
    )
    state = {"at": pl.Datetime("us", "UTC"), "samples": pl.List(_SAMPLE)}
    return samples.key_by(*_ROUTE).process(_paired, state=state, ttl=every)


def _paired(events: pl.DataFrame, state: pl.DataFrame, clock: tw.Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Each sample with every one of the same route and moment that came before it; those of the last moment are kept,
    since others of that moment may follow."""
    fields = [field.name for field in _SAMPLE.fields]
    kept = state.filter(pl.col("samples").is_not_null()).explode("samples").unnest("samples")
    kept = kept.select(*_ROUTE, *fields, event_time="at", new=pl.lit(False))
    new = events.select(*_ROUTE, *fields, "event_time", new=pl.lit(True))
    rows = pl.concat([kept, new]).with_row_index("place")
    both = rows.join(rows, on=[*_ROUTE, "event_time"], suffix="_2", nulls_equal=True, maintain_order="left_right")
    both = both.filter((pl.col("place") < pl.col("place_2")) & pl.col("new_2"))
    return _ordered(both), _last_moment(rows, fields)


def _ordered(both: pl.DataFrame) -> pl.DataFrame:
    """Order each pair, the first vehicle first."""
    one, two = (pl.col("operator"), pl.col("vehicle")), (pl.col("operator_2"), pl.col("vehicle_2"))
    first = (one[0] < two[0]) | ((one[0] == two[0]) & (one[1] < two[1]))
    apart = tw.geo.distance((pl.col("lat"), pl.col("lon")), (pl.col("lat_2"), pl.col("lon_2")))
    return both.select(
        *_ROUTE,
        operator=pl.when(first).then(one[0]).otherwise(two[0]),
        vehicle=pl.when(first).then(one[1]).otherwise(two[1]),
        other_operator=pl.when(first).then(two[0]).otherwise(one[0]),
        other_vehicle=pl.when(first).then(two[1]).otherwise(one[1]),
        distance=apart,
        event_time="event_time",
    )


def _last_moment(rows: pl.DataFrame, fields: list[str]) -> pl.DataFrame:
    latest = rows.filter(pl.col("event_time") == pl.col("event_time").max().over(_ROUTE))
    return latest.group_by(_ROUTE, maintain_order=True).agg(at=pl.col("event_time").first(), samples=pl.struct(fields))
