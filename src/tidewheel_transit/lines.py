"""The lines of the simulated city as GeoJSON, for the map's background."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidewheel_transit.simulator.network import PATHS_PER_LINE, POINT_SPACING, degrees, network

__all__ = ["lines"]

_SPACING = 50.0
"""Metres between the points that are drawn."""


def lines() -> dict[str, Any]:
    """A FeatureCollection with a line for each line of the city, one way.

    >>> found = lines()["features"]
    >>> sorted(found[0]["properties"])
    ['designation', 'mode', 'operator', 'route']
    """
    city = network()
    step = max(1, round(_SPACING / POINT_SPACING))
    features = []
    for number, line in enumerate(city.lines):
        path = number * PATHS_PER_LINE
        first = int(city.path_points[path])
        last = first + int(city.path_length[path] / POINT_SPACING)
        points = np.unique(np.append(np.arange(first, last + 1, step), last))
        lat, lon = degrees(city.x[points], city.y[points])
        features.append(
            {
                "type": "Feature",
                "properties": {
                    "mode": line.mode,
                    "operator": line.operator,
                    "route": line.route,
                    "designation": line.designation,
                },
                "geometry": {
                    "type": "LineString",
                    "coordinates": np.stack([lon, lat], axis=1).round(5).tolist(),
                },
            }
        )
    return {"type": "FeatureCollection", "features": features}
