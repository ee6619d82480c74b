"""Requests as bytes over real sockets: for what no HTTP library would send."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

PATIENCE = 30.0


def send(port: int, request: bytes, *, source: str = "127.0.0.1") -> tuple[int, Any]:
    """The status of the answer and its JSON (or text), once the server has ended the connection."""
    with connected(port, source=source) as raw:
        raw.sendall(request)
        return answer(raw)


def answer(raw: socket.socket) -> tuple[int, Any]:
    """The one answer on a connection that the server ends."""
    received = b"".join(iter(lambda: raw.recv(65_536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), received[:200]
    try:
        content = json.loads(body)
    except ValueError:
        content = body.decode()
    return int(head.split()[1]), content


def connected(port: int, *, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(source, 0))


@contextmanager
def held(port: int, count: int, content: bytes, *, source: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """So many connections that send this and no more."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            raw = stack.enter_context(connected(port, source=source))
            if content:
                raw.sendall(content)
            found.append(raw)
        yield found


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "Connection: close", "", ""]).encode()


_HOST = b"Host: localhost\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_LENGTH = b"Content-Length: 5\r\n"

AMBIGUOUS: dict[str, tuple[int, bytes]] = {
    "both lengths": (400, _HOST + _LENGTH + _CHUNKED + b"\r\n0\r\n\r\n"),
    "both, the other way": (400, _HOST + _CHUNKED + b"content-length: 0\r\n\r\n0\r\n\r\n"),
    "two lengths": (400, _HOST + _LENGTH + b"Content-Length: 6\r\n\r\nhello!"),
    "the same length twice": (400, _HOST + _LENGTH + _LENGTH + b"\r\nhello"),
    "a list of lengths": (400, _HOST + b"Content-Length: 5, 5\r\n\r\nhello"),
    "a signed length": (400, _HOST + b"Content-Length: +5\r\n\r\nhello"),
    "a negative length": (400, _HOST + b"Content-Length: -5\r\n\r\nhello"),
    "a hexadecimal length": (400, _HOST + b"Content-Length: 0x5\r\n\r\nhello"),
    "an absurd length": (400, _HOST + b"Content-Length: 99999999999999999999\r\n\r\nhello"),
    "no length": (400, _HOST + b"Content-Length:\r\n\r\nhello"),
    "a space before the colon": (400, _HOST + b"Content-Length : 5\r\n\r\nhello"),
    "a folded header": (400, _HOST + b"X: a\r\n b\r\n" + _LENGTH + b"\r\nhello"),
    "a folded length": (400, _HOST + b"X: a\r\n\t" + _LENGTH + b"\r\n"),
    "line feeds alone": (400, b"Host: localhost\nContent-Length: 5\n\nhello"),
    "a line feed alone": (400, _HOST + b"X: a\n" + _LENGTH + b"\r\nhello"),
    "a carriage return alone": (400, _HOST + b"X: a\r" + _LENGTH + b"\r\nhello"),
    "an unknown coding": (501, _HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "a coding twice": (501, _HOST + _CHUNKED + _CHUNKED + b"\r\n0\r\n\r\n"),
    "two hosts": (400, _HOST + b"Host: evil.example.org\r\n\r\n"),
    "no host": (400, b"X: a\r\n\r\n"),
    "large headers": (431, _HOST + b"".join(b"X%d: %s\r\n" % (n, b"x" * 900) for n in range(40)) + b"\r\n"),
    "many headers": (431, _HOST + b"X: y\r\n" * 150 + b"\r\n"),
}
"""What a proxy in front might read otherwise: what follows a request's line, and the status that it is refused with."""
