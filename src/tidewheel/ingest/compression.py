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


class CutOffError(MalformedError):
    """A file that ends in the middle of a piece: it was copied while it was written, or its writer died."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Compression:
    name: str
    magic: bytes
    compress: Callable[[bytes], bytes]
    decompressor: Callable[[], _Decompressor]


_COMPRESSIONS: Final = {
    ".gz": _Compression(
        name="gzip",
        magic=b"\x1f\x8b",
        compress=lambda data: gzip.compress(data, compresslevel=6, mtime=0),
        decompressor=lambda: zlib.decompressobj(wbits=31),
    ),
    ".zst": _Compression(
        name="zstd",
        magic=b"\x28\xb5\x2f\xfd",
        compress=lambda data: zstandard.ZstdCompressor(level=6, write_checksum=True).compress(data),
        decompressor=lambda: zstandard.ZstdDecompressor().decompressobj(),
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
    told, found = _COMPRESSIONS.get(Path(path).suffix), _compression_in(file)
    if found is not told and file.read(1):
        raise MalformedError(f"it holds {_name(found)} and should, by its name, hold {_name(told)}")
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
    piece: _Decompressor | None = None
    while chunk := file.read(_CHUNK):
        while chunk:
            piece = piece or compression.decompressor()
            try:
                data = piece.decompress(chunk)
            except (zlib.error, zstandard.ZstdError) as error:
                raise MalformedError(f"damaged {compression.name} data after byte {whole}: {error}") from None
            rest = piece.unused_data if piece.eof else b""
            position += len(chunk) - len(rest)
            chunk = rest
            if piece.eof:
                piece, whole = None, position
            yield data, whole
    if piece is not None:
        raise CutOffError(f"the {compression.name} data is cut off after byte {whole}")
