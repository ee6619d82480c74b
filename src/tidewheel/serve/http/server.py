"""The server: a feed, a hub and their web application, in threads of this process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tidewheel.errors import DefinitionError, SetupError
from tidewheel.model.time import Instant
from tidewheel.model.time import now as wall_clock
from tidewheel.serve.http.background import Background
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.layers.catalogue import Catalogue
from tidewheel.serve.layers.layer import Layer
from tidewheel.serve.view.feed import Feed
from tidewheel.serve.view.history import History
from tidewheel.serve.view.view import View
from tidewheel.threads import ServiceThread
from tidewheel.transport.log.log import Log

__all__ = ["Server", "serve"]

_STOP_SECONDS = 5
_SEND_BUFFER = 128 << 10


def serve(
    log: Log,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    layers: Sequence[Layer] = (),
    background: Background | None = None,
    token: str | None = None,
    allow_origins: Iterable[str] = (),
    speed: float = 1.0,
    limits: ServeLimits | None = None,
    page: Path | None = None,
    clock: Callable[[], Instant] = wall_clock,
) -> Server:
    """Serve the live view of a log's results, in the background, until it is closed.

    Args:
        log: The log whose results are shown.
        host: Where to listen; "0.0.0.0" lets other machines in.
        port: 0 takes any free one; `Server.url` tells it.
        layers: They go before those of installed packages.
        background: What lies under the layers: lines, tiles.
        token: Only who brings it is answered.
        allow_origins: Pages of these sites may ask, too.
        speed: That of a replay: results expire as much faster.
        limits: How much of everything there may be.
        page: The folder of another page than the one that comes with the package.
        clock: The time, in microseconds.
    """
    return Server(
        log,
        host=host,
        port=port,
        layers=layers,
        background=background or Background(),
        token=token,
        allow_origins=allow_origins,
        speed=speed,
        limits=limits or ServeLimits(),
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
        background: Background,
        token: str | None,
        allow_origins: Iterable[str],
        speed: float,
        limits: ServeLimits,
        page: Path | None,
        clock: Callable[[], Instant],
    ) -> None:
        try:
            from tidewheel.ingest.http.guard import Guard
            from tidewheel.ingest.http.server import listen
            from tidewheel.serve.http.web_server import HEALTH, make_web_server
            from tidewheel.serve.view.hub import Hub
        except ImportError as error:
            raise SetupError(
                "the live map needs the packages starlette, uvicorn and websockets; get them with: "
                f"pip install 'tidewheel[serve]' ({error})"
            ) from error
        if not 0 <= port <= 65_535:
            raise DefinitionError(f"port must be from 0 to 65535, got {port}")
        guard = Guard(guarded=["/api/", "/metrics"], health=HEALTH, token=token, origins=allow_origins, host=host)
        self.host = host
        self.feed = Feed(
            log,
            Catalogue(log, own=layers),
            View(speed=speed, most=limits.keys),
            History(limit=limits.history_bytes),
            clock=clock,
        )
        self.hub = Hub(self.feed, limits=limits, clock=clock)
        self._server = make_web_server(
            log,
            self.feed,
            self.hub,
            limits=limits,
            guard=guard,
            background=background,
            page=page,
            stop_seconds=_STOP_SECONDS,
            clock=clock,
        )
        self.connections = self._server.connections
        self._listener = listen(host, port, fix="choose another with --port")
        self.port = int(self._listener.getsockname()[1])
        self._start()

    def _start(self) -> None:
        # What the kernel holds for a client is old by the time a slow one gets it.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._thread = ServiceThread(lambda: self._server.run([self._listener]), name="the server of the live map")
        try:
            self.feed.start()
        except BaseException:
            self._listener.close()
            raise
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the page."""
        name = "localhost" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{name}]' if ':' in name else name}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether it answers and follows the log. If it is neither closed nor running, `failure` tells why."""
        return self._thread.is_alive() and self.feed.running

    @property
    def failure(self) -> Exception | None:
        """The error that ended a part of it, or None."""
        return self._thread.failure or self.feed.failure

    def status(self) -> dict[str, Any]:
        """The state of the server, its layers and the log."""
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
