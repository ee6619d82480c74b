"""The work of a reading task, in columns: fetch, decode, transform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from tidewheel.engine.datasource.batch_limit import AT_ONCE_BYTES
from tidewheel.engine.datasource.batch_planner import OffsetRange
from tidewheel.engine.datasource.options import RAW_COLUMNS, ReadOptions
from tidewheel.engine.datasource.reader_function import DecodedBatch, ReadInfo, SelectiveReaderFunction
from tidewheel.engine.spark.arrow_schema import to_spark
from tidewheel.engine.spark.worker import registry_for
from tidewheel.errors import MalformedError
from tidewheel.topic_names import dead
from tidewheel.transport.events.codec import decode_columns, encode, pack
from tidewheel.transport.events.event_pb2 import DeadLetter
from tidewheel.transport.log.damage import note_damage, pass_over
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Batch, OnDamage, records

__all__ = ["read_ranges"]

_INSTANT = pa.timestamp("us", "UTC")
_AT_ONCE = 200_000  # records decoded in one go: enough to make the cost of a call vanish, little enough for memory


def read_ranges(
    log: Log, options: ReadOptions, ranges: Sequence[OffsetRange], info: ReadInfo, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Read the rows of one task, in the schema that Spark expects."""
    decoded = (_batch(log, options, batch, info) for batch in _fetch(log, ranges, _on_damage(log, options, info)))
    results = options.transform(decoded, info) if options.transform else (batch.columns for batch in decoded)
    for result in results:
        yield to_spark(result, schema)


def _batch(log: Log, options: ReadOptions, batch: Batch, info: ReadInfo) -> DecodedBatch:
    if not options.types:
        return DecodedBatch(batch.topic, batch.partition, _raw(batch), size=batch.records.nbytes)
    function = options.transform
    only = function.columns.get(batch.topic) if isinstance(function, SelectiveReaderFunction) else None
    columns, fetched = _decoded(log, options, batch, info, only)

    def whole(rows: pa.Array) -> pa.RecordBatch:
        # What is malformed among the fields that were not asked for was not noticed: it is not to be now.
        chosen = fetched.take(rows)
        name = options.types[batch.topic]
        registry = registry_for(options.log, name)
        decoded = decode_columns(name, chosen.column("value"), registry=registry)
        if decoded.errors:
            decoded = decode_columns(name, chosen.column("value"), only=only, registry=registry)
        return _with_metadata(decoded.columns, options, batch, chosen, info)

    return DecodedBatch(
        batch.topic, batch.partition, columns, None if only is None else whole, size=batch.records.nbytes
    )


def _on_damage(log: Log, options: ReadOptions, info: ReadInfo) -> OnDamage | None:
    if not options.skip_damaged:
        return None
    return lambda damaged: note_damage(log, str(options.group), damaged, clock=info.clock)


def _fetch(log: Log, ranges: Sequence[OffsetRange], on_damage: OnDamage | None) -> Iterator[Batch]:
    """Read the records of each range, in batches worth decoding at once."""
    for span in ranges:
        held: list[Batch] = []
        count = size = 0
        for batch in log.read(span.topic, span.partition, span.start, end=span.end, on_damage=on_damage):
            held.append(batch)
            count += batch.records.num_rows
            size += batch.records.nbytes
            if count >= _AT_ONCE or size >= AT_ONCE_BYTES:
                yield _concat(held)
                held, count, size = [], 0, 0
        if held:
            yield _concat(held)


def _concat(batches: Sequence[Batch]) -> Batch:
    first = batches[0]
    if len(batches) == 1:
        return first
    types = {batch.type for batch in batches}
    together = pa.concat_batches([batch.records for batch in batches])
    return replace(first, records=together, type=first.type if len(types) == 1 else None)


def _raw(batch: Batch) -> pa.RecordBatch:
    count = batch.records.num_rows
    fetched = batch.records
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(batch.topic, count),
            pa.repeat(pa.scalar(batch.partition, pa.int32()), count),
            fetched.column("offset"),
            fetched.column("append_time"),
            fetched.column("key"),
            fetched.column("value"),
        ],
        schema=RAW_COLUMNS,
    )


