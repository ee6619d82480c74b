"""Geography: cells, and conditions on places for patterns."""

from __future__ import annotations

from tidewheel.model.geo import cell, check_resolution
from tidewheel.patterns.spatial import (
    Circle,
    Polygon,
    Region,
    away_from,
    circle,
    distance,
    distance_to,
    entering,
    inside,
    leaving,
    polygon,
    towards,
)

__all__ = [
    "Circle",
    "Polygon",
    "Region",
    "away_from",
    "cell",
    "check_resolution",
    "circle",
    "distance",
    "distance_to",
    "entering",
    "inside",
    "leaving",
    "polygon",
    "towards",
]
