"""The answers over HTTP: layers, views, histories, alerts, topics, health and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec
import polars as pl
import polars_h3 as h3
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from tidewheel.errors import DefinitionError
from tidewheel.ingest.http.connections import Connections
from tidewheel.ingest.http.guard import Guard
from tidewheel.model.time import Instant
from tidewheel.serve.http.background import Background
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.http.openapi import openapi
from tidewheel.serve.http.prometheus import exposition
from tidewheel.serve.http.requests import parse_millis, parse_names, parse_query
from tidewheel.serve.layers.layer import Layer
from tidewheel.serve.view.feed import Feed
from tidewheel.serve.view.frame import joined
from tidewheel.serve.view.history import HOUR
from tidewheel.serve.view.hub import Hub
from tidewheel.serve.view.map_item import Item, Pool, described, encode
from tidewheel.serve.view.rewind import view_at
from tidewheel.serve.view.subscription import Subscription
from tidewheel.transport.log.log import Log

__all__ = ["Api", "json_response"]

_Found: TypeAlias = tuple[Mapping[str, Sequence[Item]], Mapping[str, Mapping[str, int]]]
"""The items of each layer, and which layers do not show all their keys."""

_AT_ONCE = 2
"""Answers that are made at a time: each takes turns with the event loop, which must not wait for many."""
_IN_LINE = 64
"""Answers that may wait to be made."""
_CHUNK_BYTES = 256 << 10


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response with JSON that no cache keeps."""
    body = content if isinstance(content, bytes) else encode(content)
    return Response(body, status, {"cache-control": "no-store", **(headers or {})}, "application/json")


class _ChunkedResponse(Response):
    """A large body that is handed to the connection bit by bit, as the client takes it, within a budget."""

    def __init__(self, body: bytes, media_type: str, budget: _Budget) -> None:
        super().__init__(body, 200, {"cache-control": "no-store"}, media_type)
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._budget.of(len(self.body)):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            body = memoryview(self.body)
            for begin in range(0, len(body) or 1, _CHUNK_BYTES):
                chunk = bytes(body[begin : begin + _CHUNK_BYTES])
                more = begin + _CHUNK_BYTES < len(body)
                await send({"type": "http.response.body", "body": chunk, "more_body": more})


