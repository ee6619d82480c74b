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
from tidewheel.ingest.message import Message
from tidewheel.ingest.replay.segmented_files import read_chunks
from tidewheel.model.time import Instant, instant, moment

__all__ = ["BadLine", "RecordedMessage", "encode_line", "read_line", "read_recording"]

_LONGEST: Final = 32 << 20
"""Bytes of a line that is still read: more than any message that a broker takes as it is usually set up."""
_ENDLESS: Final = 1 << 30
"""Bytes of a line after which the rest of the recording is given up: it may never end."""
_SHOWN: Final = 1 << 16
"""Bytes that a dead letter keeps of a line that is too long."""
_DEEPEST: Final = 100  # brackets in a payload that is still taken over as it is: readers may have a limit


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message of a recording; `received_at` is None where its arrival was not recorded."""

    topic: str
    payload: bytes
    received_at: Instant | None


@dataclass(frozen=True, slots=True)
class BadLine:
    """An unreadable part of a recording: a bad line, or a truncated or damaged end (`raw` is then the start of the last
    line). `place` is the file and line, for messages."""

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


def read_recording(path: str | os.PathLike[str]) -> Iterator[RecordedMessage | BadLine]:
    """Read the messages of a recording in order, whatever its compression; unreadable parts are returned as `BadLine`.
    A truncated recording gives everything that is whole, then a `BadLine`. Memory is bounded: of a line that is too
    long only the beginning is kept."""
    name = Path(path).name
    number, line = 1, _Growing()
    with open(path, "rb") as file:
        try:
            for chunk, _ in read_chunks(file):
                *ends, rest = chunk.split(b"\n")
                for end in ends:
                    line.add(end)
                    if (found := line.read(f"{name}:{number}")) is not None:
                        yield found
                    line = _Growing()
                    number += 1
                line.add(rest)
        except (MalformedError, OSError) as error:
            yield BadLine(f"{name}:{number}", f"the recording ends here: {error}", line.beginning)
            return
    if (found := line.read(f"{name}:{number}")) is not None:
        yield found


class _Growing:
    """A line that comes in parts. Of one that is too long only the beginning is kept."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > _ENDLESS:
            raise MalformedError(f"a line is longer than {_ENDLESS >> 30} GiB")
        if self._size <= _LONGEST:
            if part:
                self._parts.append(part)
        elif len(self._parts) != 1 or len(self._parts[0]) > _SHOWN:
            self._parts = [b"".join([*self._parts, part[:_SHOWN]])[:_SHOWN]]

    @property
    def beginning(self) -> bytes:
        return b"".join(self._parts)

    def read(self, place: str) -> RecordedMessage | BadLine | None:
        """Parse the message in the line; None if it is blank."""
        line = self.beginning
        if self._size > _LONGEST:
            reason = f"a line of {self._size:,} bytes; at most {_LONGEST:,} are read"
            return BadLine(place, f"not a line of a recording: {reason}", line)
        return read_line(line, place) if line and not line.isspace() else None


def encode_line(message: Message) -> bytes:
    """Encode a message as a line of a recording, without the end of line.

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
    """Whether a payload can be written into a line as JSON, without a reader taking it for text."""
    if payload[:1] not in (b"{", b"[") or payload[-1:] not in (b"}", b"]") or b"\n" in payload or b"\r" in payload:
        return False
    if payload.count(b"{") + payload.count(b"[") > _DEEPEST:
        return False
    try:
        _SYNTAX.decode(payload)
    except ValueError:
        return False
    return True


def read_line(line: bytes, place: str) -> RecordedMessage | BadLine:
    """Read a line of a recording, or return what is wrong with it; `place` is for messages."""
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
    return RecordedMessage(fields.topic, payload, None if time is None else instant(time))
