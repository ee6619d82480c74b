"""Messages in the body of a request: as JSON lines or as protobuf, compressed or not, within limits."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator

import msgspec
from google.protobuf import proto
from google.protobuf.message import DecodeError

from tidewheel.errors import MalformedError
from tidewheel.ingest.ingest_pb2 import RawMessage
from tidewheel.ingest.message import Message
from tidewheel.ingest.replay.recording import BadLine, read_line
from tidewheel.model.time import EARLIEST, LATEST, Instant

__all__ = [
    "MAX_MESSAGES",
    "Gunzip",
    "TooLargeError",
    "parse_document",
    "parse_json_lines",
    "parse_lines",
    "parse_protobuf",
]

_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder(msgspec.Raw)
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]')
MAX_MESSAGES = 20_000
"""Messages in a body, by default: an empty one takes a byte there, and a thousand as a dead letter."""


class TooLargeError(MalformedError):
    """More than the limits allow."""


class Gunzip:
    """Opens a gzip stream piece by piece and never gives more than `limit` bytes in all, whatever it claims to hold.

    >>> import gzip
    >>> Gunzip(limit=100).feed(gzip.compress(b"hello"))
    b'hello'
    >>> Gunzip(limit=100).feed(gzip.compress(bytes(1_000_000)))
    Traceback (most recent call last):
    ...
    tidewheel.ingest.http.framing.TooLargeError: more than 100 bytes when decompressed
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._left = limit
        self._member = zlib.decompressobj(wbits=31)
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        """Decompress these bytes; `MalformedError` if they are not gzip."""
        parts = []
        while data:
            if self._member.eof:
                self._member, self._begun = zlib.decompressobj(wbits=31), False
            self._begun = True
            try:
                part = self._member.decompress(data, self._left + 1)
            except zlib.error as error:
                raise MalformedError(f"not gzip: {error}") from None
            self._left -= len(part)
            if self._left < 0:
                raise TooLargeError(f"more than {self._limit} bytes when decompressed")
            parts.append(part)
            data = self._member.unused_data
        return b"".join(parts)

    def end(self) -> None:
        """`MalformedError` if something is missing."""
        if not (self._begun and self._member.eof):
            raise MalformedError("not gzip: it is cut off")


def parse_json_lines(
    body: bytes, *, max_message: int, received_at: Instant, max_messages: int = MAX_MESSAGES
) -> list[Message]:
    """Parse the messages of JSON lines as in recordings; those without a time of arrival get `received_at`.

    >>> parse_json_lines(b'{"topic": "a", "payload": {"x": 1}}', max_message=100, received_at=5)
    [Message(topic='a', payload=b'{"x": 1}', received_at=5)]
    """
    messages = []
    for number, line in _lines(body, max_message=max_message, max_messages=max_messages):
        read = read_line(line, f"line {number}")
        if isinstance(read, BadLine):
            raise MalformedError(f"{read.place}: {read.reason}; lines that are messages themselves go to /v1/lines")
        messages.append(
            Message(read.topic, read.payload, received_at if read.received_at is None else read.received_at)
        )
    return messages


def parse_lines(
    body: bytes, *, topic: str, max_message: int, received_at: Instant, max_messages: int = MAX_MESSAGES
) -> list[Message]:
    """Take each line of a body as a message, whatever is in it.

    >>> parse_lines(b'{"x": 1}\\n?\\n', topic="a", max_message=100, received_at=5)
    [Message(topic='a', payload=b'{"x": 1}', received_at=5), Message(topic='a', payload=b'?', received_at=5)]
    """
    found = _lines(body, max_message=max_message, max_messages=max_messages)
    return [Message(topic, line.removesuffix(b"\r"), received_at) for _, line in found]


def parse_document(
    body: bytes, *, topic: str, max_message: int, received_at: Instant, max_messages: int = MAX_MESSAGES
) -> list[Message]:
    """Split one JSON document: each element of an array is a message, and anything else is one message.

    >>> parse_document(b'[{"x": 1}, 2]', topic="a", max_message=100, received_at=5)
    [Message(topic='a', payload=b'{"x": 1}', received_at=5), Message(topic='a', payload=b'2', received_at=5)]
    """
    try:
        document = _ANY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "JSON lines have the Content-Type application/x-ndjson"
        raise MalformedError(f"not a JSON document: {error}; {hint}") from None
    items = [document]
    if body.lstrip()[:1] == b"[":
        if _has_more_elements(body, max_messages):  # before they are made
            raise TooLargeError(_too_many("elements", max_messages))
        items = _ARRAY.decode(body)
    for place, item in enumerate(items):
        if len(item) > max_message:
            raise TooLargeError(f"element {place} has {len(item)} bytes, at most {max_message} are taken")
    return [Message(topic, bytes(item), received_at) for item in items]


def _has_more_elements(array: bytes, most: int) -> bool:
    """Whether a well-formed JSON array has more elements than that."""
    if array.count(b",") < most:
        return False
    depth, elements = 0, 1
    for token in _STRUCTURE.finditer(array):
        kind = token[0]
        if kind in b"[{":
            depth += 1
        elif kind in b"]}":
            depth -= 1
        elif kind == b"," and depth == 1:
            elements += 1
            if elements > most:
                return True
    return False


def _lines(body: bytes, *, max_message: int, max_messages: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a body that are not blank, with their numbers from 1."""
    if body.count(b"\n") >= max_messages + body.endswith(b"\n"):  # before they are made: empty ones take memory as well
        raise TooLargeError(_too_many("lines", max_messages))
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line or line.isspace():
            continue
        if len(line) > max_message:
            raise TooLargeError(f"line {number} has {len(line)} bytes, at most {max_message} are taken")
        yield number, line


def parse_protobuf(
    body: bytes, *, max_message: int, received_at: Instant, max_messages: int = MAX_MESSAGES
) -> list[Message]:
    """Parse `RawMessage`s, each after its length; those without a time of arrival get `received_at`."""
    messages: list[Message] = []
    stream = io.BytesIO(body)
    while stream.tell() < len(body):
        if len(messages) == max_messages:
            raise TooLargeError(_too_many("messages", max_messages))
        place = f"message {len(messages) + 1}, at byte {stream.tell()}"
        begin = stream.tell()
        try:
            raw = proto.parse_length_prefixed(RawMessage, stream)
        except (DecodeError, ValueError, OverflowError, EOFError, IndexError) as error:
            raise MalformedError(f"{place}: not a RawMessage after its length: {error}") from None
        if stream.tell() - begin > max_message:
            raise TooLargeError(f"{place}: it has {stream.tell() - begin} bytes, at most {max_message} are taken")
        at = raw.received_at if raw.HasField("received_at") else received_at
        if not EARLIEST <= at <= LATEST:
            raise MalformedError(f"{place}: received_at must be microseconds since 1970 up to the year 9999, got {at}")
        messages.append(Message(raw.topic, raw.payload, at))
    return messages


def _too_many(what: str, most: int) -> str:
    return (
        f"the body has more than {most} {what}; send fewer in a request, or let the server take more "
        "(--max-messages, HttpLimits.messages)"
    )
