"""Geography: cells, and conditions on places for patterns."""

from __future__ import annotations

from tidewheel.model.expressions.geo import cell
from tidewheel.patterns.define.spatial import (
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
    "circle",
    "distance",
    "distance_to",
    "entering",
    "inside",
    "leaving",
    "polygon",
    "towards",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports
