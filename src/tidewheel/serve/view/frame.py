"""Frames: messages to clients, each encoded once for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from tidewheel.model.time import Instant
from tidewheel.serve.view.map_item import Item, encode

__all__ = ["Frame", "error", "hello", "pong", "snapshot_body", "snapshot", "status", "update"]


class Frame:
    """A message: as text for a WebSocket, as an event for a stream of server-sent events."""

    def __init__(self, kind: str, body: bytes) -> None:
        self.kind = kind
        self.body = body

    @cached_property
    def text(self) -> str:
        """The frame as a message of a WebSocket."""
        return self.body.decode()

    @cached_property
    def event(self) -> bytes:
        """The frame as a server-sent event. JSON has no line breaks of its own."""
        return b"event: %s\ndata: %s\n\n" % (self.kind.encode(), self.body)

    def __repr__(self) -> str:
        return f"<Frame {self.kind}, {len(self.body)} bytes>"


def hello(layers: Sequence[Mapping[str, Any]], *, now: Instant, speed: float, limits: Mapping[str, int]) -> Frame:
    """The first frame: which layers there are."""
    return _plain("hello", protocol=1, now=now // 1_000, speed=speed, layers=layers, limits=limits)


def error(message: str) -> Frame:
    """A frame with a client's error."""
    return _plain("error", message=message)


def pong(id: int | str | None, *, now: Instant) -> Frame:
    """A frame that answers a ping."""
    return _plain("pong", id=id, now=now // 1_000)


def status(
    content: Mapping[str, Any], *, now: Instant, clients: int, partial: Mapping[str, Mapping[str, int]]
) -> Frame:
    """The status; `partial` has the layers that do not show all their keys."""
    return _plain("status", **{**content, "now": now // 1_000, "clients": clients, "partial": partial})


def snapshot_body(layers: Mapping[str, Sequence[Item]], *, now: Instant) -> bytes:
    """A subscription's snapshot, without the subscription's id."""
    return b'"now":%d,"layers":%s}' % (now // 1_000, joined(layers))


def snapshot(id: int | str | None, body: bytes) -> Frame:
    """A subscription's snapshot."""
    return Frame("snapshot", b'{"type":"snapshot","id":%s,%s' % (encode(id), body))


def update(changed: Mapping[str, Sequence[Item]], gone: Mapping[str, Sequence[str]], *, now: Instant) -> Frame:
    """Return the changes of a subscription."""
    body = b'{"type":"update","now":%d,"changed":%s,"gone":%s}' % (now // 1_000, joined(changed), encode(gone))
    return Frame("update", body)


def joined(layers: Mapping[str, Sequence[Item]]) -> bytes:
    """Items by layer, which are JSON already."""
    parts = (encode(name) + b":[" + b",".join([item.raw for item in items]) + b"]" for name, items in layers.items())
    return b"{" + b",".join(parts) + b"}"


def _plain(kind: str, **content: Any) -> Frame:
    return Frame(kind, encode({"type": kind, **content}))
