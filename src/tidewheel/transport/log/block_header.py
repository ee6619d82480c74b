"""Block headers: statistics and checksums of a block, which can be read without opening it.

A header is a `BlockHeader` message. Since version 2 it ends with a CRC-32C over the block's place (topic, partition,
offsets, count, size, append time: columns of the file beside it) and all of the header before it, and it holds the
CRC-32C of the payload. Both are compared before anything is parsed. Headers of version 1 have neither.

Since version 2 a header also tells what lay before its block: where the block before it ended, so that a missing block
is noticed, and a fingerprint of the partition's history, in which each block's is made of the one before it. Two files
that have the same fingerprint at an offset have had the same appended up to there. Compaction and retention take
records away, but change no fingerprint.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import google_crc32c
from google.protobuf.message import DecodeError

from tidewheel.errors import LogError, MalformedError
from tidewheel.model.block_stats import BlockStats
from tidewheel.model.time import Instant
from tidewheel.transport.events.event_pb2 import BlockHeader

__all__ = ["Header", "Place", "checksum", "decode_header", "encode_header", "history_after"]

_UNCHECKED = b"\x08\x01"
"""How a header of version 1 begins. No single flipped bit lets another one begin so."""
_VERSION = 2
_TAG = b"\x7d"  # field 15, four bytes
_END = struct.Struct("<cI")
_PLACE = struct.Struct("<7q")
_HISTORY = struct.Struct("<Q5qI")


class Place(NamedTuple):
    """The place of a block, and what the file stores beside its header. `topic` is the topic's number."""

    topic: int
    partition: int
    first_offset: int
    next_offset: int
    records: int
    size: int
    append_time: Instant


@dataclass(frozen=True, slots=True)
class Header:
    """The content of a header. `type`: the message type of all records, if they have the same. Blocks of version 1 have
    no `payload_checksum`. `follows`: where the block before it ended; None if that is not known. `history_before` and
    `history`: the fingerprints of everything appended before the block, and up to its end; 0 if they are not known."""

    summary: BlockStats
    type: str | None = None
    payload_checksum: int | None = None
    follows: int | None = None
    history_before: int = 0
    history: int = 0


def checksum(data: bytes) -> int:
    """The CRC-32C of these bytes."""
    return int(google_crc32c.value(data))


def history_after(before: int, place: Place, payload_checksum: int) -> int:
    """The fingerprint of a history that continues with this block."""
    data = _HISTORY.pack(
        before, place.topic, place.partition, place.first_offset, place.next_offset, place.append_time, payload_checksum
    )
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") or 1  # 0 says that it is not known


def encode_header(header: Header, place: Place) -> bytes:
    """Encode a header; in version 1 if there is no checksum of the payload."""
    summary = header.summary
    message = BlockHeader(
        version=1 if header.payload_checksum is None else _VERSION,
        count=summary.count,
        append_time=summary.append_time,
        min_event_time=summary.min_event_time,
        max_event_time=summary.max_event_time,
        max_plausible_event_time=summary.max_plausible,
        future_tolerance=summary.future_tolerance,
        untimed=summary.untimed,
        skew_bins=summary.skew.keys(),
        skew_counts=summary.skew.values(),
        punctuations=summary.punctuations,
        type=header.type or "",
        raw_size=summary.raw_size,
    )
    if header.payload_checksum is None:
        return message.SerializeToString()
    message.payload_checksum = header.payload_checksum
    message.history_before, message.history = header.history_before, header.history
    if header.follows is not None:
        message.follows = header.follows
    data = message.SerializeToString()
    return data + _END.pack(_TAG, checksum(_PLACE.pack(*place) + data))


def decode_header(data: bytes, place: Place) -> Header:
    """Decode a header; `MalformedError` if it is damaged, or belongs to another place."""
    if not data.startswith(_UNCHECKED):
        _check(data, place)
    try:
        message = BlockHeader.FromString(data)
        skew = dict(zip(message.skew_bins, message.skew_counts, strict=True))
    except (DecodeError, ValueError) as error:
        raise MalformedError(f"its header cannot be read ({error})") from error
    if message.version > _VERSION:
        raise LogError(
            f"the header of the block at offset {place.first_offset} has version {message.version}, this Tidewheel "
            f"reads {_VERSION}: the log was written by a newer one"
        )
    if (message.count, message.append_time) != (place.records, place.append_time):
        raise MalformedError(
            f"its header tells of {message.count} records appended at {message.append_time}, the file of "
            f"{place.records} at {place.append_time}"
        )
    checked = message.version == _VERSION
    return Header(
        BlockStats(
            count=message.count,
            append_time=message.append_time,
            min_event_time=message.min_event_time if message.HasField("min_event_time") else None,
            max_event_time=message.max_event_time if message.HasField("max_event_time") else None,
            max_plausible=(message.max_plausible_event_time if message.HasField("max_plausible_event_time") else None),
            future_tolerance=message.future_tolerance,
            untimed=message.untimed,
            skew=skew,
            punctuations=tuple(message.punctuations),
            raw_size=message.raw_size,
        ),
        type=message.type or None,
        payload_checksum=message.payload_checksum if checked else None,
        follows=message.follows if message.HasField("follows") else None,
        history_before=message.history_before,
        history=message.history,
    )


def _check(data: bytes, place: Place) -> None:
    if len(data) < _END.size:
        raise MalformedError(f"its header has {len(data)} bytes, which is too few")
    tag, noted = _END.unpack_from(data, len(data) - _END.size)
    try:
        found = checksum(_PLACE.pack(*place) + data[: -_END.size])
    except struct.error:
        raise MalformedError("what the file says of its place is not made of numbers") from None
    if tag != _TAG or noted != found:
        raise MalformedError(f"the checksum of its header is {found:08x}, it should be {noted:08x}")