class _Budget:
    """Bytes of answers that are on their way."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    def check(self, size: int) -> None:
        """Refuse bytes beyond the budget; one answer is always allowed."""
        if self._taken and self._taken + size > self._most:
            raise HTTPException(503, "too many large answers are on their way; try again", {"retry-after": "2"})

    @contextmanager
    def of(self, size: int) -> Iterator[None]:
        """Reserve bytes until the block ends."""
        self._taken += size
        try:
            yield
        finally:
            self._taken -= size


class Api:
    """The handlers, with what they look at."""

    def __init__(
        self,
        log: Log,
        feed: Feed,
        hub: Hub,
        *,
        limits: ServeLimits,
        guard: Guard,
        background: Background,
        connections: Connections,
        clock: Callable[[], Instant],
    ) -> None:
        self._log = log
        self._feed = feed
        self._hub = hub
        self._limits = limits
        self._guard = guard
        self._connections = connections
        self._clock = clock
        self._background = encode(background.description())
        self._openapi = encode(openapi())
        self._making = asyncio.Semaphore(_AT_ONCE)
        self._in_line = 0
        self._budget = _Budget(limits.answer_bytes)

    def routes(self) -> list[BaseRoute]:
        """The paths, and what answers each."""
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
        """Answer which layers there are."""
        return json_response({"layers": [layer.description() for layer in self._feed.layers.values()]})

    async def view(self, request: Request) -> Response:
        """Answer what the layers show now, or showed at an earlier time."""
        names = parse_names(request.query_params.get("layers")) or list(self._feed.layers)
        for name in names:
            self._layer(name)
        return await self._view(request, names)

    async def layer_view(self, request: Request) -> Response:
        """Answer what one layer shows."""
        return await self._view(request, [self._layer(request.path_params["name"]).name])

    async def geojson(self, request: Request) -> Response:
        """Answer the same of one layer as a FeatureCollection."""
        layer = self._layer(request.path_params["name"])
        now, at, find = self._finder(request, [layer.name])

        def make() -> bytes:
            items = [decode_item(item.raw) for item in find()[0].get(layer.name, [])]
            content = {
                "type": "FeatureCollection",
                "now": now // 1_000,
                "at": at // 1_000,
                "features": _features(items),
            }
            return encode(content)

        return await self._made(make, "application/geo+json")

    async def history(self, request: Request) -> Response:
        """Answer the results of a key in the last hour."""
        layer = self._layer(request.path_params["name"])
        key = request.query_params.get("key")
        if key is None:
            raise DefinitionError("the parameter key is missing: ?key=891126d1a5bffff, the k of an item")
        since, until = (parse_millis(request.query_params.get(name), what=name) for name in ("since", "until"))
        if until is not None:
            until += 999  # times are given in milliseconds: all of this one

        def make() -> bytes:
            with self._feed.lock:
                kept = self._feed.history.of(layer.name)
            rows = kept.of_key(key, since=since, until=until)
            rows = rows.filter(pl.col("@arrival") >= self._feed.activity.clock(self._clock()) - HOUR).tail(
                self._limits.points
            )
            return encode({"layer": layer.name, "key": key, "points": [_point(layer, row) for row in rows.to_dicts()]})

        return await self._made(make)

    async def alerts(self, request: Request) -> Response:
        """Answer the alerts of the last hour, newest first."""
        since = parse_millis(request.query_params.get("since"), what="since")
        chosen = [layer for layer in self._feed.layers.values() if layer.show == "alerts"]

        def make() -> bytes:
            found = []
            for layer in chosen:
                with self._feed.lock:
                    kept = self._feed.history.of(layer.name)
                    expiry = self._feed.view[layer.name].expiry if layer.name in self._feed.view else 0
                rows = kept.all(since=since)
                rows = rows.filter(pl.col("@arrival") >= self._feed.activity.clock(self._clock()) - HOUR).tail(
                    self._limits.points
                )
                found += [
                    {"layer": layer.name, **described(layer, row, row["@arrival"] + expiry)} for row in rows.to_dicts()
                ]
            return encode({"alerts": sorted(found, key=lambda alert: -alert["t"])[: self._limits.points]})

        return await self._made(make)

    async def topics(self, _: Request) -> Response:
        """Answer what is in the log."""

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
        """Answer what lies under the layers."""
        return json_response(self._background)

    async def health(self, request: Request) -> Response:
        """Answer whether all is well, and if not, why."""
        reasons = self._feed.health()
        content: dict[str, Any] = {"healthy": not reasons}
        if self._guard.knows(request.headers, request.query_params.get("token")):
            content |= {"reasons": reasons, "warnings": self._feed.warnings()}
            content |= {"clients": len(self._hub), "now": self._clock() // 1_000}
        return json_response(content, 503 if reasons else 200)

    async def openapi(self, _: Request) -> Response:
        """Answer with the description of this interface."""
        return json_response(self._openapi)

    async def metrics(self, _: Request) -> Response:
        """Answer with the metrics, for Prometheus."""
        text = await run_in_threadpool(self._exposition)
        return Response(text, media_type="text/plain; version=0.0.4")

    def _exposition(self) -> str:
        with self._feed.lock:
            return exposition(self._feed, self._hub, self._connections)

    async def _view(self, request: Request, names: Sequence[str]) -> Response:
        now, at, find = self._finder(request, names)

        def make() -> bytes:
            found, partial = find()
            hidden = b',"partial":%s' % encode(partial) if partial else b""
            return b'{"now":%d,"at":%d,"layers":%s%s}' % (now // 1_000, at // 1_000, joined(found), hidden)

        return await self._made(make)

    async def _made(self, make: Callable[[], bytes], media_type: str = "application/json") -> Response:
        """Make an answer that takes a while, beside the event loop."""
        if self._in_line >= _IN_LINE:
            raise HTTPException(503, f"{self._in_line} answers are being made already; try again", {"retry-after": "2"})
        self._in_line += 1
        try:
            async with self._making:
                body = await run_in_threadpool(make)
        finally:
            self._in_line -= 1
        self._budget.check(len(body))
        return _ChunkedResponse(body, media_type, self._budget)

    def _finder(self, request: Request, names: Sequence[str]) -> tuple[Instant, Instant, Callable[[], _Found]]:
        """The server's time, the requested time, and a function that finds the items."""
        query = request.query_params
        subscription = parse_query(query, query.getlist("filter"), layers=names, limits=self._limits)
        at = parse_millis(query.get("at"), what="at")
        now = self._clock()
        if at is None:
            return now, now, lambda: self._shown(subscription, now)
        if not now - HOUR - 60_000_000 <= at <= now + 1_000_000:
            raise DefinitionError(f"at is a moment of the last hour; it is {now // 1_000} now, got {at // 1_000}")
        return now, at, lambda: self._rewound(subscription, at)

    def _shown(self, subscription: Subscription, now: Instant) -> _Found:
        with self._feed.lock:
            self._feed.view.expire(self._feed.activity.clock(now))
            choose = self._hub.chosen(subscription)
            partial = self._feed.view.partial()
        return choose(), {name: partial[name] for name in subscription.layers if name in partial}

    def _rewound(self, subscription: Subscription, at: Instant) -> _Found:
        view = self._feed.view
        views = view_at(
            self._log,
            self._feed.catalogue,
            subscription.layers,
            at,
            speed=view.speed,
            most=self._limits.keys,
            on_damage=self._feed.pass_over,
        )
        found = {name: subscription.choose(each.layer, Pool(list(each.items.values()))) for name, each in views.items()}
        few = {name: each for name, each in views.items() if each.keys > len(each.items)}
        return found, {name: {"shown": len(each.items), "keys": each.keys} for name, each in few.items()}

    def _layer(self, name: str) -> Layer:
        layer = self._feed.layers.get(name)
        if layer is None:
            known = ", ".join(self._feed.layers) or "none yet"
            raise HTTPException(404, f"there is no layer {name[:100]!r}; there are: {known}")
        return layer


def decode_item(raw: bytes) -> dict[str, Any]:
    """Decode an item from what clients get."""
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
