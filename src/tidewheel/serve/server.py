"""The server: a feed, a hub and their web application, in threads of this process."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidewheel.errors import DefinitionError, SetupError
from tidewheel.model.time import Instant
from tidewheel.model.time import now as wall_clock
from tidewheel.serve.catalogue import Catalogue
from tidewheel.serve.feed import Feed
from tidewheel.serve.history import History
from tidewheel.serve.layer import Layer
from tidewheel.serve.limits import Limits
from tidewheel.serve.page import Page
from tidewheel.serve.security import Guard, urlsplit_or_none
from tidewheel.serve.view import View
from tidewheel.transport.log import Log

__all__ = ["Server", "serve"]

_BACKLOG = 4_096
_OVERSIZE = 4
"""A message so many times too large is not even read to its end."""
_STOP_SECONDS = 5
_SEND_BUFFER = 128 << 10
_OTHER_FILES = 256


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
            import uvicorn
            import websockets  # noqa: F401  # uvicorn says nothing if it is not there, and refuses every client

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
        guard = Guard(token=token, origins=allow_origins, host=host)
        self.host = host
        self.feed = Feed(
            log,
            Catalogue(log, own=layers),
            View(speed=speed),
            History(limit=limits.history_bytes),
            clock=clock,
        )
        self.hub = Hub(self.feed, limits=limits, clock=clock)
        background = Background(lines=lines, tiles=tiles, attribution=attribution)
        api = Api(log, self.feed, self.hub, limits=limits, guard=guard, background=background, clock=clock)
        live = Live(self.feed, self.hub, limits=limits, clock=clock)
        app = make_app(
            [*api.routes(), *live.routes()],
            hub=self.hub,
            guard=guard,
            page=Page() if page is None else Page(page),
            tiles=tiles,
        )
        _allow_files(limits.clients)
        self._listener = _listen(host, port)
        self.port = int(self._listener.getsockname()[1])
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                lifespan="on",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="websockets-sansio",
                ws_max_size=limits.message * _OVERSIZE,
                # Every client would be compressed for by itself, and cost a window of memory.
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=_STOP_SECONDS,
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), name="serve", daemon=True)
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
        """Is it?"""
        return self._thread.is_alive()

    def status(self) -> dict[str, Any]:
        """How it is doing."""
        with self.feed.lock:
            latest, shown = self.feed.status.latest, len(self.feed.view)
        names = ("event_time", "watermark", "lag", "behind", "in_rate", "result_rate", "latency", "late", "dead", "bad")
        return {
            "url": self.url,
            "clients": len(self.hub),
            "layers": list(self.feed.layers),
            "shown": shown,
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


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SetupError(f"cannot listen at {host} port {port}: {reason}; choose another with --port") from None
    # What the kernel holds for a client is old by the time a slow one gets it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    # asyncio sets it only on sockets that name their protocol; without it every small answer takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _allow_files(clients: int) -> None:
    """Every client is an open file, and many systems allow but 1,024 unless asked for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _check_tiles(tiles: str | None) -> None:
    if tiles is None:
        return
    parts = urlsplit_or_none(tiles)
    good = parts is not None and parts.scheme in ("http", "https") and parts.netloc
    if not good or not all(part in tiles for part in ("{z}", "{x}", "{y}")) or any(c in tiles for c in " ;,\"'\r\n"):
        raise DefinitionError(f"tiles is an address like https://tile.example.org/{{z}}/{{x}}/{{y}}.png, got {tiles!r}")
