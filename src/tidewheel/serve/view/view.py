"""The current view: the items of each layer, and what has changed since the last time.

A result with the same or a newer event time replaces the one shown for its key; an older one is ignored. A result
expires so long after its arrival. A retraction removes the result it retracts if that is still shown. Of more keys
than a layer may show, those that came first stay until they expire, and on a layer without places, which is read from
the newest on, the newest; the others are counted.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Iterator

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.time import Duration, Instant
from tidewheel.serve.layers.layer import EXPIRY, Layer, Nowhere
from tidewheel.serve.view.decode import shown_early
from tidewheel.serve.view.map_item import Item, items_of

__all__ = ["Change", "LayerView", "View"]

Change = tuple[Item | None, Item | None]
"""What was shown for a key, and what is now."""

_COUNTED = 4
"""So many times as many keys as are shown are counted at most: to count them takes memory, too."""


class LayerView:
    """The items of one layer. It has no clock: every call passes the time, in microseconds."""

    def __init__(self, layer: Layer, *, speed: float = 1.0, most: int = sys.maxsize) -> None:
        self.layer = layer
        self._most = most
        self._hidden: dict[str, Instant] = {}
        """Keys that are not shown because there are too many, and when their results expire, the next first."""
        self.expiry: Duration = max(1, round((layer.expiry or EXPIRY) * 1_000 / speed))
        self.items: dict[str, Item] = {}
        self._before: dict[str, Item | None] = {}
        self._due: list[tuple[Instant, str]] = []
        self._looked_at: dict[str, Instant] = {}
        """Of each key when it is looked at next: results come far more often than they expire."""

    def apply(self, rows: pl.DataFrame, *, now: Instant, watermark: Instant | None = None) -> None:
        """Prepared rows (see `rows.prepared`) in the order of the log, and how far event time is behind them."""
        self.expire(now)
        rows = rows.filter(pl.col("@arrival") + self.expiry > now)
        rows = shown_early(self.layer, rows, watermark)
        if not rows.height:
            return
        if not rows["@back"].any():
            self._show(_latest(rows))
            return
        touched = rows.filter("@back")["@k"].unique()
        rows = rows.with_row_index("@row")
        mixed = rows.filter(pl.col("@k").is_in(touched.implode()))
        self._show(_latest(rows.filter(~pl.col("@k").is_in(touched.implode()))).drop("@row"))
        self._show(rows[self._survivors(mixed)].drop("@row"))

    @property
    def keys(self) -> int:
        """The number of keys, shown or not; those that are not shown are counted up to a limit."""
        return len(self.items) + len(self._hidden)

    def expire(self, now: Instant) -> None:
        """Take out what has been shown for long enough."""
        while self._hidden and self._hidden[key := next(iter(self._hidden))] <= now:
            del self._hidden[key]
        while self._due and self._due[0][0] <= now:
            due, key = heapq.heappop(self._due)
            if self._looked_at.get(key) != due:
                continue  # it was to be looked at earlier
            del self._looked_at[key]
            item = self.items.get(key)
            if item is not None and item.expires <= now:
                self._set(key, None)
            elif item is not None:
                self._look_at(key, item.expires)

    def clear(self) -> None:
        """Remove all results."""
        for key in list(self.items):
            self._set(key, None)
        self._hidden.clear()

    def changes(self) -> list[Change]:
        """The changes since the last call."""
        before, self._before = self._before, {}
        pairs = ((old, self.items.get(key)) for key, old in before.items())
        return [(old, new) for old, new in pairs if old is not new]

    def _show(self, rows: pl.DataFrame) -> None:
        """Show rows of different keys, unless a newer one is shown."""
        shown = self.items
        keys, times = rows["@k"].to_list(), rows["@t"].to_list()
        newer = [n for n, (k, t) in enumerate(zip(keys, times, strict=True)) if k not in shown or t >= shown[k].t]
        if len(shown) + len(newer) > self._most:
            newer = self._fitting(rows, newer)
        for item in items_of(self.layer, rows if len(newer) == rows.height else rows[newer], expiry=self.expiry):
            self._set(item.k, item)

    def _fitting(self, rows: pl.DataFrame, places: list[int]) -> list[int]:
        """The rows for which there is room; the others are hidden."""
        keys, arrivals = rows["@k"].to_list(), rows["@arrival"].to_list()
        if isinstance(self.layer.geometry, Nowhere):
            times = rows["@t"].to_list()
            self._make_room(times, keys, places)
            places = sorted(places, key=lambda place: times[place], reverse=True)
        room = self._most - len(self.items)
        fitting = []
        for place in places:
            key = keys[place]
            if key not in self.items:
                self._hidden.pop(key, None)
                if room <= 0:
                    self._hidden[key] = arrivals[place] + self.expiry
                    continue
                room -= 1
            fitting.append(place)
        while len(self._hidden) > _COUNTED * self._most:
            del self._hidden[next(iter(self._hidden))]
        return sorted(fitting)

    def _make_room(self, times: list[Instant], keys: list[str], places: list[int]) -> None:
        """Hide the oldest items, as many as there are newer results of keys that are not shown."""
        new = sorted((times[place] for place in places if keys[place] not in self.items), reverse=True)
        renewed = {keys[place] for place in places}
        missing = max(0, len(self.items) + len(new) - self._most)
        shown = (item for item in self.items.values() if item.k not in renewed)
        oldest = heapq.nsmallest(missing, shown, key=lambda item: item.t)
        # The newest of the new take the places of the oldest: so many as are newer than what they replace.
        room = self._most - len(self.items)
        for item, newest in zip(oldest, new[max(0, room) :], strict=False):
            if newest <= item.t:
                break
            self._set(item.k, None)
            self._hidden[item.k] = item.expires  # among later ones: it may be counted for a while longer

    def _survivors(self, rows: pl.DataFrame) -> list[int]:
        """The rows that remain of keys with retractions, applied one after the other. A shown item that is retracted is
        removed here."""
        shown: dict[str, tuple[Instant, object, int | None]] = {}
        columns = ("@k", "@t", "@start", "@end", "@back", "@row")
        for k, t, start, end, back, row in rows.select(columns).iter_rows():
            if k not in shown and k in self.items:
                item = self.items[k]
                shown[k] = (item.t, _taken_back_by(item.t, *item.window), None)
            if not back:
                if k not in shown or t >= shown[k][0]:
                    shown[k] = (t, _taken_back_by(t, start, end), row)
            elif k not in shown:
                self._hidden.pop(k, None)
            elif shown[k][1] == _taken_back_by(t, start, end):
                del shown[k]
                if k in self.items:
                    self._set(k, None)
        return [row for _, _, row in shown.values() if row is not None]

    def _set(self, key: str, item: Item | None) -> None:
        self._before.setdefault(key, self.items.get(key))
        if item is None:
            self.items.pop(key, None)
        else:
            self.items[key] = item
            self._hidden.pop(key, None)
            self._look_at(key, item.expires)

    def _look_at(self, key: str, when: Instant) -> None:
        if key not in self._looked_at or when < self._looked_at[key]:
            self._looked_at[key] = when
            heapq.heappush(self._due, (when, key))


class View:
    """The views of all layers, by name."""

    def __init__(self, *, speed: float = 1.0, most: int = sys.maxsize) -> None:
        if not 0 < speed < float("inf"):
            raise DefinitionError(f"speed is how many times as fast as the clock, above 0, got {speed}")
        self.speed = speed
        self.most = most
        self._layers: dict[str, LayerView] = {}
        self._renewed: set[str] = set()

    def add(self, layer: Layer) -> LayerView:
        """Add a layer, replacing another of its name: the removal of that one's items is not reported as a change."""
        if layer.name in self._layers:
            self._renewed.add(layer.name)
        self._layers[layer.name] = LayerView(layer, speed=self.speed, most=self.most)
        return self._layers[layer.name]

    def expire(self, now: Instant) -> None:
        """Take out what has been shown for long enough."""
        for layer in self._layers.values():
            layer.expire(now)

    def changes(self) -> dict[str, list[Change]]:
        """The changes since the last call, of the layers that have any."""
        found = ((name, layer.changes()) for name, layer in self._layers.items())
        return {name: changes for name, changes in found if changes}

    def partial(self) -> dict[str, dict[str, int]]:
        """The layers that do not show all their keys, with both numbers."""
        found = ((name, layer) for name, layer in self._layers.items() if layer.keys > len(layer.items))
        return {name: {"shown": len(layer.items), "keys": layer.keys} for name, layer in found}

    def renewed(self) -> set[str]:
        """The layers that were replaced since the last call."""
        renewed, self._renewed = self._renewed, set()
        return renewed

    def chosen(self, names: Iterable[str]) -> dict[str, LayerView]:
        """The existing layers of these names."""
        return {name: self._layers[name] for name in names if name in self._layers}

    def __getitem__(self, name: str) -> LayerView:
        return self._layers[name]

    def __contains__(self, name: object) -> bool:
        return name in self._layers

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return sum(len(layer.items) for layer in self._layers.values())


def _latest(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep of each key the newest row, of equally new ones the last."""
    return rows.sort("@t", maintain_order=True).unique("@k", keep="last", maintain_order=True)


def _taken_back_by(t: Instant, start: Instant | None, end: Instant | None) -> object:
    """The columns that identify the result that a retraction means: its window, or without one its event time."""
    return t if start is None and end is None else (start, end)
