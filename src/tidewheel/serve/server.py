"""The server: a feed, a hub and their web application, in threads of this process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidewheel.errors import DefinitionError, SetupError
from tidewheel.model.time import Instant
from tidewheel.model.time import now as wall_clock
from tidewheel.serve.catalogue import Catalogue
from tidewheel.serve.feed import Feed
from tidewheel.serve.history import History
from tidewheel.serve.layer import Layer
from tidewheel.serve.limits import Limits
from tidewheel.serve.page import Page
from tidewheel.serve.view import View
from tidewheel.threads import ServiceThread
from tidewheel.transport.log import Log

__all__ = ["Server", "serve"]

_HEALTH = "/api/health"
_OVERSIZE = 4
"""A message so many times too large is not even read to its end."""
_STOP_SECONDS = 5
_SEND_BUFFER = 128 << 10
_HEADER_SECONDS = 10.0
_BODY_SECONDS = 10.0
"""Nothing that is asked here has a body; one that comes is read for so long."""


def serve(
    log: Log,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    layers: Sequence[Layer] = (),
    lines: Mapping[str, Any] | None = None,
    tiles: str | None = None,
    attribution: str | None = None,
    token: str | None = None,
    allow_origins: Iterable[str] = (),
    speed: float = 1.0,
    limits: Limits | None = None,
    page: Path | None = None,
    clock: Callable[[], Instant] = wall_clock,
) -> Server:
    """Serve the live view of a log's results, in the background, until it is closed.

    `layers` go before those of installed packages. `lines` (GeoJSON) and `tiles` (an address with {z}, {x} and {y}) lie
    under them; `attribution` says whose tiles they are. Port 0 takes any free one; `Server.url` tells it. `speed` is
    that of a replay: results expire as much faster.
    """
    return Server(
        log,
        host=host,
        port=port,
        layers=layers,
        lines=lines,
        tiles=tiles,
        attribution=attribution,
        token=token,
        allow_origins=allow_origins,
        speed=speed,
        limits=limits or Limits(),
        page=page,
        clock=clock,
    )


class Server:
    """A running server; made by `serve`. It ends with its `with` block, or with `close`."""

    def __init__(
        self,
        log: Log,
        *,
        host: str,
        port: int,
        layers: Sequence[Layer],
        lines: Mapping[str, Any] | None,
        tiles: str | None,
        attribution: str | None,
        token: str | None,
        allow_origins: Iterable[str],
        speed: float,
        limits: Limits,
        page: Path | None,
        clock: Callable[[], Instant],
    ) -> None:
        try:
            from tidewheel.ingest.http_connections import ConnectionLimits, Connections
            from tidewheel.ingest.http_guard import Guard
            from tidewheel.ingest.http_server import HttpServer, listen
            from tidewheel.serve.api import Api, Background
            from tidewheel.serve.app import make_app
            from tidewheel.serve.hub import Hub
            from tidewheel.serve.live import Live
        except ImportError as error:
            raise SetupError(
                "the live map needs the packages starlette, uvicorn and websockets; get them with: "
                f"pip install 'tidewheel[serve]' ({error})"
            ) from error
        if not 0 <= port <= 65_535:
            raise DefinitionError(f"port must be from 0 to 65535, got {port}")
        _check_tiles(tiles)
        guard = Guard(guarded=["/api/", "/metrics"], health=_HEALTH, token=token, origins=allow_origins, host=host)
        self.host = host
        self.feed = Feed(
            log,
            Catalogue(log, own=layers),
            View(speed=speed, most=limits.keys),
            History(limit=limits.history_bytes),
            clock=clock,
        )
        self.hub = Hub(self.feed, limits=limits, clock=clock)
        allowed = ConnectionLimits(
            connections=limits.connections,
            per_address=limits.connections_per_address,
            header_seconds=_HEADER_SECONDS,
            body_seconds=_BODY_SECONDS,
        )
        self.connections = Connections(allowed)
        background = Background(lines=lines, tiles=tiles, attribution=attribution)
        api = Api(
            log,
            self.feed,
            self.hub,
            limits=limits,
            guard=guard,
            background=background,
            connections=self.connections,
            clock=clock,
        )
        live = Live(self.feed, self.hub, limits=limits, clock=clock)
        app = make_app(
            [*api.routes(), *live.routes()],
            hub=self.hub,
            guard=guard,
            page=Page() if page is None else Page(page),
            tiles=tiles,
        )
        self._listener = listen(host, port, mend="choose another with --port")
        # What the kernel holds for a client is old by the time a slow one gets it.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self.port = int(self._listener.getsockname()[1])
        self._server = HttpServer(
            app,
            connections=self.connections,
            health=_HEALTH,
            websockets=True,
            lifespan="on",
            ws_max_size=limits.message * _OVERSIZE,
            # Every client would be compressed for by itself, and cost a window of memory.
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        self._thread = ServiceThread(lambda: self._server.run([self._listener]), name="the server of the live map")
        try:
            self.feed.start()
        except BaseException:
            self._listener.close()
            raise
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        name = "localhost" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{name}]' if ':' in name else name}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether it answers and follows the log. If it is neither closed nor running, `failure` tells why."""
        return self._thread.is_alive() and self.feed.running

    @property
    def failure(self) -> Exception | None:
        """What ended a part of it."""
        return self._thread.failure or self.feed.failure

    def status(self) -> dict[str, Any]:
        """How it is doing."""
        with self.feed.lock:
            latest, shown, partial = self.feed.status.latest, len(self.feed.view), self.feed.view.partial()
        names = ("event_time", "watermark", "lag", "behind", "in_rate", "result_rate", "latency", "late", "dead", "bad")
        return {
            "url": self.url,
            "clients": len(self.hub),
            "layers": list(self.feed.layers),
            "shown": shown,
            "partial": partial,
            **{name: latest.get(name) for name in names},
            "trouble": self.feed.health(),
            "warnings": self.feed.warnings(),
        }

    def close(self) -> None:
        """Let all clients go, and end."""
        self.hub.close_soon()
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS * 3)
        self.feed.stop()
        self._listener.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
