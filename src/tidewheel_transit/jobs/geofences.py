"""geofences: vehicles that come into a region or leave it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import polars as pl

import tidewheel as tw
from tidewheel_transit.jobs.fences import read_fences
from tidewheel_transit.jobs.steps import VEHICLE, once, placed
from tidewheel_transit.transit_pb2 import FenceCrossing, VehiclePosition

__all__ = ["geofences"]

_TIME = pl.Datetime("us", "UTC")


def _feature(name: str, *corners: tuple[float, float]) -> dict[str, object]:
    ring = [[lon, lat] for lat, lon in (*corners, corners[0])]
    return {
        "type": "Feature",
        "properties": {"name": name},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }


_HELSINKI: Final = json.dumps(
    {
        "type": "FeatureCollection",
        "features": [
            _feature("centre", (60.1640, 24.9300), (60.1640, 24.9540), (60.1750, 24.9540), (60.1750, 24.9300)),
            _feature("Pasila", (60.1950, 24.9250), (60.1950, 24.9420), (60.2030, 24.9420), (60.2030, 24.9250)),
        ],
    }
)


# One position may leave a region and enter another: these results have the same time, and need keys of their own.
_KEY: Final = (*VEHICLE, "fence")


@tw.job("geofences", reads={"input.vehicle-position": VehiclePosition}, writes=FenceCrossing, key=_KEY)
def geofences(positions: tw.Stream, *, fences: str = _HELSINKI, forget: str = "6 h") -> tw.Result:
    """Vehicles that come into a named region or leave it, in event-time order; leaving tells the time spent inside.

    `fences` is GeoJSON, a file or the text itself: a FeatureCollection of named polygons. A vehicle's first known
    position gives no result, as nobody knows where it was before; when it is inside, the time inside counts from
    there. After a silence longer than `forget` a vehicle begins anew.
    """
    regions = read_fences(fences)
    place = pl.col("lat"), pl.col("lon")
    within = {_inside(number): region.contains(*place) for number, region in enumerate(regions)}
    seen = once(placed(positions).select(*VEHICLE, "mode", "lat", "lon")).with_columns(**within)
    names = tuple(region.name for region in regions)
    state: dict[str, Any] = {}
    for number in range(len(names)):
        state |= {f"was_{number}": pl.Boolean, f"since_{number}": _TIME}
    return seen.key_by(*VEHICLE).process(_Crossings(names), state=state, ttl=forget)


def _inside(number: int) -> str:
    return f"inside_{number}"


@dataclass(frozen=True)
class _Crossings:
    """Report every change of being inside; `since` is the first position inside, and null outside."""

    stable_name: ClassVar[str] = "geofences.crossings/1"

    names: tuple[str, ...]

    __name__ = "geofences"

    def __call__(self, events: pl.DataFrame, state: pl.DataFrame, clock: tw.Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
        rows = events.join(state, on=VEHICLE, how="left", maintain_order="left")
        first = pl.int_range(pl.len()).over(VEHICLE) == 0
        found: list[pl.DataFrame] = []
        news: list[pl.DataFrame] = []
        for number, name in enumerate(self.names):
            inside = pl.col(_inside(number))
            was = pl.when(first).then(pl.col(f"was_{number}")).otherwise(inside.shift(1).over(VEHICLE))
            entered = inside & ~was.fill_null(False)
            # Of each stay the first position: the latest entry so far, or that of an earlier batch.
            entry = pl.when(entered).then(pl.col("event_time")).forward_fill().over(VEHICLE)
            since = pl.coalesce(entry, pl.col(f"since_{number}"))
            seen = rows.with_columns(was=was, since=since)
            found.append(
                seen.filter((pl.col("was") != inside).fill_null(False)).select(
                    *VEHICLE,
                    "event_time",
                    "mode",
                    "lat",
                    "lon",
                    "since",
                    fence=pl.lit(name),
                    change=pl.when(inside).then(pl.lit("enter")).otherwise(pl.lit("leave")),
                    inside=pl.when(~inside).then(
                        (pl.col("event_time") - pl.col("since")).dt.total_microseconds() / 1_000_000
                    ),
                )
            )
            last = seen.group_by(VEHICLE, maintain_order=True).agg(
                inside.last().alias(f"was_{number}"),
                pl.when(inside).then(pl.col("since")).last().alias(f"since_{number}"),
            )
            news.append(last if not news else last.drop(VEHICLE))
        return pl.concat(found), pl.concat(news, how="horizontal")
