"""Files written piece by piece, each piece whole in itself: a gzip member, a zstd frame, or lines as they are."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import zstandard

from tidewheel.errors import MalformedError

__all__ = ["CutOffError", "compress_for", "read_chunks", "whole_size"]

_CHUNK: Final = 1 << 16
_LARGEST_STEP: Final = 1 << 20
"""Bytes that a step of decompression gives at most: a few kilobytes of a file may stand for gigabytes."""


_ZSTD_BEGINNING: Final = 8
"""Bytes that every frame has, and from which the length of its header is known."""


class CutOffError(MalformedError):
    """A file that ends in the middle of a piece: it was copied while it was written, or its writer died."""


class _Segment(Protocol):
    """Decompresses one piece of a file."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes:
        """What was given to it beyond its end."""

    def decompress(self, data: bytes, /) -> Iterator[bytes]:
        """What the next bytes of the file stand for, in steps of bounded size."""


class _GzipMember:
    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, /) -> Iterator[bytes]:
        while True:
            step = self._stream.decompress(data, _LARGEST_STEP)
            yield step
            data = self._stream.unconsumed_tail
            # A full step may have left more inside the stream even if all of the input is taken.
            if self._stream.eof or (not data and len(step) < _LARGEST_STEP):
                return


class _ZstdFrame:
    """The library gives at once all that its input stands for, but a block stands for 128 KiB at most. So it is given
    the frame part by part: the header, each block, the checksum."""

    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor().decompressobj()
        self._waiting = b""
        self._part_size: Callable[[], int | None] = self._header_size
        self._checksum = 0

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data + self._waiting

    def decompress(self, data: bytes, /) -> Iterator[bytes]:
        self._waiting += data
        while not self.eof:
            part_size = self._part_size
            size = part_size()
            if size is None or len(self._waiting) < size:
                self._part_size = part_size
                return
            part, self._waiting = self._waiting[:size], self._waiting[size:]
            yield self._stream.decompress(part)

    def _header_size(self) -> int | None:
        if len(self._waiting) < _ZSTD_BEGINNING:
            return None
        if self._waiting[1:4] == b"\x2a\x4d\x18":  # a frame that is to be skipped stands for nothing
            self._part_size = lambda: len(self._waiting) or None
            return 8
        self._part_size = self._block_size
        self._checksum = 4 if self._waiting[4] & 0b100 else 0
        return zstandard.frame_header_size(self._waiting)

    def _block_size(self) -> int | None:
        if len(self._waiting) < 3:
            return None
        header = int.from_bytes(self._waiting[:3], "little")
        last, repeated, size = header & 1, header >> 1 & 0b11 == 1, header >> 3
        return 3 + (1 if repeated else size) + (self._checksum if last else 0)


@dataclass(frozen=True, slots=True)
class _Compression:
    name: str
    magic: bytes
    compress: Callable[[bytes], bytes]
    piece: Callable[[], _Segment]


_COMPRESSIONS: Final = {
    ".gz": _Compression(
        name="gzip",
        magic=b"\x1f\x8b",
        compress=lambda data: gzip.compress(data, compresslevel=6, mtime=0),
        piece=_GzipMember,
    ),
    ".zst": _Compression(
        name="zstd",
        magic=b"\x28\xb5\x2f\xfd",
        compress=lambda data: zstandard.ZstdCompressor(level=6, write_checksum=True).compress(data),
        piece=_ZstdFrame,
    ),
}


def compress_for(path: str | os.PathLike[str]) -> Callable[[bytes], bytes]:
    """What makes of some lines a piece of the file of this name: by its ending .gz or .zst, or plain.

    >>> compress_for("a.jsonl")(b"line"), len(compress_for("a.jsonl.gz")(b"line"))
    (b'line', 24)
    """
    found = _COMPRESSIONS.get(Path(path).suffix)
    return (lambda data: data) if found is None else found.compress


def read_chunks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The contents of a file in chunks, whatever its compression, which its first bytes tell; with each chunk how many
    bytes of the file are whole pieces (of a plain file: whole lines) so far.

    `CutOffError` if it ends within a piece, `MalformedError` if it is damaged, both after all that could be read.
    """
    compression = _compression_in(file)
    return _read_plain(file) if compression is None else _read_compressed(file, compression)


def whole_size(file: BinaryIO, path: str | os.PathLike[str]) -> int:
    """How many bytes from the beginning of the file of this name are whole pieces. `MalformedError` if it is damaged
    or of another compression than its name says."""
    expected, found = _COMPRESSIONS.get(Path(path).suffix), _compression_in(file)
    if found is not expected and file.read(1):
        raise MalformedError(f"it holds {_name(found)} and should, by its name, hold {_name(expected)}")
    size = 0
    try:
        for _, whole in read_chunks(file):
            size = whole
    except CutOffError:
        pass
    return size


def _compression_in(file: BinaryIO) -> _Compression | None:
    file.seek(0)
    beginning = file.read(4)
    file.seek(0)
    for compression in _COMPRESSIONS.values():
        size = min(len(compression.magic), len(beginning))  # less than the magic: cut off very early
        if size and beginning[:size] == compression.magic[:size]:
            return compression
    return None


def _name(compression: _Compression | None) -> str:
    return "plain lines" if compression is None else f"{compression.name} data"


def _read_plain(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    position = whole = 0
    while chunk := file.read(_CHUNK):
        end = chunk.rfind(b"\n") + 1
        whole = position + end if end else whole
        position += len(chunk)
        yield chunk, whole


def _read_compressed(file: BinaryIO, compression: _Compression) -> Iterator[tuple[bytes, int]]:
    position = whole = 0
    piece: _Segment | None = None
    while chunk := file.read(_CHUNK):
        while chunk:
            piece = piece or compression.piece()
            try:
                for data in piece.decompress(chunk):
                    if data:
                        yield data, whole
            except (zlib.error, zstandard.ZstdError) as error:
                raise MalformedError(f"damaged {compression.name} data after byte {whole}: {error}") from None
            rest = piece.unused_data if piece.eof else b""
            position += len(chunk) - len(rest)
            chunk = rest
            if piece.eof:
                piece, whole = None, position
                yield b"", whole
    if piece is not None:
        raise CutOffError(f"the {compression.name} data is cut off after byte {whole}")
