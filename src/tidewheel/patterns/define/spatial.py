"""Conditions on places: how far from an event taken before, in a region, into it or out of it, towards or away.

Latitudes and longitudes are degrees (WGS 84), distances metres along great circles of a sphere of the earth's mean
radius: up to 0.5 % off the ellipsoid's. Borders of polygons are straight in degrees, which for regions of a city's or a
country's size is what maps draw.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.patterns.define.references import last, previous

__all__ = [
    "Circle",
    "Polygon",
    "Region",
    "away_from",
    "circle",
    "distance",
    "distance_to",
    "entering",
    "inside",
    "leaving",
    "polygon",
    "towards",
]

EARTH_RADIUS = 6_371_008.8
"""The mean radius, in metres."""

Place = tuple[float, float]
"""Latitude and longitude."""

_Point = tuple[pl.Expr, pl.Expr]


def _check_place(lat: float, lon: float) -> None:
    for value in (lat, lon):
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise DefinitionError(f"a place is a latitude and a longitude in degrees, got {(lat, lon)!r}")
    if not (-90 <= lat <= 90 and -180 <= lon <= 180):
        raise DefinitionError(f"a place has a latitude up to 90 and a longitude up to 180 degrees, got {(lat, lon)!r}")


@dataclass(frozen=True, slots=True)
class Circle:
    """All places within a radius (in metres) of a centre."""

    lat: float
    lon: float
    radius: float

    def __post_init__(self) -> None:
        _check_place(self.lat, self.lon)
        if not self.radius > 0:
            raise DefinitionError(f"a circle needs a radius of more than 0 metres, got {self.radius!r}")

    def contains(self, lat: pl.Expr, lon: pl.Expr) -> pl.Expr:
        """Whether a place is inside."""
        return _distance((lat, lon), (pl.lit(self.lat), pl.lit(self.lon))) < self.radius

    def __repr__(self) -> str:
        return f"circle({self.lat!r}, {self.lon!r}, radius={self.radius!r})"


@dataclass(frozen=True, slots=True)
class Polygon:
    """All places within a ring of corners; it may cross the 180th meridian, but not a pole."""

    corners: tuple[Place, ...]

    def __post_init__(self) -> None:
        if len(set(self.corners)) < 3:
            raise DefinitionError(f"a polygon needs three corners or more, got {list(self.corners)!r}")
        for lat, lon in self.corners:
            _check_place(lat, lon)
        east = [self._from_first(lon) for _, lon in self.corners]
        if max(east) - min(east) >= 180:
            raise DefinitionError("a polygon must be less than half the globe wide; make it of smaller ones")

    def contains(self, lat: pl.Expr, lon: pl.Expr) -> pl.Expr:
        """Whether a place is inside: its way to the east crosses the ring an odd number of times."""
        offset = lon - self.corners[0][1]
        east = (
            pl.when(offset >= 180)
            .then(offset - 360)
            .otherwise(pl.when(offset < -180).then(offset + 360).otherwise(offset))
        )
        crossings: pl.Expr | None = None
        for (a_lat, a_lon), (b_lat, b_lon) in zip(self.corners, (*self.corners[1:], self.corners[0]), strict=True):
            if a_lat == b_lat:
                continue
            a_east, b_east = self._from_first(a_lon), self._from_first(b_lon)
            slope = (b_east - a_east) / (b_lat - a_lat)
            beside = (lat >= min(a_lat, b_lat)) & (lat < max(a_lat, b_lat))
            crosses = beside & (east < (lat - a_lat) * slope + a_east)
            crossings = crosses if crossings is None else crossings != crosses
        if crossings is None:
            raise DefinitionError(f"a polygon needs corners of several latitudes, got {list(self.corners)!r}")
        return crossings

    def _from_first(self, lon: float) -> float:
        return (lon - self.corners[0][1] + 180) % 360 - 180

    def __repr__(self) -> str:
        return f"polygon({list(self.corners)!r})"


Region = Circle | Polygon


def circle(lat: float, lon: float, *, radius: float) -> Circle:
    """All places within a radius (in metres) of a centre.

    >>> circle(60.17, 24.94, radius=500)
    circle(60.17, 24.94, radius=500)
    """
    return Circle(lat, lon, radius)


def polygon(corners: Iterable[Place]) -> Polygon:
    """All places within a ring of corners, each a latitude and a longitude; the last is joined to the first.

    >>> square = polygon([(60.1, 24.9), (60.1, 25.0), (60.2, 25.0), (60.2, 24.9)])
    >>> pl.DataFrame({"lat": [60.15, 60.25], "lon": [24.95, 24.95]}).select(inside(square)).to_series().to_list()
    [True, False]
    """
    return Polygon(tuple((lat, lon) for lat, lon in corners))


def distance(a: tuple[pl.Expr, pl.Expr], b: tuple[pl.Expr, pl.Expr]) -> pl.Expr:
    """Metres between two places, each an expression for its latitude and one for its longitude.

    >>> helsinki, turku = (pl.lit(60.1699), pl.lit(24.9384)), (pl.lit(60.4518), pl.lit(22.2666))
    >>> round(pl.select(distance(helsinki, turku)).item() / 1000)
    150
    """
    return _distance(a, b)


def distance_to(target: str | Place, *, lat: str = "lat", lon: str = "lon") -> pl.Expr:
    """Metres from the event to the last event that a stage has taken, or to a fixed place.

    >>> from tidewheel.patterns.define.builder import pattern
    >>> bunching = pattern("ahead").followed_by("behind", distance_to("ahead") < 200, differs_in="vehicle")
    >>> bunching.columns()
    ('lat', 'lon', 'vehicle')
    """
    return _distance(_here(lat, lon), _target(target, lat, lon))


def inside(region: Region, *, lat: str = "lat", lon: str = "lon") -> pl.Expr:
    """Whether the event is in a region.

    >>> centre = circle(60.17, 24.94, radius=500)
    >>> pl.DataFrame({"lat": [60.171, 60.2], "lon": [24.94, 24.94]}).select(inside(centre)).to_series().to_list()
    [True, False]
    """
    return _checked(region).contains(*_here(lat, lon))


def entering(region: Region, *, lat: str = "lat", lon: str = "lon") -> pl.Expr:
    """Whether the event is in a region and the one taken just before was not.

    >>> from tidewheel.patterns.nfa.harness import Harness
    >>> from tidewheel.patterns.define.builder import pattern
    >>> harness = Harness(
    ...     pattern("out").next("in", entering(circle(60.17, 24.94, radius=500))),
    ...     {"lat": pl.Float64, "lon": pl.Float64},
    ... )
    >>> harness.add_all([(time, {"lat": lat, "lon": 24.94}) for time, lat in enumerate([60.19, 60.18, 60.171])])
    >>> harness.matches
    [{'out': [1], 'in': [2]}]
    """
    return inside(region, lat=lat, lon=lon) & ~region.contains(*_before(lat, lon))


def leaving(region: Region, *, lat: str = "lat", lon: str = "lon") -> pl.Expr:
    """Whether the event is not in a region and the one taken just before was.

    >>> from tidewheel.patterns.nfa.harness import Harness
    >>> from tidewheel.patterns.define.builder import pattern
    >>> harness = Harness(
    ...     pattern("in").next("out", leaving(circle(60.17, 24.94, radius=500))),
    ...     {"lat": pl.Float64, "lon": pl.Float64},
    ... )
    >>> harness.add_all([(time, {"lat": lat, "lon": 24.94}) for time, lat in enumerate([60.171, 60.18, 60.19])])
    >>> harness.matches
    [{'in': [0], 'out': [1]}]
    """
    return ~inside(region, lat=lat, lon=lon) & region.contains(*_before(lat, lon))


def towards(target: str | Place, *, since: str | None = None, lat: str = "lat", lon: str = "lon") -> pl.Expr:
    """Whether the event is nearer to a stage's last event, or to a place, than the one before was.

    since: the stage of the event before; without it, the one taken just before. For two vehicles that move towards
    each other: `a` of one, then `b` of the other, then `c` with `towards("b", since="a")`.

    >>> from tidewheel.patterns.nfa.harness import Harness
    >>> from tidewheel.patterns.define.builder import pattern
    >>> harness = Harness(
    ...     pattern("there").next("nearer", towards((60.17, 24.94))), {"lat": pl.Float64, "lon": pl.Float64}
    ... )
    >>> harness.add_all([(time, {"lat": lat, "lon": 24.94}) for time, lat in enumerate([60.18, 60.19, 60.175])])
    >>> harness.matches
    [{'there': [1], 'nearer': [2]}]
    """
    return distance_to(target, lat=lat, lon=lon) < _since(target, since, lat, lon)


def away_from(target: str | Place, *, since: str | None = None, lat: str = "lat", lon: str = "lon") -> pl.Expr:
    """Whether the event is farther from a stage's last event, or from a place, than the one before was.

    >>> from tidewheel.patterns.nfa.harness import Harness
    >>> from tidewheel.patterns.define.builder import pattern
    >>> harness = Harness(
    ...     pattern("here").next("farther", away_from((60.17, 24.94))), {"lat": pl.Float64, "lon": pl.Float64}
    ... )
    >>> harness.add_all([(time, {"lat": lat, "lon": 24.94}) for time, lat in enumerate([60.18, 60.19, 60.175])])
    >>> harness.matches
    [{'here': [0], 'farther': [1]}]
    """
    return distance_to(target, lat=lat, lon=lon) > _since(target, since, lat, lon)


def _since(target: str | Place, since: str | None, lat: str, lon: str) -> pl.Expr:
    before = _before(lat, lon) if since is None else _last(since, lat, lon)
    return _distance(before, _target(target, lat, lon))


def _here(lat: str, lon: str) -> _Point:
    return pl.col(lat), pl.col(lon)


def _before(lat: str, lon: str) -> _Point:
    return previous(lat), previous(lon)


def _last(stage: str, lat: str, lon: str) -> _Point:
    return last(f"{stage}.{lat}"), last(f"{stage}.{lon}")


def _target(target: str | Place, lat: str, lon: str) -> _Point:
    if isinstance(target, str):
        return _last(target, lat, lon)
    if not isinstance(target, tuple) or len(target) != 2:
        raise DefinitionError(f"expected the name of a stage or a place like (60.17, 24.94), got {target!r}")
    _check_place(*target)
    return pl.lit(float(target[0])), pl.lit(float(target[1]))


def _checked(region: Region) -> Region:
    if not isinstance(region, (Circle, Polygon)):
        raise DefinitionError(f"expected a region like circle(60.17, 24.94, radius=500), got {region!r}")
    return region


def _distance(a: _Point, b: _Point) -> pl.Expr:
    """Compute the distance by haversines, which stay exact for small distances."""
    (a_lat, a_lon), (b_lat, b_lon) = a, b
    north = ((b_lat - a_lat).radians() * 0.5).sin()
    east = ((b_lon - a_lon).radians() * 0.5).sin()
    return (north * north + a_lat.radians().cos() * b_lat.radians().cos() * (east * east)).sqrt().arcsin() * (
        2 * EARTH_RADIUS
    )
