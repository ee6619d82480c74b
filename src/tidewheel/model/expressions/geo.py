"""Geography as polars expressions."""

from __future__ import annotations

import polars as pl
import polars_h3

from tidewheel.errors import DefinitionError

__all__ = ["cell", "check_resolution"]


def check_resolution(resolution: int) -> None:
    """Refuse an invalid H3 resolution.

    >>> check_resolution(16)
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: an H3 resolution is 0 (largest cells) to 15, got 16; 9 is about a city block
    """
    if not 0 <= resolution <= 15:
        raise DefinitionError(f"an H3 resolution is 0 (largest cells) to 15, got {resolution}; 9 is about a city block")


def cell(lat: str | pl.Expr, lon: str | pl.Expr, *, resolution: int) -> pl.Expr:
    """The H3 cell of a place in WGS 84 degrees; null where the place is null or is none on earth.

    >>> places = pl.DataFrame({"lat": [60.17, None, 91.0], "lon": [24.94, 24.94, 24.94]})
    >>> places.select(cell("lat", "lon", resolution=9)).to_series().to_list()
    [617294884152279039, None, None]
    """
    check_resolution(resolution)
    north = pl.col(lat) if isinstance(lat, str) else lat
    east = pl.col(lon) if isinstance(lon, str) else lon
    on_earth = north.is_between(-90, 90) & east.is_between(-180, 180)
    # polars-h3 fails on what is no place, so it must not see any.
    sound_north, sound_east = pl.when(on_earth).then(north), pl.when(on_earth).then(east)
    found: pl.Expr = polars_h3.latlng_to_cell(sound_north, sound_east, resolution)
    return found.alias("cell")
