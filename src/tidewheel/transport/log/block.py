"""Blocks: the storage format of records in the embedded log, with statistics that can be read without opening them.

A payload is eight bytes (version, flags, six zeros that keep Arrow's buffers aligned) and one Arrow record batch
message with compressed buffers. The message carries no schema: the version and the flags fix it. Offsets are stored
only where they have gaps, which compaction leaves. What is known of a block without opening it is in its header.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import DefinitionError, LogError, MalformedError
from tidewheel.model.block_stats import BlockStats, summarize
from tidewheel.model.time import Duration, Instant
from tidewheel.transport.log.block_header import checksum
from tidewheel.transport.log.log_types import FETCHED

__all__ = [
    "BLOCK_BYTES",
    "BLOCK_RECORDS",
    "RECORD_BYTES",
    "Draft",
    "decode_payload",
    "drafts",
    "encode_payload",
]

BLOCK_RECORDS = 10_000
"""The most records of a block."""
BLOCK_BYTES = 4 << 20
"""About the most bytes of keys and values in a block; a larger record has a block to itself."""
RECORD_BYTES = 256 << 20
"""The most bytes of a record's key and value."""

_VERSION = 1
_SPARSE = 1  # flag: the payload has a column of offsets
_PREFIX_BYTES = 8
_DENSE_SCHEMA = pa.schema([FETCHED.field("key"), FETCHED.field("value")])
_SPARSE_SCHEMA = pa.schema([FETCHED.field("offset"), FETCHED.field("key"), FETCHED.field("value")])
# What is written once is read by every job: zstd takes a quarter less room, and more than twice as long to be read.
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
# Whoever reads blocks has a core to itself: threads that hand each other small buffers take a third longer.
_READING = pa.ipc.IpcReadOptions(use_threads=False)


def _beginning(schema: pa.Schema) -> bytes:
    """The schema message at the start of an Arrow stream, without which none can be read with options."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema):
        pass
    return bytes(pa.ipc.MessageReader.open_stream(sink.getvalue()).read_next_message().serialize())


_END_BYTES = 8
"""How much an Arrow stream has behind its last message."""
_BEGINNINGS = {schema: _beginning(schema) for schema in (_DENSE_SCHEMA, _SPARSE_SCHEMA)}


@dataclass(frozen=True, slots=True)
class Draft:
    """A block that is ready to be stored, except for its place and its append time, which only the log knows."""

    count: int
    payload: bytes
    checksum: int
    """Of the payload."""
    event_times: npt.NDArray[np.int64]
    punctuations: tuple[Instant, ...]
    type: str | None
    raw_size: int = 0
    """Bytes of keys and values before they were compressed."""

    def summary(self, *, append_time: Instant, future_tolerance: Duration) -> BlockStats:
        """The header's statistics if it is appended at this time."""
        found = summarize(
            self.event_times,
            append_time=append_time,
            untimed=self.count - len(self.event_times),
            future_tolerance=future_tolerance,
            punctuations=self.punctuations,
        )
        return replace(found, raw_size=self.raw_size)


def drafts(batch: pa.RecordBatch) -> Iterator[Draft]:
    """Records (schema `RECORDS`) cut into blocks, in their order."""
    for start, end in _cuts(batch):
        part = batch.slice(start, end - start)
        times = part.column("event_time").drop_null().cast(pa.int64()).to_numpy()
        marks = part.column("punctuation").drop_null().cast(pa.int64()).to_pylist()
        payload = encode_payload(part.column("key"), part.column("value"))
        yield Draft(
            count=part.num_rows,
            payload=payload,
            checksum=checksum(payload),
            event_times=times,
            punctuations=tuple(marks),
            type=_common_type(part.column("type")),
            raw_size=part.column("key").nbytes + part.column("value").nbytes,
        )


def _common_type(types: pa.DictionaryArray) -> str | None:
    """The type of all records, if they have the same."""
    numbers = types.indices
    if numbers.null_count or (numbers.to_numpy() != numbers[0].as_py()).any():
        return None
    return str(types[0].as_py())


def _cuts(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    if batch.num_rows == 0:
        return
    if batch.num_rows <= BLOCK_RECORDS and batch.nbytes <= BLOCK_BYTES:
        yield 0, batch.num_rows
        return
    sizes = sum(
        pa.compute.binary_length(batch.column(name)).fill_null(0).cast(pa.int64()).to_numpy()
        for name in ("key", "value")
    )
    if sizes.max() > RECORD_BYTES:
        raise DefinitionError(
            f"record {int(sizes.argmax())} of the batch has {int(sizes.max()):,} bytes; the log takes at most "
            f"{RECORD_BYTES:,} a record. Keep large things in files and append where they are."
        )
    ends = np.cumsum(sizes)
    start = 0
    while start < batch.num_rows:
        full = int(np.searchsorted(ends, ends[start] - sizes[start] + BLOCK_BYTES, side="right"))
        end = min(max(full, start + 1), start + BLOCK_RECORDS, batch.num_rows)
        yield start, end
        start = end


def encode_payload(keys: pa.Array, values: pa.Array, offsets: pa.Array | None = None) -> bytes:
    """Encode the payload of these records; `offsets` only where they have gaps."""
    if offsets is None:
        flags, batch = 0, pa.RecordBatch.from_arrays([keys, values], schema=_DENSE_SCHEMA)
    else:
        flags, batch = _SPARSE, pa.RecordBatch.from_arrays([offsets, keys, values], schema=_SPARSE_SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
        writer.write_batch(batch)
    # A stream is the schema, which is always the same, the batch, and an end: the batch alone is kept.
    message = memoryview(sink.getvalue())[len(_BEGINNINGS[batch.schema]) : -_END_BYTES]
    return bytes([_VERSION, flags]).ljust(_PREFIX_BYTES, b"\0") + message


def decode_payload(
    payload: bytes, *, first_offset: int, append_time: Instant, count: int, trusted: bool = False
) -> pa.RecordBatch:
    """Decode the records of a payload, with the schema `FETCHED`; `MalformedError` if their number differs.

    Unless it is `trusted`, since its checksum is right, it is also looked through: Arrow believes the lengths that it
    finds, and reading beyond a buffer's end may end the process.
    """
    if len(payload) < _PREFIX_BYTES or payload[0] == 0:
        raise MalformedError(f"it begins with {payload[:2].hex(' ') or 'nothing'}, which no block does")
    if payload[0] != _VERSION or payload[1] & ~_SPARSE:
        raise LogError(
            f"block at offset {first_offset} has format {payload[:2].hex(' ')}, this Tidewheel reads version "
            f"{_VERSION}: the log was written by a newer one"
        )
    sparse = bool(payload[1] & _SPARSE)
    stream = _BEGINNINGS[_SPARSE_SCHEMA if sparse else _DENSE_SCHEMA] + memoryview(payload)[_PREFIX_BYTES:]
    try:
        batch = pa.ipc.open_stream(stream, options=_READING).read_next_batch()
        if not trusted:
            batch.validate(full=True)
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise MalformedError(f"its records cannot be read ({error})") from error
    if batch.num_rows != count:
        raise MalformedError(f"it holds {batch.num_rows} records, not {count}")
    offsets = batch.column("offset") if sparse else pa.array(np.arange(first_offset, first_offset + count))
    times = pa.array(np.full(count, append_time, dtype=np.int64)).view(FETCHED.field("append_time").type)
    return pa.RecordBatch.from_arrays([offsets, times, batch.column("key"), batch.column("value")], schema=FETCHED)
