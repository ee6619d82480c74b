"""The web server of the live map: its routes, and the limits of its connections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidewheel.ingest.http.connections import ConnectionLimits, Connections
from tidewheel.ingest.http.guard import Guard
from tidewheel.ingest.http.server import HttpServer
from tidewheel.model.time import Instant
from tidewheel.serve.http.api import Api
from tidewheel.serve.http.app import make_app
from tidewheel.serve.http.background import Background
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.http.live import Live
from tidewheel.serve.http.page import Page
from tidewheel.serve.view.feed import Feed
from tidewheel.serve.view.hub import Hub
from tidewheel.transport.log.log import Log

__all__ = ["HEALTH", "make_web_server"]

HEALTH = "/api/health"
_OVERSIZE = 4
"""A message so many times too large is not even read to its end."""
_HEADER_SECONDS = 10.0
_BODY_SECONDS = 10.0
"""Nothing that is asked here has a body; one that comes is read for so long."""


def make_web_server(
    log: Log,
    feed: Feed,
    hub: Hub,
    *,
    limits: ServeLimits,
    guard: Guard,
    background: Background,
    page: Path | None,
    stop_seconds: int,
    clock: Callable[[], Instant],
) -> HttpServer:
    """Make the server of what a feed and a hub have; it does not run yet."""
    connections = Connections(
        ConnectionLimits(
            connections=limits.connections,
            per_address=limits.connections_per_address,
            header_seconds=_HEADER_SECONDS,
            body_seconds=_BODY_SECONDS,
        )
    )
    api = Api(log, feed, hub, limits=limits, guard=guard, background=background, connections=connections, clock=clock)
    live = Live(feed, hub, limits=limits, clock=clock)
    app = make_app(
        [*api.routes(), *live.routes()],
        hub=hub,
        guard=guard,
        page=Page() if page is None else Page(page),
        tiles=background.tiles,
    )
    return HttpServer(
        app,
        connections=connections,
        health=HEALTH,
        websockets=True,
        lifespan="on",
        ws_max_size=limits.message * _OVERSIZE,
        # Every client would be compressed for by itself, and cost a window of memory.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=stop_seconds,
    )
