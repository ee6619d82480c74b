"""Makes the map's land and water: GeoJSON of the Helsinki region, from OpenStreetMap's coastline.

    python web/scripts/land.py web/public/land.json

Needs `roaring-landmask`, whose vector shapes these are, and `numpy`. The shapes of the whole world are cut to the
region and simplified: more outside the part of it that people look at from near.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

BOX = (23.3, 59.35, 26.7, 60.9)
"""West, south, east, north of all."""

INNER = (24.2, 59.9, 25.7, 60.6)
"""Where it has to look good from near."""

KEEP = {True: (2.0, 500.0), False: (60.0, 150_000.0)}
"""Inside and outside of INNER: how far (m) a shore may be off, and the smallest island (m²). The mask's own points are
some 45 m apart; the page rounds the corners that are left (`web/src/map/shores.ts`)."""

METRES = (111_320 * math.cos(math.radians(60.2)), 111_320)
"""In a degree of longitude and of latitude, here."""

PLACES = [
    # name, longitude, latitude, rank (1 is seen from far away)
    ("Helsinki", 24.9414, 60.1710, 1),
    ("Espoo", 24.6559, 60.2052, 1),
    ("Vantaa", 25.0403, 60.2941, 1),
    ("Tallinn", 24.7536, 59.4250, 1),
    ("Porvoo", 25.6650, 60.3932, 1),
    ("Kauniainen", 24.7286, 60.2110, 3),
    ("Kerava", 25.1064, 60.4034, 2),
    ("Tuusula", 25.0270, 60.4024, 3),
    ("Järvenpää", 25.0898, 60.4740, 2),
    ("Hyvinkää", 24.8597, 60.6306, 2),
    ("Nurmijärvi", 24.8076, 60.4641, 2),
    ("Vihti", 24.3197, 60.4169, 2),
    ("Kirkkonummi", 24.4383, 60.1238, 2),
    ("Siuntio", 24.2270, 60.1380, 2),
    ("Sipoo", 25.2700, 60.3767, 2),
    ("Lohja", 24.0667, 60.2500, 2),
    ("Tapiola", 24.8050, 60.1757, 3),
    ("Leppävaara", 24.8130, 60.2190, 3),
    ("Matinkylä", 24.7390, 60.1600, 3),
    ("Espoonlahti", 24.6560, 60.1490, 3),
    ("Myyrmäki", 24.8540, 60.2610, 3),
    ("Tikkurila", 25.0440, 60.2925, 3),
    ("Pasila", 24.9330, 60.1990, 3),
    ("Malmi", 25.0110, 60.2510, 3),
    ("Itäkeskus", 25.0820, 60.2100, 3),
    ("Vuosaari", 25.1440, 60.2090, 3),
    ("Laajasalo", 25.0520, 60.1740, 3),
    ("Kontula", 25.0840, 60.2360, 4),
    ("Herttoniemi", 25.0320, 60.1950, 4),
    ("Kallio", 24.9500, 60.1840, 4),
    ("Kamppi", 24.9310, 60.1680, 4),
    ("Töölö", 24.9210, 60.1800, 4),
    ("Lauttasaari", 24.8750, 60.1600, 4),
    ("Munkkiniemi", 24.8760, 60.1985, 4),
    ("Kannelmäki", 24.8850, 60.2400, 4),
    ("Oulunkylä", 24.9670, 60.2290, 4),
    ("Viikki", 25.0230, 60.2270, 4),
    ("Jakomäki", 25.0790, 60.2610, 4),
    ("Korso", 25.0790, 60.3500, 4),
    ("Suomenlinna", 24.9850, 60.1435, 4),
    ("Santahamina", 25.0500, 60.1450, 4),
    ("Otaniemi", 24.8290, 60.1850, 4),
]
SEAS = [("Gulf of Finland", 24.95, 59.90), ("Gulf of Finland", 25.75, 60.02), ("Gulf of Finland", 24.05, 59.80)]


def world() -> Iterator[list[np.ndarray]]:
    """The land of the world, piece by piece: its shore, then the waters in it, as points (longitude, latitude)."""
    from roaring_landmask import LandmaskProvider, Shapes

    data = bytes(Shapes.wkb(LandmaskProvider.Osm))
    order, kind, pieces = struct.unpack_from("<BII", data)
    if (order, kind) != (1, 6):
        raise ValueError(f"land.py reads a little-endian MultiPolygon (1, 6), and the mask holds {order, kind}")
    at = 9
    for _ in range(pieces):
        (rings,) = struct.unpack_from("<I", data, at + 5)
        at += 9
        piece = []
        for _ in range(rings):
            (points,) = struct.unpack_from("<I", data, at)
            piece.append(np.frombuffer(data, "<f8", 2 * points, at + 4).reshape(-1, 2))
            at += 4 + 16 * points
        yield piece


def touches(ring: np.ndarray) -> bool:
    """Is some of it in the box, for all that its extent tells?"""
    (x, y), (u, v) = ring.min(axis=0), ring.max(axis=0)
    return bool(u > BOX[0] and x < BOX[2] and v > BOX[1] and y < BOX[3])


def clipped(ring: np.ndarray) -> np.ndarray:
    """What of a closed ring is in the box: cut along one side of it after the other (Sutherland and Hodgman)."""
    for axis, limit, sign in ((0, BOX[0], 1), (1, BOX[1], 1), (0, BOX[2], -1), (1, BOX[3], -1)):
        if len(ring) < 4:
            break
        here, there = ring[:-1], ring[1:]
        before, after = (here[:, axis] - limit) * sign, (there[:, axis] - limit) * sign
        crossing = (before >= 0) != (after >= 0)
        amount = np.divide(before, before - after, out=np.zeros(len(here)), where=crossing)
        cut = here + (there - here) * amount[:, None]
        cut[:, axis] = limit
        both = np.stack([here, cut], axis=1).reshape(-1, 2)
        kept = both[np.stack([before >= 0, crossing], axis=1).ravel()]
        ring = np.concatenate([kept, kept[:1]])
    return ring


def area(ring: np.ndarray) -> float:
    """In m²."""
    x, y = ring[:, 0] * METRES[0], ring[:, 1] * METRES[1]
    return abs(float(np.sum((x[:-1] - x[0]) * (y[1:] - y[0]) - (x[1:] - x[0]) * (y[:-1] - y[0])) / 2))


def simplified(ring: np.ndarray) -> np.ndarray:
    """As few points as keep the shore within what is allowed where it is (Douglas and Peucker)."""
    if len(ring) < 4:
        return ring
    points = ring * METRES
    within = np.where(_inner(ring), KEEP[True][0], KEEP[False][0])
    kept = np.zeros(len(ring), dtype=bool)
    far = int(np.argmax(np.sum((points - points[0]) ** 2, axis=1)))
    kept[[0, far, -1]] = True
    pending = [(0, far), (far, len(ring) - 1)]
    while pending:
        first, last = pending.pop()
        if last - first < 2:
            continue
        start, line = points[first], points[last] - points[first]
        rest = points[first + 1 : last] - start
        length = float(np.hypot(*line))
        if length > 0:
            along = np.clip(rest @ line / length**2, 0, 1)[:, None]
            off = np.hypot(*(rest - along * line).T)
        else:
            off = np.hypot(*rest.T)
        worst = int(np.argmax(off / within[first + 1 : last]))
        if off[worst] > within[first + 1 + worst]:
            middle = first + 1 + worst
            kept[middle] = True
            pending += [(first, middle), (middle, last)]
    return ring[kept]


def _inner(points: np.ndarray) -> np.ndarray:
    west, south, east, north = INNER
    return (points[:, 0] > west) & (points[:, 0] < east) & (points[:, 1] > south) & (points[:, 1] < north)


def region() -> Iterator[list[np.ndarray]]:
    """The land in the box, as few points as will do, without the smallest islands and ponds."""
    for piece in world():
        if not touches(piece[0]):
            continue
        shore, *waters = (simplified(clipped(ring)) for ring in piece if touches(ring))
        if worth(shore):
            yield [shore, *filter(worth, waters)]


def worth(ring: np.ndarray) -> bool:
    """Is it large enough to be drawn?"""
    return len(ring) > 3 and area(ring) > KEEP[bool(_inner(ring).any())][1]


def feature(geometry: dict[str, object], **properties: object) -> dict[str, object]:
    """A GeoJSON feature."""
    return {"type": "Feature", "properties": properties, "geometry": geometry}


def main(target: Path) -> None:
    """Writes the file."""
    found = list(region())
    coordinates = [[ring.round(5).tolist() for ring in rings] for rings in found]
    features = [feature({"type": "MultiPolygon", "coordinates": coordinates}, kind="land")]
    for name, x, y, rank in PLACES:
        features.append(feature({"type": "Point", "coordinates": [x, y]}, name=name, rank=rank))
    for name, x, y in SEAS:
        features.append(feature({"type": "Point", "coordinates": [x, y]}, name=name, rank=1, sea=True))
    collection = {
        "type": "FeatureCollection",
        "bbox": BOX,
        "attribution": "© OpenStreetMap contributors, ODbL 1.0",
        "features": features,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(collection, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
    points = sum(len(ring) for rings in found for ring in rings)
    print(f"{target}: {len(found)} pieces of land, {points} points, {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: land.py FILE")
    main(Path(sys.argv[1]))
