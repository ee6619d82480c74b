"""Subscriptions: which layers, which region, which filters; and choosing items by them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidewheel.errors import DefinitionError
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.layers.layer import Layer
from tidewheel.serve.view.map_item import Item, Mask, Pool

__all__ = ["Region", "Subscription", "parse_region"]

Region = tuple[float, float, float, float]
"""West, south, east and north in degrees."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A client's selection. Equal ones share every frame."""

    layers: tuple[str, ...]
    region: Region | None = None
    filters: tuple[tuple[str, frozenset[str]], ...] = ()

    @classmethod
    def of(
        cls,
        layers: Iterable[str],
        region: Sequence[float] | None = None,
        filters: Mapping[str, Iterable[str]] | None = None,
        *,
        limits: ServeLimits,
    ) -> Subscription:
        """Check the wishes of a client, and put them into one order. A filter without values is none.

        >>> Subscription.of(["b", "a", "b"], [24, 60, 25, 61], {"mode": ["bus"]}, limits=ServeLimits())
        Subscription(layers=('a', 'b'), region=(24.0, 60.0, 25.0, 61.0), filters=(('mode', frozenset({'bus'})),))
        """
        names = sorted(set(layers))
        if len(names) > limits.layers:
            raise DefinitionError(f"a subscription has at most {limits.layers} layers, got {len(names)}")
        chosen = {field: frozenset(values) for field, values in sorted((filters or {}).items()) if values}
        if len(chosen) > limits.filters:
            raise DefinitionError(f"a subscription has filters on at most {limits.filters} fields, got {len(chosen)}")
        for field, values in chosen.items():
            if len(values) > limits.values:
                raise DefinitionError(f"a filter allows at most {limits.values} values, {field!r} has {len(values)}")
        return cls(tuple(names), None if region is None else parse_region(region), tuple(chosen.items()))

    def mask(self, layer: Layer, pool: Pool) -> Mask | None:
        """The items of a layer that match; None for all."""
        filters = [(layer.filters.index(name), values) for name, values in self.filters if name in layer.filters]
        # The list of alerts tells of all places, and so do tables.
        everywhere = self.region is None or layer.show in ("alerts", "table")
        if everywhere and not filters:
            return None
        mask = pool.there if self.region is None or everywhere else pool.within(self.region)
        for position, values in filters:
            mask = mask & pool.having(position, values)
        return mask

    def choose(self, layer: Layer, pool: Pool) -> list[Item]:
        """Choose the matching items."""
        mask = self.mask(layer, pool)
        if mask is None:
            return [item for item in pool.items if item is not None]
        return [item for n in mask.nonzero()[0].tolist() if (item := pool.items[n]) is not None]

    def changed(self, layer: Layer, old: Pool, new: Pool) -> tuple[list[Item], list[str]]:
        """Compare the old and new items of keys: what is shown now, and the keys that are gone."""
        before, after = self.mask(layer, old), self.mask(layer, new)
        before = old.there if before is None else before
        after = new.there if after is None else after
        shown = [item for n in after.nonzero()[0].tolist() if (item := new.items[n]) is not None]
        gone = [item.k for n in (before & ~after).nonzero()[0].tolist() if (item := old.items[n]) is not None]
        return shown, gone


def parse_region(numbers: Sequence[float]) -> Region:
    """Parse and check a region.

    >>> parse_region([25, 60, 24, 61])
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: a region is west, south, east, north, in rising degrees; got [25, 60, 24, 61]
    """
    wrong = len(numbers) != 4 or not all(math.isfinite(number) for number in numbers)
    if wrong or numbers[0] > numbers[2] or numbers[1] > numbers[3]:
        raise DefinitionError(f"a region is west, south, east, north, in rising degrees; got {[*numbers][:8]}")
    west, south, east, north = map(float, numbers)
    return west, south, east, north