def _decoded(
    log: Log, options: ReadOptions, batch: Batch, info: ReadInfo, only: frozenset[str] | None
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The events in columns, and their records."""
    name = options.types[batch.topic]
    registry = registry_for(options.log, name)
    values = batch.records.column("value")
    decoded = decode_columns(name, values, only=only, carried=batch.type, registry=registry)
    good = decoded.columns
    fetched = batch.records
    if decoded.errors or decoded.markers:
        fetched = fetched.take(decoded.rows)
    good = _with_metadata(good, options, batch, fetched, info)
    errors = [*decoded.errors, *_refused(options, batch.topic, good, decoded.rows)]
    if not errors:
        return good, fetched
    errors.sort()
    bad = batch.records.take(pa.array([row for row, _ in errors], pa.int64()))
    reasons = [reason for _, reason in errors]
    if options.malformed == "fail":
        raise MalformedError(
            f"topic {batch.topic!r} partition {batch.partition} offset {bad.column('offset')[0].as_py()}: {reasons[0]} "
            f"({len(reasons)} such records here). Read with malformed=keep or malformed=dead to go on without them"
        )
    if options.malformed == "dead":
        _write_dead_letters(log, dead(str(options.group)), str(options.group), batch, bad, reasons)
        return good, fetched
    rows = _with_metadata(
        pa.RecordBatch.from_arrays([pa.array(reasons, pa.string()), bad.column("value")], names=["_error", "_raw"]),
        options,
        batch,
        bad,
        info,
    )
    schema = pa.unify_schemas([good.schema, rows.schema])
    both = pa.concat_batches([to_spark(_nullable(part), _nullable_schema(schema)) for part in (good, rows)])
    return both, pa.concat_batches([fetched, bad])


def _refused(options: ReadOptions, topic: str, good: pa.RecordBatch, rows: pa.Array) -> list[tuple[int, str]]:
    """The places of rows that can be decoded but that the function inside the reader refuses, with the reasons. The
    function gets these rows all the same, and ignores them."""
    function = options.transform
    found = function.refused(topic, good) if isinstance(function, SelectiveReaderFunction) else {}
    return [(rows[place].as_py(), reason) for place, reason in found.items()]


def _with_metadata(
    columns: pa.RecordBatch, options: ReadOptions, batch: Batch, fetched: pa.RecordBatch, info: ReadInfo
) -> pa.RecordBatch:
    count = columns.num_rows
    made = {
        "_topic": lambda: pa.repeat(batch.topic, count),
        "_partition": lambda: pa.repeat(pa.scalar(batch.partition, pa.int32()), count),
        "_offset": lambda: fetched.column("offset"),
        "_key": lambda: fetched.column("key"),
        "_append_time": lambda: fetched.column("append_time"),
        "_clock": lambda: pa.repeat(pa.scalar(info.clock, _INSTANT), count),
    }
    for name in options.metadata:
        columns = columns.append_column(name, made[name]())
    return columns


def _nullable_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def _nullable(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, schema=_nullable_schema(batch.schema))


def _write_dead_letters(
    log: Log, topic: str, source: str, batch: Batch, bad: pa.RecordBatch, reasons: Sequence[str]
) -> None:
    """Write dead letters, those of each block once: a task that runs again, perhaps with other blocks, finds them under
    the block's name. The ids distinguish topics from deleted ones of the same names."""
    log.ensure_topic(topic)
    ids = f"{log.topic_info(topic).id}:{log.topic_info(batch.topic).id}"
    offsets = bad.column("offset").to_pylist()
    first = batch.records.column("offset")[0].as_py()
    for block in log.blocks(batch.topic, batch.partition, offsets[0], end=offsets[-1] + 1, on_damage=pass_over):
        letters, times = [], []
        for row, offset in enumerate(offsets):
            if block.first_offset <= offset < block.next_offset:
                raw = bad.column("value")[row].as_py()
                letter = DeadLetter(source=source, reason=reasons[row], topic=batch.topic, raw=raw)
                appended = block.summary.append_time
                letters.append(encode(pack(letter, event_time=appended, ingestion_time=appended)))
                times.append(appended)
        if letters:
            name = f"{topic}:{batch.topic}:{ids}:{batch.partition}:{max(first, block.first_offset)}"
            log.producer(name, fence=False).append({topic: records(letters, event_times=times)}, sequence=0)
