"""The log as a Spark sink that writes each batch once: `df.writeStream.format("tidewheel")`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidewheel.engine.checkpoint.batch_identity import BatchIdentity, producer_name, wrote_before
from tidewheel.engine.datasource.options import RAW_COLUMNS, WriteOptions
from tidewheel.engine.datasource.result_encoder import encoded, markers, watermarks_of
from tidewheel.engine.datasource.result_topics import refuse_others_results
from tidewheel.engine.operators.operator import METRICS
from tidewheel.engine.spark.arrow_schema import arrow_schema
from tidewheel.engine.spark.worker import registry_for, shared_log, warm_worker
from tidewheel.errors import DefinitionError, LogError
from tidewheel.model.time import Instant, now
from tidewheel.transport.events.codec import ENVELOPE_COLUMNS, encode_columns, with_ingestion_time
from tidewheel.transport.events.registry import types
from tidewheel.transport.events.row_type import RowType, grow_row_type
from tidewheel.transport.events.rows import check_columns, event_times, key_of, row_records
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.types import publish_types

__all__ = ["BatchSink", "StreamSink"]

_SPECIAL = (*ENVELOPE_COLUMNS, "_topic", "_key")
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass
class _Written(WriterCommitMessage):
    """The records that one task has encoded. They reach the log only when all have."""

    query: str | None
    topics: dict[str, bytes]
    watermarks: dict[str, Instant] = field(default_factory=dict)


class _Sink:
    """The part that both sinks share: tasks encode, the driver appends everything in one transaction."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise DefinitionError('a topic can only be appended to; use .mode("append") or outputMode("append")')
        self._options = WriteOptions.of(options)
        columns = arrow_schema(schema)
        self._made = _makes_type(self._options, columns)
        """Whether the type is made of the columns."""
        self._time = self._options.time or "event_time"
        self._type = _made_type(self._options, columns, self._time) if self._made else self._options.type
        self._columns = [] if self._made else _fields(self._options, columns)
        # Raw values are written as they are, and rows may bring an ingestion time of their own.
        self._stamps = self._options.encodings is not None or (
            self._type is not None and "ingestion_time" not in schema.names
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Encode the rows of one task, in a worker."""
        warm_worker()
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        parts: dict[str, list[pa.RecordBatch]] = {}
        watermarks: dict[str, Instant] = {}
        for batch in iterator:
            if self._options.encodings is None:
                found = self._rows(batch)
            else:
                exchange_batches = batch.column("batch_bytes").to_pylist()
                for data in exchange_batches:
                    watermarks |= watermarks_of(data)
                found = (
                    some
                    for data in exchange_batches
                    for some in encoded(data, self._options.encodings, self._options.log)
                )
            for topic, some in found:
                parts.setdefault(topic, []).append(some)
        return _Written(query, {topic: _dump(batches) for topic, batches in sorted(parts.items())}, watermarks)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if batch.num_rows:
            rows, topics = self._encode(batch)
            yield from _by_topic(rows, topics, self._options.topic)

    def _encode(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        if self._made:
            registry = registry_for(self._options.log, str(self._type))
            kind = RowType(str(self._type), registry, topic_id="")
            times = event_times(batch.column(self._time), name=self._time)
            return row_records(kind, batch, times=times, key=self._options.key), None
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        count = batch.num_rows
        event_time = columns.get("event_time", pa.nulls(count, pa.timestamp("us", "UTC")))
        if self._options.type is None:
            values = columns["value"]
            if values.null_count:
                raise LogError("a row to be written has no value (null); leave such rows out, or give them one")
        else:
            values = encode_columns(
                self._options.type,
                batch.select(self._columns),
                event_time=event_time,
                ingestion_time=columns.get("ingestion_time"),
                registry=registry_for(self._options.log, self._options.type),
            )
        keys = columns.get("_key")
        if self._options.key:
            keys = key_of([columns[name] for name in self._options.key])
        return records(values, keys=keys, event_times=event_time, type=self._options.type), columns.get("_topic")

    def _append(self, messages: list[WriterCommitMessage | None], batch_id: int | None) -> None:
        written = [message for message in messages if isinstance(message, _Written)]
        # Now, not when the batch was planned: how long it took belongs to how long its results took.
        written_at = now() if self._stamps else None
        merged: dict[str, list[pa.RecordBatch]] = {}
        for message in written:
            for topic, data in message.topics.items():
                merged.setdefault(topic, []).extend(_load(data, written_at))
        log = shared_log(self._options.log, create=True)
        watermarks = {flow: watermark for message in written for flow, watermark in message.watermarks.items()}
        for (flow, _), target in sorted((self._options.encodings or {}).items()):
            if target.marked and flow in watermarks:
                # Last of all: who reads it knows that everything before the watermark was read.
                merged.setdefault(target.topic, []).append(markers(log, target.topic, watermarks[flow]))
        query = next((message.query for message in written if message.query), None)
        if batch_id is not None and query:
            self._append_once(log, query, batch_id, merged)
        elif batch_id is not None and merged:
            raise LogError(
                f"batch {batch_id} of a stream to {', '.join(merged)} came without the id of its query (Spark's local "
                "property sql.streaming.queryId), so that it would be written twice if Spark repeats it; start the "
                'query with df.writeStream.format("tidewheel"), on PySpark 4.2 or later'
            )
        elif merged:
            # A batch write has no identity that would outlive it: nobody repeats it but the user.
            self._publish(log)
            log.producer(f"spark:{uuid.uuid4()}", fence=False).append(_joined(merged), sequence=0)

    def _append_once(self, log: Log, query: str, number: int, merged: Mapping[str, list[pa.RecordBatch]]) -> None:
        """Append a batch of a query unless it is there. Also one that writes nothing must fit what was written; where
        every batch is to be noted, so is that one."""
        batch = BatchIdentity.of(self._options.checkpoint, number)
        every = self._options.encodings is not None or self._options.every_batch
        name = producer_name(query)
        producer = log.producer(name, fence=False)
        if batch.is_repeat(producer, self._options.checkpoint) or not (merged or every):
            return
        if producer.sequence < 0:
            self._publish(log)
        wrote, writes = wrote_before(producer), not merged.keys().isdisjoint(self._results(merged))
        if writes and not wrote:
            refuse_others_results(log, self._options.exclusive, self._options.checkpoint)
        state = batch.added_to(producer.state, wrote=wrote or writes)
        if self._options.fsync:
            batch.make_durable(self._options.checkpoint)
        receipt = producer.append(_joined(merged), sequence=number, state=state)
        if receipt.duplicate:  # another driver was faster, with the same batch or with another one
            batch.is_repeat(log.producer(name, fence=False), self._options.checkpoint)

    def _results(self, merged: Iterable[str]) -> Iterable[str]:
        """The topics that would hold everything twice if two queries wrote it; metrics say which run they are of."""
        if self._options.encodings is None:
            return merged
        return {target.topic for (_, output), target in self._options.encodings.items() if output != METRICS}

    def _publish(self, log: Log) -> None:
        # What this process has never heard of came from the log.
        if self._options.type is not None and registry_for(self._options.log, self._options.type) is types:
            publish_types(log, types, [self._options.type])


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """Appends a batch and its identity (query, number, offsets) in one transaction: a batch that Spark repeats after a
    crash is recognized and not written again, and another one of the same number is refused."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Append what all tasks encoded; called on the driver when they have ended well."""
        self._append(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: no record has reached the log yet."""


class BatchSink(_Sink, DataSourceArrowWriter):
    """Appends a DataFrame, all of it or nothing."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append what all tasks encoded; called on the driver when they have ended well."""
        self._append(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: no record has reached the log yet."""


def _makes_type(options: WriteOptions, schema: pa.Schema) -> bool:
    """Whether a message type is made of the columns: not if one is named, nor for values that are bytes already."""
    if options.encodings is not None or options.type is not None:
        if options.time is not None:
            raise DefinitionError('the option "time" is for rows without "type"; with one, call the column event_time')
        return False
    if options.time is not None or "value" not in schema.names:
        return True
    kind = schema.field("value").type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return False
    return not pa.types.is_string(kind) or not {*schema.names} <= {*RAW_COLUMNS.names, *_SPECIAL}


def _made_type(options: WriteOptions, schema: pa.Schema, time: str) -> str:
    """The type of the topic's rows, which has a field for each column now."""
    if options.topic is None:
        raise DefinitionError(
            'where to? Give the option "topic": each topic has a type of its own, or say "type" as well'
        )
    what = f'format("tidewheel") to {options.topic}'
    if time not in schema.names:
        raise DefinitionError(
            f'{what}: which column has the event time? Say .option("time", "..."); there are {", ".join(schema.names)}'
        )
    fields = check_columns(schema, time=time, key=options.key, what=what)
    return grow_row_type(shared_log(options.log, create=True), options.topic, pa.schema(fields)).name


def _fields(options: WriteOptions, schema: pa.Schema) -> list[str]:
    """The columns that fill the message; all that is wrong with the rows is said before the first comes."""
    names = schema.names
    if options.encodings is not None:
        return []
    if options.topic is None and "_topic" not in names:
        raise DefinitionError('where to? Give the option "topic", or a column _topic')
    missing = [name for name in options.key if name not in names]
    if missing:
        raise DefinitionError(f"the key names a column {missing[0]!r} that is not there; there are {', '.join(names)}")
    if options.type is None:
        return []
    if "event_time" not in names:
        raise DefinitionError("the rows need a column event_time: every event has one")
    fields = registry_for(options.log, options.type).schema(options.type)
    columns = [name for name in names if name not in _SPECIAL]
    strange = [name for name in columns if name not in fields.names]
    if strange:
        raise DefinitionError(
            f"{options.type} has no field {', '.join(map(repr, strange))}; its fields: {', '.join(fields.names)}"
        )
    return columns


def _joined(parts: Mapping[str, list[pa.RecordBatch]]) -> dict[str, pa.RecordBatch]:
    return {topic: pa.concat_batches(some) for topic, some in sorted(parts.items())}


def _by_topic(
    encoded: pa.RecordBatch, topics: pa.Array | None, default: str | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of each topic; a row's own topic goes before the sink's."""
    if topics is None:
        yield str(default), encoded
        return
    if default is not None:
        topics = pc.fill_null(topics, default)
    if topics.null_count:
        raise LogError('a row to be written has no topic: its _topic is null and the option "topic" is not given')
    for topic in pc.unique(topics).to_pylist():
        yield topic, encoded.filter(pc.equal(topics, topic))


def _dump(batches: list[pa.RecordBatch]) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, batches[0].schema, options=_PACKED) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(buffer.getvalue())


def _load(data: bytes, ingestion_time: Instant | None) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(data) as stream:
        batches = list(stream)
    if ingestion_time is None:
        return batches
    return [
        batch.set_column(
            place := batch.schema.get_field_index("value"),
            batch.schema.field(place),
            with_ingestion_time(batch.column(place), ingestion_time),
        )
        for batch in batches
    ]
