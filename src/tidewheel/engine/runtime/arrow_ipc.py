"""Frames as bytes: how operators' input, output and state travel through Spark."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable
from typing import Literal

import polars as pl

from tidewheel.engine.runtime.exchange_parts import Part, decode_parts, encode_parts
from tidewheel.errors import CheckpointError

__all__ = ["from_bytes", "pack", "parts_of", "to_bytes", "unpack"]

_VERSION = 2  # 1 had names in the head, of the output and its flow
_HEAD = struct.Struct("<BI")
_LARGE = 2_000_000  # bytes; below that compressing takes longer than carrying
_NO_ROWS = pl.DataFrame()


def to_bytes(frame: pl.DataFrame, *, compression: Literal["uncompressed", "lz4", "zstd"] = "uncompressed") -> bytes:
    """Write a frame as an Arrow stream."""
    buffer = io.BytesIO()
    frame.rechunk().write_ipc_stream(buffer, compression=compression)
    return buffer.getvalue()


def from_bytes(data: bytes) -> pl.DataFrame:
    """Read the frame that `to_bytes` wrote."""
    return pl.read_ipc_stream(io.BytesIO(data))


def pack(parts: Iterable[tuple[Part, pl.DataFrame | None]]) -> bytes:
    """Pack parts with their frames into one value. Large frames are compressed.

    >>> from tidewheel.engine.runtime.exchange_parts import LateRows
    >>> [(part, frame.height) for part, frame in unpack(pack([(LateRows("job"), pl.DataFrame({"x": [1, 2]}))]))]
    [(LateRows(flow='job'), 2)]
    """
    entries = [(part, b"" if frame is None else _packed(frame)) for part, frame in parts]
    head = encode_parts([(part, len(data)) for part, data in entries])
    return b"".join([_HEAD.pack(_VERSION, len(head)), head, *(data for _, data in entries)])


def _packed(frame: pl.DataFrame) -> bytes:
    return to_bytes(frame, compression="lz4" if frame.estimated_size() > _LARGE else "uncompressed")


def unpack(data: bytes, *, wanted: Callable[[Part], bool] = lambda part: True) -> list[tuple[Part, pl.DataFrame]]:
    """Unpack the wanted parts with their frames; other frames are not decoded. A part that was packed without a frame
    has an empty one."""
    parts, place = _head(data)
    found = []
    for part, length in parts:
        if wanted(part):
            found.append((part, from_bytes(data[place : place + length]) if length else _NO_ROWS))
        place += length
    return found


def parts_of(data: bytes) -> list[Part]:
    """The parts that `pack` packed, without their frames."""
    return [part for part, _ in _head(data)[0]]


def _head(data: bytes) -> tuple[list[tuple[Part, int]], int]:
    """The parts with the length of each one's frame, and where the first frame begins."""
    version, size = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CheckpointError(f"frames of version {version} cannot be read; this Tidewheel writes version {_VERSION}")
    place = _HEAD.size + size
    return decode_parts(data[_HEAD.size : place]), place
