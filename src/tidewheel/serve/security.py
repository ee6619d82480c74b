"""Who may talk to the server: a token if there is one, no strange origins, no strange names for this machine."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from tidewheel.errors import DefinitionError

__all__ = ["Guard", "Refusal", "security_headers"]

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_OPEN = "/api/health"
"""Asked by those who watch over the process; without a token it tells no more than well or not."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    reason: str


class Guard:
    """Judges requests by their headers and query.

    >>> guard = Guard(token="secret")
    >>> guard.judge("/api/layers", {"host": "localhost"}, None)
    Refusal(status=401, reason='this server wants a token: Authorization: Bearer TOKEN, or ?token=TOKEN')
    >>> guard.judge("/api/layers", {"host": "localhost", "authorization": "Bearer secret"}, None) is None
    True
    """

    def __init__(self, *, token: str | None = None, origins: Iterable[str] = (), host: str = "127.0.0.1") -> None:
        if token is not None and not token:
            raise DefinitionError("the token must not be empty; leave it out, or give one that nobody guesses")
        self._token = None if token is None else token.encode()
        self.origins = frozenset(_checked(origin) for origin in origins)
        names = {_host_name(urlsplit(origin).netloc) for origin in self.origins if origin != "*"}
        # A page of another site can make a browser believe that its name is this machine (DNS rebinding). As long as
        # only this machine is served it has few names; beyond that, its names are not known here.
        self._names = _LOOPBACK | names if _is_loopback(host) and "*" not in self.origins else None

    def knows(self, headers: Mapping[str, str], token: str | None) -> bool:
        """Did the request bring the token?"""
        if self._token is None:
            return True
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = bearer.strip().encode("latin-1", "replace")  # as the bytes of headers come
        else:
            given = (token or "").encode(errors="replace")
        return hmac.compare_digest(given, self._token)

    def judge(self, path: str, headers: Mapping[str, str], token: str | None) -> Refusal | None:
        """None if the request may be answered."""
        host = headers.get("host", "")
        if self._names is not None and _host_name(host) not in self._names:
            return Refusal(
                421,
                f"this server is not {host[:100]!r}; start it with --allow-origin for the name that it is reached by",
            )
        origin = headers.get("origin")
        if origin is not None and not self.allows(origin, host):
            return Refusal(403, f"the origin {origin[:100]!r} is not allowed; see --allow-origin")
        guarded = path.startswith(("/api/", "/metrics")) and path != _OPEN
        if guarded and not self.knows(headers, token):
            return Refusal(401, "this server wants a token: Authorization: Bearer TOKEN, or ?token=TOKEN")
        return None

    def allows(self, origin: str, host: str) -> bool:
        """May a page of this origin ask? Its own pages may."""
        if "*" in self.origins or origin in self.origins:
            return True
        parts = urlsplit_or_none(origin)
        return parts is not None and parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower() != ""


def security_headers(*, tiles: str | None) -> Sequence[tuple[bytes, bytes]]:
    """What every answer tells a browser to refuse. Tiles are the only thing that may come from elsewhere."""
    elsewhere = ""
    if tiles:
        parts = urlsplit(tiles.replace("{s}", "a", 1))  # of several servers the page asks the first
        elsewhere = f" {parts.scheme}://{parts.netloc}"
    policy = (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
        f"script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; worker-src 'self' blob:; "
        f"img-src 'self' data: blob:{elsewhere}; connect-src 'self'{elsewhere}"
    )
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
    ]


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
    """Without the port.

    >>> _host_name("[::1]:80"), _host_name("localhost:80"), _host_name("127.0.0.1")
    ('::1', 'localhost', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_loopback(host: str) -> bool:
    return host in _LOOPBACK or host.startswith("127.")
