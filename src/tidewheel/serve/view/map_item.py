"""Items: results as clients get them, encoded once for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from tidewheel.model.time import Instant
from tidewheel.serve.layers.layer import Layer
from tidewheel.serve.view.decode import fields_of

__all__ = ["Item", "Pool", "described", "encode", "items_of", "text_of"]

_encoder = msgspec.json.Encoder()
encode = _encoder.encode
_NOWHERE = math.nan

Mask = npt.NDArray[np.bool_]


class Item:
    """A result that is shown. Times are in microseconds; `raw` is what clients get."""

    __slots__ = ("expires", "filters", "k", "lat", "lon", "raw", "t", "window")

    def __init__(
        self,
        k: str,
        t: Instant,
        expires: Instant,
        window: tuple[Instant | None, Instant | None],
        place: tuple[float, float],
        filters: tuple[tuple[str, ...], ...],
        raw: bytes,
    ) -> None:
        self.k = k
        self.t = t
        self.expires = expires
        self.window = window
        self.lon, self.lat = place
        self.filters = filters
        self.raw = raw

    def __repr__(self) -> str:
        return f"<Item {self.raw.decode()}>"


def text_of(value: Any) -> str:
    """A value as filters name it; one that is not set is empty.

    >>> text_of(True), text_of(55), text_of("55"), text_of(2.0), text_of(None)
    ('true', '55', '55', '2', '')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def described(layer: Layer, row: Mapping[str, Any], expires: Instant | None) -> dict[str, Any]:
    """A row in the form that the page expects."""
    fields = fields_of(row)
    item: dict[str, Any] = {"k": row["@k"], "t": row["@t"] // 1_000}
    if expires is not None:
        item["x"] = expires // 1_000
    if row["@place"] is not None:
        if row["@to"] is not None:
            item["e"] = [row["@place"], row["@to"]]
        elif layer.geometry.__struct_config__.tag == "cell":
            item["c"] = row["@place"]
    elif row["@lon"] is not None:
        item["p"] = [row["@lon"], row["@lat"]]
        if row["@heading"] is not None:
            item["h"] = row["@heading"]
    item["v"] = None if layer.value is None else fields.get(layer.value.field)
    if row["@timing"] is not None:
        item["timing"] = row["@timing"]
    item["f"] = fields
    return item


def items_of(layer: Layer, frame: pl.DataFrame, *, expiry: int) -> list[Item]:
    """Rows as items that expire so many microseconds after their arrival."""
    items = []
    filters = [layer.filtered_fields(name) for name in layer.filters]
    for row in frame.to_dicts():
        expires = row["@arrival"] + expiry
        lon, lat = row["@lon"], row["@lat"]
        items.append(
            Item(
                row["@k"],
                row["@t"],
                expires,
                (row["@start"], row["@end"]),
                (_NOWHERE, _NOWHERE) if lon is None else (lon, lat),
                tuple(tuple(text_of(row.get(field)) for field in fields) for fields in filters),
                encode(described(layer, row, expires)),
            )
        )
    return items


class Pool:
    """Items side by side, to be chosen from by many subscriptions: places are compared as arrays."""

    def __init__(self, items: Sequence[Item | None]) -> None:
        self.items = items
        self._there: Mask | None = None
        self._lon: npt.NDArray[np.float64] | None = None
        self._lat: npt.NDArray[np.float64] | None = None
        self._places: dict[int, dict[str, npt.NDArray[np.int64]]] = {}
        """Of each filter: where each value is."""

    @property
    def there(self) -> Mask:
        """Which of them are items at all."""
        if self._there is None:
            self._there = np.fromiter((item is not None for item in self.items), np.bool_, len(self.items))
        return self._there

    def within(self, region: tuple[float, float, float, float]) -> Mask:
        """Which are in the region, or nowhere: no region leaves those out."""
        if self._lon is None or self._lat is None:
            count = len(self.items)
            self._lon = np.fromiter((_NOWHERE if i is None else i.lon for i in self.items), np.float64, count)
            self._lat = np.fromiter((_NOWHERE if i is None else i.lat for i in self.items), np.float64, count)
        west, south, east, north = region
        lon, lat = self._lon, self._lat
        mask: Mask = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north) | np.isnan(lon)
        return mask & self.there

    def having(self, position: int, values: frozenset[str]) -> Mask:
        """Which have one of the values in any field of the filter of this number."""
        if position not in self._places:
            self._places[position] = self._index(position)
        places = self._places[position]
        mask = np.zeros(len(self.items), np.bool_)
        for value in values:
            if value in places:
                mask[places[value]] = True
        return mask

    def _index(self, position: int) -> dict[str, npt.NDArray[np.int64]]:
        """Index the items once for all subscriptions: each would otherwise look at every item."""
        found: dict[str, list[int]] = {}
        for place, item in enumerate(self.items):
            if item is not None:
                for value in item.filters[position]:
                    found.setdefault(value, []).append(place)
        return {value: np.array(places, np.int64) for value, places in found.items()}
