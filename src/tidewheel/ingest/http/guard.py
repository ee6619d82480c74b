"""Access to an HTTP server: a token if there is one, no foreign origins, no foreign names for this machine."""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidewheel.errors import DefinitionError

__all__ = ["Guard", "GuardedApp", "Refusal", "is_loopback", "urlsplit_or_none"]

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    reason: str


class Guard:
    """Checks requests by their headers and query.

    Requests for a path that begins with one of `guarded` must bring the token, in a header, or with `query` in the
    query as well. `health` is for those who watch over the process: they need none.

    >>> guard = Guard(token="secret", guarded=["/api/"], health="/api/health")
    >>> guard.refusal("/api/layers", {"host": "localhost"}, None)
    Refusal(status=401, reason='this server wants a token: Authorization: Bearer TOKEN, or ?token=TOKEN')
    >>> guard.refusal("/api/layers", {"host": "localhost", "authorization": "Bearer secret"}, None) is None
    True
    """

    def __init__(
        self,
        *,
        guarded: Sequence[str],
        health: str,
        token: str | None = None,
        origins: Iterable[str] = (),
        host: str = "127.0.0.1",
        query: bool = True,
    ) -> None:
        if token is not None and not token:
            raise DefinitionError("the token must not be empty; leave it out, or give one that nobody guesses")
        self._token = None if token is None else token.encode()
        self._guarded = tuple(guarded)
        self._health = health
        self._query = query
        self.origins = frozenset(_checked(origin) for origin in origins)
        names = {_host_name(urlsplit(origin).netloc) for origin in self.origins if origin != "*"}
        # A page of another site can make a browser believe that its name is this machine (DNS rebinding). As long as
        # only this machine is served it has few names; beyond that, its names are not known here.
        self._names = _LOOPBACK | {host.lower()} | names if is_loopback(host) and "*" not in self.origins else None

    def knows(self, headers: Mapping[str, str], token: str | None) -> bool:
        """Whether the request brings the token."""
        if self._token is None:
            return True
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = bearer.strip().encode("latin-1", "replace")  # as the bytes of headers come
        else:
            given = ((self._query and token) or "").encode(errors="replace")
        return hmac.compare_digest(given, self._token)

    def refusal(self, path: str, headers: Mapping[str, str], token: str | None) -> Refusal | None:
        """Return why a request is refused; None if it may be answered."""
        host = headers.get("host", "")
        if self._names is not None and _host_name(host) not in self._names:
            return Refusal(
                421,
                f"this server is not {host[:100]!r}; start it with --allow-origin for the name that it is reached by",
            )
        origin = headers.get("origin")
        if origin is not None and not self.allows(origin, host):
            return Refusal(403, f"the origin {origin[:100]!r} is not allowed; see --allow-origin")
        guarded = path.startswith(self._guarded) and path != self._health
        if guarded and not self.knows(headers, token):
            query = ", or ?token=TOKEN" if self._query else ""
            return Refusal(401, f"this server wants a token: Authorization: Bearer TOKEN{query}")
        return None

    def allows(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may ask; its own pages may."""
        if "*" in self.origins or origin in self.origins:
            return True
        parts = urlsplit_or_none(origin)
        return parts is not None and parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower() != ""


def urlsplit_or_none(text: str) -> SplitResult | None:
    """The parts of an address, if it is one."""
    try:
        return urlsplit(text)
    except ValueError:
        return None


def _checked(origin: str) -> str:
    parts = urlsplit_or_none(origin)
    if origin != "*" and (
        parts is None or parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query
    ):
        raise DefinitionError(f"an origin looks like https://map.example.org, without a path, or *; got {origin!r}")
    return origin


def _host_name(host: str) -> str:
    """The name of a host without its port.

    >>> _host_name("[::1]:80"), _host_name("localhost:80"), _host_name("127.0.0.1")
    ('::1', 'localhost', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "", "127.example.org")]
    [True, True, True, False, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class GuardedApp:
    """An application behind a guard; `headers` are put on every answer."""

    def __init__(self, app: ASGIApp, guard: Guard, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._app = app
        self._guard = guard
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or serve one WebSocket, unless the guard refuses it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        token = QueryParams(scope["query_string"]).get("token")
        refusal = self._guard.refusal(scope["path"], Headers(scope=scope), token)

        async def sending(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        if refusal is None:
            await self._app(scope, receive, sending)
            return
        if scope["type"] == "websocket":
            await receive()  # the connect that is refused
        body = json.dumps({"error": refusal.reason}, ensure_ascii=False).encode(errors="replace")
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if refusal.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        kind = "http.response" if scope["type"] == "http" else "websocket.http.response"
        await sending({"type": f"{kind}.start", "status": refusal.status, "headers": headers})
        await sending({"type": f"{kind}.body", "body": body})
