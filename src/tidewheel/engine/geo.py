"""Geography as Spark columns."""

from __future__ import annotations

import polars as pl
import polars_h3
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f

from tidewheel.errors import DefinitionError

__all__ = ["cell"]


def cell(lat: str | Column, lon: str | Column, *, resolution: int) -> Column:
    """The H3 cell (as a long) of a place in WGS 84 degrees; null where the place is null or is none on earth."""
    if not 0 <= resolution <= 15:
        raise DefinitionError(f"an H3 resolution is 0 (largest cells) to 15, got {resolution}; 9 is about a city block")

    def cells(lats: pa.Array, lons: pa.Array) -> pa.Array:
        places = pl.DataFrame({"lat": pl.from_arrow(lats), "lon": pl.from_arrow(lons)})
        on_earth = pl.col("lat").is_between(-90, 90) & pl.col("lon").is_between(-180, 180)
        found = places.select(
            pl.when(on_earth).then(polars_h3.latlng_to_cell("lat", "lon", resolution)).otherwise(None).cast(pl.Int64)
        )
        return found.to_series().to_arrow()

    column: Column = f.arrow_udf(cells, "bigint")(lat, lon)  # type: ignore[attr-defined]  # missing in its declarations
    return column
