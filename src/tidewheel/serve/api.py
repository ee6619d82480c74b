"""The answers over HTTP: layers, views, histories, alerts, topics, health and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
import polars as pl
import polars_h3 as h3
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidewheel.errors import DefinitionError
from tidewheel.model.time import Instant
from tidewheel.serve.feed import Feed
from tidewheel.serve.frame import joined
from tidewheel.serve.history import HOUR
from tidewheel.serve.hub import Hub
from tidewheel.serve.item import Item, Pool, described, encode
from tidewheel.serve.layer import Layer
from tidewheel.serve.limits import Limits
from tidewheel.serve.openapi import openapi
from tidewheel.serve.prometheus import exposition
from tidewheel.serve.requests import parse_millis, parse_names, parse_query
from tidewheel.serve.rewind import view_at
from tidewheel.serve.security import Guard
from tidewheel.serve.subscription import Subscription
from tidewheel.transport.log import Log

__all__ = ["Api", "Background", "json_response"]

_LAND = "Land and water © OpenStreetMap contributors (ODbL)"
_REWINDS = 2
"""Rewound views that are made at a time: each reads the log."""


@dataclass(frozen=True, slots=True)
class Background:
    """What lies under the layers."""

    lines: Mapping[str, Any] | None = None
    tiles: str | None = None
    attribution: str | None = None
    """Of the tiles."""
    view: tuple[float, float, float] = (24.94, 60.2, 10.5)

    def description(self) -> dict[str, Any]:
        """As JSON for the page."""
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


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON that no cache keeps."""
    body = content if isinstance(content, bytes) else encode(content)
    return Response(body, status, {"cache-control": "no-store", **(headers or {})}, "application/json")


