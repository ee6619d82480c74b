"""Security headers of every answer."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

__all__ = ["security_headers"]


def security_headers(*, tiles: str | None) -> Sequence[tuple[bytes, bytes]]:
    """The security headers of every answer. Only tiles may be loaded from elsewhere."""
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
