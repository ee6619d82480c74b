"""The two formats of a topic: what records of Kafka hold, and how offsets of the log follow from Kafka's.

`events`: one record of Kafka an event, key and value as they are, the append time as timestamp. Offsets are Kafka's.

`blocks`: one record of Kafka a block, whose value has the same bytes as in the embedded log, and whose header says how
many records there are, when they were appended, and what the block's own header says. An offset of the log is that of
the block in Kafka times 16,384, plus the place within the block. So it is known without asking, and rises, with gaps.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.errors import DefinitionError, MalformedError
from tidewheel.model.block_stats import BlockStats
from tidewheel.model.time import Duration, Instant
from tidewheel.transport.kafka.address import TopicFormat
from tidewheel.transport.kafka.client import RECORD_BYTES
from tidewheel.transport.log.block import BLOCK_RECORDS, Draft, decode_payload, drafts
from tidewheel.transport.log.block_header import Header, Place, checksum, decode_header, encode_header
from tidewheel.transport.log.log_types import FETCHED

__all__ = ["Message", "decode_block", "decode_events", "encode_messages", "kafka_offset", "log_offset"]

_BLOCK_BITS = 14
assert BLOCK_RECORDS < 1 << _BLOCK_BITS
_BLOCK_HEADER = "tidewheel-block"
_BEGINNING = struct.Struct("<qq")


def log_offset(form: TopicFormat, offset: int) -> int:
    """The log's offset of what begins at this offset of Kafka."""
    return offset << _BLOCK_BITS if form == "blocks" else offset


def kafka_offset(form: TopicFormat, offset: int) -> int:
    """Kafka's offset of the record that holds this offset of the log."""
    return offset >> _BLOCK_BITS if form == "blocks" else offset


@dataclass(frozen=True, slots=True)
class Message:
    """Records of one partition that are described by one entry of the index: one record of Kafka, or each as one.

    Args:
        count: How many records of the log.
        size: Their bytes in Kafka, before Kafka's own compression.
        header: What is known of them.
        records: What is given to Kafka's producer: key, value, headers.
    """

    count: int
    size: int
    header: Header
    records: Sequence[tuple[bytes | None, bytes, list[tuple[str, bytes]] | None]]


def encode_messages(
    form: TopicFormat, batch: pa.RecordBatch, *, partition: int, append_time: Instant, future_tolerance: Duration
) -> Iterator[Message]:
    """What a producer sends for these records (schema `RECORDS`) of one partition."""
    start = 0
    for draft in drafts(batch):
        part = batch.slice(start, draft.count)
        start += draft.count
        header = Header(
            draft.summary(append_time=append_time, future_tolerance=future_tolerance),
            type=draft.type,
            payload_checksum=draft.checksum,
        )
        if form == "blocks":
            yield _block(draft, header, partition, append_time)
        else:
            values, keys = part.column("value").to_pylist(), part.column("key").to_pylist()
            yield Message(
                count=draft.count,
                size=draft.raw_size,
                header=header,
                records=[(key, value, None) for key, value in zip(keys, values, strict=True)],
            )


def _block(draft: Draft, header: Header, partition: int, append_time: Instant) -> Message:
    if len(draft.payload) > RECORD_BYTES:
        raise DefinitionError(
            f"a record has {draft.raw_size:,} bytes, and a log on Kafka takes at most {RECORD_BYTES:,}. Keep large "
            "things in files and append where they are."
        )
    place = _place(partition, draft.count, len(draft.payload), append_time)
    content = _BEGINNING.pack(draft.count, append_time) + encode_header(header, place)
    return Message(
        count=draft.count,
        size=len(draft.payload),
        header=header,
        records=[(None, draft.payload, [(_BLOCK_HEADER, content)])],
    )


def _place(partition: int, count: int, size: int, append_time: Instant) -> Place:
    """The place of a block in its header: where it will be in Kafka is not known when that is written."""
    return Place(0, partition, 0, count, count, size, append_time)


def decode_block(message: Any) -> tuple[pa.RecordBatch, str | None, BlockStats]:
    """The records of a block (schema `FETCHED`), their type if they have the same, and what its header says.
    `MalformedError` if it is damaged, or no block."""
    data = dict(message.headers() or ()).get(_BLOCK_HEADER)
    payload = message.value()
    if not isinstance(data, bytes) or len(data) < _BEGINNING.size or payload is None:
        raise MalformedError("it is no block, though its topic holds blocks")
    count, append_time = _BEGINNING.unpack_from(data)
    header = decode_header(data[_BEGINNING.size :], _place(message.partition(), count, len(payload), append_time))
    if header.payload_checksum is None or checksum(payload) != header.payload_checksum:
        raise MalformedError("the checksum of its payload differs")
    records = decode_payload(
        payload,
        first_offset=log_offset("blocks", message.offset()),
        append_time=append_time,
        count=count,
        trusted=True,
    )
    return records, header.type, header.summary


def decode_events(messages: Sequence[Any]) -> pa.RecordBatch:
    """Records of Kafka as records of the log (schema `FETCHED`)."""
    times = np.array([message.timestamp()[1] for message in messages], dtype=np.int64) * 1_000
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array(times).view(FETCHED.field("append_time").type),
            pa.array([message.key() for message in messages], pa.binary()),
            # What deletes a key where Kafka compacts has no value.
            pa.array([message.value() or b"" for message in messages], pa.binary()),
        ],
        schema=FETCHED,
    )
