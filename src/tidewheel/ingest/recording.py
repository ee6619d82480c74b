"""Recordings: messages as JSON lines, plain or compressed by gzip or zstd, in the order of their arrival.

A line is `{"received_at": "2026-01-31T12:00:00.123456Z", "topic": "a/b", "payload": {"any": "JSON"}}`; `received_at`
may be null, and further fields are ignored. A payload that is JSON stands there as it came, byte by byte; one that is
other text as a string; anything else in `payload_base64` instead of `payload`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

from tidewheel.errors import MalformedError
from tidewheel.ingest.compression import read_chunks
from tidewheel.ingest.message import Message
from tidewheel.model.time import Instant, instant, moment

__all__ = ["BadLine", "Recorded", "encode_line", "read_line", "read_recording"]

_DEEPEST: Final = 100  # brackets in a payload that is still taken over as it is: readers may have a limit


@dataclass(frozen=True, slots=True)
class Recorded:
    """A message of a recording; `received_at` is None where its arrival was not recorded."""

    topic: str
    payload: bytes
    received_at: Instant | None


@dataclass(frozen=True, slots=True)
class BadLine:
    """What a recording holds besides messages: a line that cannot be read, or an end that is cut off or damaged (`raw`
    is then what there is of the last line). `place` is for people: file and line."""

    place: str
    reason: str
    raw: bytes


class _Line(Struct, gc=False):
    topic: str
    received_at: datetime | None = None
    payload: Raw = Raw(b"")
    payload_base64: bytes | None = None


class _TextLine(Struct, gc=False):
    received_at: datetime
    topic: str
    payload: Raw | str


class _BinaryLine(Struct, gc=False):
    received_at: datetime
    topic: str
    payload_base64: bytes


_LINE: Final = Decoder(_Line)
_TEXT: Final = Decoder(str)
_SYNTAX: Final = Decoder(Raw)


def read_recording(path: str | os.PathLike[str]) -> Iterator[Recorded | BadLine]:
    """The messages of a recording, one after the other, whatever its compression; what cannot be read is among them as
    `BadLine`. A recording that is cut off gives all that is whole, then a `BadLine` that says so."""
    name = Path(path).name
    number, rest = 1, b""
    with open(path, "rb") as file:
        try:
            for chunk, _ in read_chunks(file):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line and not line.isspace():
                        yield read_line(line, f"{name}:{number}")
                    number += 1
        except (MalformedError, OSError) as error:
            yield BadLine(f"{name}:{number}", f"the recording ends here: {error}", rest)
            return
    if rest and not rest.isspace():
        yield read_line(rest, f"{name}:{number}")


def encode_line(message: Message) -> bytes:
    """A message as a line of a recording, without the end of line.

    >>> encode_line(Message("a/b", b'{"x": 1.0}', 1_000_000))
    b'{"received_at":"1970-01-01T00:00:01Z","topic":"a/b","payload":{"x": 1.0}}'
    >>> encode_line(Message("a/b", bytes([255, 0]), 1_000_000))
    b'{"received_at":"1970-01-01T00:00:01Z","topic":"a/b","payload_base64":"/wA="}'
    """
    received_at = moment(message.received_at)
    try:
        text = message.payload.decode()
    except UnicodeDecodeError:
        return msgspec.json.encode(_BinaryLine(received_at, message.topic, message.payload))
    return msgspec.json.encode(
        _TextLine(received_at, message.topic, Raw(message.payload) if _fits_line(message.payload) else text)
    )


def _fits_line(payload: bytes) -> bool:
    """Whether a payload can stand in a line as it is: JSON that a reader cannot take for a text."""
    if payload[:1] not in (b"{", b"[") or payload[-1:] not in (b"}", b"]") or b"\n" in payload or b"\r" in payload:
        return False
    if payload.count(b"{") + payload.count(b"[") > _DEEPEST:
        return False
    try:
        _SYNTAX.decode(payload)
    except ValueError:
        return False
    return True


def read_line(line: bytes, place: str) -> Recorded | BadLine:
    """A line of a recording, or what is wrong with it; `place` is for people."""
    try:
        fields = _LINE.decode(line)
        payload = fields.payload_base64
        if payload is None:
            payload = bytes(fields.payload)
            if not payload:
                return BadLine(place, "not a line of a recording: it has neither payload nor payload_base64", line)
            if payload[:1] == b'"':
                payload = _TEXT.decode(payload).encode()
    except (ValueError, RecursionError) as error:
        return BadLine(place, f"not a line of a recording: {error}", line)
    time = fields.received_at
    return Recorded(fields.topic, payload, None if time is None else instant(time))
