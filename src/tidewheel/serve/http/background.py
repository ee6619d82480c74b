"""The background of the map: land and water, the user's lines, tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tidewheel.errors import DefinitionError

__all__ = ["Background"]

_LAND = "Land and water © OpenStreetMap contributors (ODbL)"


@dataclass(frozen=True, slots=True)
class Background:
    """The background of the map."""

    lines: Mapping[str, Any] | None = None
    """GeoJSON that is drawn right under the layers."""
    tiles: str | None = None
    """The address of a map, with {z}, {x} and {y}."""
    attribution: str | None = None
    """Whose tiles they are."""
    view: tuple[float, float, float] = (24.94, 60.2, 10.5)
    """What the page shows first: longitude, latitude and zoom."""

    def __post_init__(self) -> None:
        _check_tiles(self.tiles)

    def description(self) -> dict[str, Any]:
        """Describe it as JSON, for the page."""
        lon, lat, zoom = self.view
        host = str(urlsplit(self.tiles).hostname).removeprefix("{s}.") if self.tiles else None
        tiles = self.attribution or (host and f"Tiles from {host}")
        return {
            "land": "/land.json",
            "lines": self.lines,
            "tiles": self.tiles,
            "attribution": " · ".join(filter(None, [tiles, _LAND])),
            "view": {"lon": lon, "lat": lat, "zoom": zoom},
        }


def _check_tiles(tiles: str | None) -> None:
    if tiles is None:
        return
    try:
        parts = urlsplit(tiles)
        good = parts.scheme in ("http", "https") and parts.netloc
    except ValueError:
        good = False
    if not good or not all(part in tiles for part in ("{z}", "{x}", "{y}")) or any(c in tiles for c in " ;,\"'\r\n"):
        raise DefinitionError(f"tiles is an address like https://tile.example.org/{{z}}/{{x}}/{{y}}.png, got {tiles!r}")
