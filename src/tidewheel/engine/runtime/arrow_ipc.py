"""Frames as bytes: how operators' input, output and state travel through Spark."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterable
from typing import Literal

import polars as pl

from tidewheel.errors import CheckpointError

__all__ = ["from_bytes", "pack", "to_bytes", "unpack"]

_VERSION = 1
_HEAD = struct.Struct("<BI")
_LARGE = 2_000_000  # bytes; below that compressing takes longer than carrying


def to_bytes(frame: pl.DataFrame, *, compression: Literal["uncompressed", "lz4", "zstd"] = "uncompressed") -> bytes:
    """Write a frame as an Arrow stream."""
    buffer = io.BytesIO()
    frame.rechunk().write_ipc_stream(buffer, compression=compression)
    return buffer.getvalue()


def from_bytes(data: bytes) -> pl.DataFrame:
    """Read the frame that `to_bytes` wrote."""
    return pl.read_ipc_stream(io.BytesIO(data))


def pack(frames: Iterable[tuple[str, pl.DataFrame]]) -> bytes:
    """Pack several named frames into one value; names may repeat. Large ones are compressed.

    >>> [(name, frame.height) for name, frame in unpack(pack([("a", pl.DataFrame({"x": [1, 2]}))]))]
    [('a', 2)]
    """
    entries = [
        (name, to_bytes(frame, compression="lz4" if frame.estimated_size() > _LARGE else "uncompressed"))
        for name, frame in frames
    ]
    head = json.dumps([[name, len(data)] for name, data in entries]).encode()
    return b"".join([_HEAD.pack(_VERSION, len(head)), head, *(data for _, data in entries)])


def unpack(data: bytes, *, wanted: Callable[[str], bool] = lambda name: True) -> list[tuple[str, pl.DataFrame]]:
    """Unpack the frames that `pack` packed, of the names that are wanted."""
    version, size = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CheckpointError(f"frames of version {version} cannot be read; this Tidewheel writes version {_VERSION}")
    place = _HEAD.size + size
    frames = []
    for name, length in json.loads(data[_HEAD.size : place]):
        if wanted(name):
            frames.append((name, from_bytes(data[place : place + length])))
        place += length
    return frames
