"""Blocks: how the embedded log keeps a run of records, and what it knows of them without opening them.

A payload is eight bytes (version, flags, six zeros that keep Arrow's buffers aligned) and one Arrow record batch
message with compressed buffers. The message carries no schema: the version and the flags fix it. Offsets are stored
only where they have gaps, which compaction leaves. A header is a `BlockHeader` message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import DefinitionError, LogError
from tidewheel.model.summary import Summary, summarize
from tidewheel.model.time import Duration, Instant
from tidewheel.transport.event_pb2 import BlockHeader
from tidewheel.transport.log import FETCHED

__all__ = [
    "BLOCK_BYTES",
    "BLOCK_RECORDS",
    "RECORD_BYTES",
    "Draft",
    "decode_header",
    "decode_payload",
    "drafts",
    "encode_header",
    "encode_payload",
    "type_in_header",
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
    """What a stream of Arrow's begins with: the message of the schema, without which none can be read with options."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema):
        pass
    return bytes(pa.ipc.MessageReader.open_stream(sink.getvalue()).read_next_message().serialize())


_END_BYTES = 8
"""How much an Arrow stream has behind its last message."""
_BEGINNINGS = {schema: _beginning(schema) for schema in (_DENSE_SCHEMA, _SPARSE_SCHEMA)}


@dataclass(frozen=True, slots=True)
class Draft:
    """A block that is ready to be stored, but for its place and its append time, which only the log knows."""

    count: int
    payload: bytes
    event_times: npt.NDArray[np.int64]
    punctuations: tuple[Instant, ...]
    type: str | None

    def header(self, *, append_time: Instant, future_tolerance: Duration) -> bytes:
        """The header of the block when it is appended at this time."""
        return encode_header(
            summarize(
                self.event_times,
                append_time=append_time,
                untimed=self.count - len(self.event_times),
                future_tolerance=future_tolerance,
                punctuations=self.punctuations,
            ),
            type=self.type,
        )


def drafts(batch: pa.RecordBatch) -> Iterator[Draft]:
    """Records (schema `RECORDS`) cut into blocks, in their order."""
    for start, end in _cuts(batch):
        part = batch.slice(start, end - start)
        times = part.column("event_time").drop_null().cast(pa.int64()).to_numpy()
        marks = part.column("punctuation").drop_null().cast(pa.int64()).to_pylist()
        yield Draft(
            count=part.num_rows,
            payload=encode_payload(part.column("key"), part.column("value")),
            event_times=times,
            punctuations=tuple(marks),
            type=_common_type(part.column("type")),
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
    """The payload of these records; `offsets` only where they have gaps."""
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


def decode_payload(payload: bytes, *, first_offset: int, append_time: Instant) -> pa.RecordBatch:
    """The records of a payload, with the schema `FETCHED`."""
    if len(payload) < _PREFIX_BYTES or payload[0] != _VERSION or payload[1] & ~_SPARSE:
        raise LogError(
            f"block at offset {first_offset} has format {payload[:2].hex(' ') or 'nothing'}, this Tidewheel reads "
            f"version {_VERSION}: the log was written by a newer one, or is damaged"
        )
    sparse = bool(payload[1] & _SPARSE)
    stream = _BEGINNINGS[_SPARSE_SCHEMA if sparse else _DENSE_SCHEMA] + memoryview(payload)[_PREFIX_BYTES:]
    try:
        batch = pa.ipc.open_stream(stream, options=_READING).read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise LogError(f"block at offset {first_offset} is damaged: {error}") from error
    count = batch.num_rows
    offsets = batch.column("offset") if sparse else pa.array(np.arange(first_offset, first_offset + count))
    times = pa.array(np.full(count, append_time, dtype=np.int64)).view(FETCHED.field("append_time").type)
    return pa.RecordBatch.from_arrays([offsets, times, batch.column("key"), batch.column("value")], schema=FETCHED)


def encode_header(summary: Summary, *, type: str | None = None) -> bytes:
    """The header that keeps this summary, and the message type that all records carry if they carry one."""
    return BlockHeader(
        version=_VERSION,
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
        type=type or "",
    ).SerializeToString()


def type_in_header(data: bytes) -> str | None:
    """The message type that a header keeps."""
    return BlockHeader.FromString(data).type or None


def decode_header(data: bytes) -> Summary:
    """The summary that a header keeps."""
    header = BlockHeader.FromString(data)
    if header.version != _VERSION:
        raise LogError(
            f"a block's header has version {header.version}, this Tidewheel reads {_VERSION}: the log was written "
            f"by a newer one, or is damaged"
        )
    return Summary(
        count=header.count,
        append_time=header.append_time,
        min_event_time=header.min_event_time if header.HasField("min_event_time") else None,
        max_event_time=header.max_event_time if header.HasField("max_event_time") else None,
        max_plausible=(header.max_plausible_event_time if header.HasField("max_plausible_event_time") else None),
        future_tolerance=header.future_tolerance,
        untimed=header.untimed,
        skew=dict(zip(header.skew_bins, header.skew_counts, strict=True)),
        punctuations=tuple(header.punctuations),
    )
