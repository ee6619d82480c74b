"""Named regions from GeoJSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import tidewheel as tw

__all__ = ["Fence", "read_fences"]


@dataclass(frozen=True)
class Fence:
    """A named region: polygons, each a ring and the rings of its holes."""

    name: str
    polygons: tuple[tuple[tw.geo.Polygon, ...], ...]

    def contains(self, lat: pl.Expr, lon: pl.Expr) -> pl.Expr:
        """Whether a place is in one of the polygons and in none of its holes."""
        within = []
        for outer, *holes in self.polygons:
            inside = outer.contains(lat, lon)
            for hole in holes:
                inside = inside & ~hole.contains(lat, lon)
            within.append(inside)
        return pl.any_horizontal(within)


def read_fences(source: str) -> tuple[Fence, ...]:
    """The features of a GeoJSON FeatureCollection, from a file or from the text itself: polygons or multipolygons, each
    with a property `name`.

    >>> square = {"type": "Polygon", "coordinates": [[[24, 60], [25, 60], [25, 61], [24, 61], [24, 60]]]}
    >>> feature = {"type": "Feature", "properties": {"name": "square"}, "geometry": square}
    >>> fences = read_fences(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    >>> fences[0].name, pl.select(fences[0].contains(pl.lit(60.5), pl.lit(24.5))).item()
    ('square', True)
    """
    text, where = source, "geofences"
    if not source.lstrip().startswith("{"):
        where = f"geofences {source!r}"
        try:
            text = Path(source).read_text(encoding="utf-8")
        except OSError as error:
            raise tw.errors.DefinitionError(
                f"{where}: cannot be read ({error}); give a GeoJSON file, or its text"
            ) from None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise tw.errors.DefinitionError(f"{where}: is not JSON ({error}); give a GeoJSON FeatureCollection") from None
    features = found.get("features") if isinstance(found, dict) and found.get("type") == "FeatureCollection" else None
    if not isinstance(features, list) or not features:
        raise tw.errors.DefinitionError(f"{where}: expected a GeoJSON FeatureCollection with at least one feature")
    fences = tuple(_fence(feature, f"{where}, feature {number}") for number, feature in enumerate(features))
    names = [fence.name for fence in fences]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise tw.errors.DefinitionError(
            f"{where}: two features are named {twice!r}; make them one MultiPolygon, or rename one"
        )
    return fences


def _fence(feature: Any, where: str) -> Fence:
    try:
        name, geometry = feature["properties"]["name"], feature["geometry"]
        kind, coordinates = geometry["type"], geometry["coordinates"]
    except (KeyError, TypeError):
        raise tw.errors.DefinitionError(
            f'{where}: expected {{"type": "Feature", "properties": {{"name": …}}, "geometry": {{…}}}}, '
            f"got {json.dumps(feature)[:80]}"
        ) from None
    if not isinstance(name, str) or not name:
        raise tw.errors.DefinitionError(f"{where}: the property name must be text, got {name!r}")
    if kind not in ("Polygon", "MultiPolygon"):
        raise tw.errors.DefinitionError(f"{where} ({name}): expected a Polygon or a MultiPolygon, got {kind!r}")
    try:
        parts = [coordinates] if kind == "Polygon" else coordinates or ()
        polygons = tuple(tuple(_ring(ring) for ring in rings) for rings in parts if rings)
    except (TypeError, ValueError) as error:
        raise tw.errors.DefinitionError(
            f"{where} ({name}): its coordinates are not rings of [longitude, latitude]: {error}"
        ) from None
    if not polygons:
        raise tw.errors.DefinitionError(
            f"{where} ({name}): a {kind} needs coordinates, got {json.dumps(coordinates)[:80]}; "
            "give its rings, or take the feature out"
        )
    return Fence(name, polygons)


def _ring(ring: Any) -> tw.geo.Polygon:
    pointed = isinstance(ring, list) and all(isinstance(point, list) and len(point) >= 2 for point in ring)
    if not pointed or not ring:
        raise tw.errors.DefinitionError(
            f"a ring is like [[24.9, 60.1], [25.0, 60.1], [25.0, 60.2], [24.9, 60.1]], got {json.dumps(ring)[:80]}"
        )
    corners = [(point[1], point[0]) for point in ring]  # GeoJSON has the longitude first
    found = tw.geo.polygon(corners[:-1] if corners[0] == corners[-1] else corners)
    found.contains(pl.lit(0.0), pl.lit(0.0))  # refuses a ring around nothing here, where it is known whose it is
    return found