class Api:
    """The handlers, with what they look at."""

    def __init__(
        self,
        log: Log,
        feed: Feed,
        hub: Hub,
        *,
        limits: Limits,
        guard: Guard,
        background: Background,
        clock: Callable[[], Instant],
    ) -> None:
        self._log = log
        self._feed = feed
        self._hub = hub
        self._limits = limits
        self._guard = guard
        self._clock = clock
        self._background = encode(background.description())
        self._openapi = encode(openapi())
        self._rewinding = asyncio.Semaphore(_REWINDS)

    def routes(self) -> list[BaseRoute]:
        """Where each is found."""
        return [
            Route("/api/layers", self.layers),
            Route("/api/view", self.view),
            Route("/api/layers/{name}/view", self.layer_view),
            Route("/api/layers/{name}/view.geojson", self.geojson),
            Route("/api/layers/{name}/history", self.history),
            Route("/api/alerts", self.alerts),
            Route("/api/topics", self.topics),
            Route("/api/background", self.background),
            Route("/api/health", self.health),
            Route("/api/openapi.json", self.openapi),
            Route("/metrics", self.metrics),
        ]

    async def layers(self, _: Request) -> Response:
        """Which layers there are."""
        return json_response({"layers": [layer.description() for layer in self._feed.layers.values()]})

    async def view(self, request: Request) -> Response:
        """What they show now, or showed then."""
        names = parse_names(request.query_params.get("layers")) or list(self._feed.layers)
        for name in names:
            self._layer(name)
        return await self._view(request, names)

    async def layer_view(self, request: Request) -> Response:
        """The same of one layer."""
        return await self._view(request, [self._layer(request.path_params["name"]).name])

    async def geojson(self, request: Request) -> Response:
        """The same of one layer as a FeatureCollection."""
        layer = self._layer(request.path_params["name"])
        now, at, found = await self._items(request, [layer.name])
        items = [decode_item(item.raw) for item in found.get(layer.name, [])]
        content = {
            "type": "FeatureCollection",
            "now": now // 1_000,
            "at": at // 1_000,
            "features": await run_in_threadpool(_features, items),
        }
        return Response(encode(content), 200, {"cache-control": "no-store"}, "application/geo+json")

    async def history(self, request: Request) -> Response:
        """The results of a key in the last hour."""
        layer = self._layer(request.path_params["name"])
        key = request.query_params.get("key")
        if key is None:
            raise DefinitionError("which key? ?key=891126d1a5bffff, the k of an item")
        since, until = (parse_millis(request.query_params.get(name), what=name) for name in ("since", "until"))
        if until is not None:
            until += 999  # times are told in milliseconds: all of this one

        def read() -> list[dict[str, Any]]:
            with self._feed.lock:
                kept = self._feed.history.of(layer.name)
            rows = kept.of_key(key, since=since, until=until)
            rows = rows.filter(pl.col("@arrival") >= self._clock() - HOUR).tail(self._limits.points)
            return [_point(layer, row) for row in rows.to_dicts()]

        points = await run_in_threadpool(read)
        return json_response({"layer": layer.name, "key": key, "points": points})

    async def alerts(self, request: Request) -> Response:
        """The alerts of the last hour, newest first."""
        since = parse_millis(request.query_params.get("since"), what="since")
        chosen = [layer for layer in self._feed.layers.values() if layer.show == "alerts"]

        def read() -> list[dict[str, Any]]:
            found = []
            for layer in chosen:
                with self._feed.lock:
                    kept = self._feed.history.of(layer.name)
                    expiry = self._feed.view[layer.name].expiry if layer.name in self._feed.view else 0
                rows = kept.all(since=since)
                rows = rows.filter(pl.col("@arrival") >= self._clock() - HOUR).tail(self._limits.points)
                found += [
                    {"layer": layer.name, **described(layer, row, row["@arrival"] + expiry)} for row in rows.to_dicts()
                ]
            return sorted(found, key=lambda alert: -alert["t"])[: self._limits.points]

        return json_response({"alerts": await run_in_threadpool(read)})

    async def topics(self, _: Request) -> Response:
        """What is in the log."""

        def read() -> list[dict[str, Any]]:
            return [
                {
                    "name": info.name,
                    "partitions": info.partitions,
                    "count": info.count,
                    "size": info.size,
                    "first_offsets": info.first_offsets,
                    "next_offsets": info.next_offsets,
                    "last_append": None if info.last_append is None else info.last_append // 1_000,
                }
                for info in self._log.topics()
            ]

        return json_response({"topics": await run_in_threadpool(read)})

    async def background(self, _: Request) -> Response:
        """What lies under the layers."""
        return json_response(self._background)

    async def health(self, request: Request) -> Response:
        """Is all well?"""
        reasons = self._feed.health()
        content: dict[str, Any] = {"healthy": not reasons}
        if self._guard.knows(request.headers, request.query_params.get("token")):
            content |= {"reasons": reasons, "warnings": self._feed.warnings()}
            content |= {"clients": len(self._hub), "now": self._clock() // 1_000}
        return json_response(content, 503 if reasons else 200)

    async def openapi(self, _: Request) -> Response:
        """This very interface."""
        return json_response(self._openapi)

    async def metrics(self, _: Request) -> Response:
        """For Prometheus."""
        with self._feed.lock:
            text = exposition(self._feed, self._hub)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _view(self, request: Request, names: Sequence[str]) -> Response:
        now, at, found = await self._items(request, names)
        return json_response(b'{"now":%d,"at":%d,"layers":%s}' % (now // 1_000, at // 1_000, joined(found)))

    async def _items(
        self, request: Request, names: Sequence[str]
    ) -> tuple[Instant, Instant, Mapping[str, Sequence[Item]]]:
        query = request.query_params
        subscription = parse_query(query, query.getlist("filter"), layers=names, limits=self._limits)
        at = parse_millis(query.get("at"), what="at")
        now = self._clock()
        if at is None:
            with self._feed.lock:
                self._feed.view.expire(now)
                return now, now, self._hub.chosen(subscription, {})
        if not now - HOUR - 60_000_000 <= at <= now + 1_000_000:
            raise DefinitionError(f"at is a moment of the last hour; it is {now // 1_000} now, got {at // 1_000}")
        async with self._rewinding:
            return now, at, await run_in_threadpool(self._rewound, subscription, at)

    def _rewound(self, subscription: Subscription, at: Instant) -> dict[str, list[Item]]:
        views = view_at(self._log, self._feed.catalogue, subscription.layers, at, speed=self._feed.view.speed)
        return {name: subscription.choose(view.layer, Pool(list(view.items.values()))) for name, view in views.items()}

    def _layer(self, name: str) -> Layer:
        layer = self._feed.layers.get(name)
        if layer is None:
            known = ", ".join(self._feed.layers) or "none yet"
            raise HTTPException(404, f"there is no layer {name[:100]!r}; there are: {known}")
        return layer


def decode_item(raw: bytes) -> dict[str, Any]:
    """An item from what clients get."""
    item: dict[str, Any] = msgspec.json.decode(raw)
    return item


def _point(layer: Layer, row: Mapping[str, Any]) -> dict[str, Any]:
    item = described(layer, row, None)
    return {name: item[name] for name in ("t", "v", "timing", "f") if name in item}


def _features(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    cells = {cell for item in items for cell in [*([item["c"]] if "c" in item else []), *item.get("e", ())]}
    table = pl.DataFrame({"cell": sorted(cells)}, schema={"cell": pl.String})
    index = h3.str_to_int(pl.col("cell"))
    middle = table.select(
        "cell",
        h3.cell_to_lng(index).alias("lon"),
        h3.cell_to_lat(index).alias("lat"),
        h3.cell_to_boundary(index).alias("b"),
    )
    places = {row["cell"]: row for row in middle.to_dicts()}
    return [
        {
            "type": "Feature",
            "id": item["k"],
            "geometry": _geometry(item, places),
            "properties": {
                **item["f"],
                "key": item["k"],
                "value": item["v"],
                "timing": item.get("timing"),
                "event_time": item["t"],
            },
        }
        for item in items
    ]


def _geometry(item: Mapping[str, Any], places: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    if "p" in item:
        return {"type": "Point", "coordinates": item["p"]}
    if "e" in item:
        ends = [places[cell] for cell in item["e"]]
        return {"type": "LineString", "coordinates": [[end["lon"], end["lat"]] for end in ends]}
    if "c" in item:
        ring = [[lon, lat] for lat, lon in places[item["c"]]["b"]]
        return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
    return None
