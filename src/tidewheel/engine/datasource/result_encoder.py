"""Encodes exchange batches for the sink: every output of every flow becomes events in its topic."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from tidewheel.engine.datasource.output_encoding import Encodings, OutputEncoding
from tidewheel.engine.runtime.arrow_ipc import parts_of
from tidewheel.engine.runtime.exchange import ExchangeBatch, attribute_errors
from tidewheel.engine.runtime.exchange_parts import Clock, Watermark
from tidewheel.engine.spark.worker import registry_for
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME
from tidewheel.model.time import Instant
from tidewheel.transport.events.codec import encode_columns, punctuation
from tidewheel.transport.events.rows import key_of
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.log.partitioner import partition_of

__all__ = ["encoded", "markers", "watermarks_of"]

_ALL = b"all"


def watermarks_of(data: bytes) -> dict[str, Instant]:
    """The watermarks in an exchange batch, by flow."""
    return {part.flow: part.reached for part in parts_of(data) if isinstance(part, Watermark)}


def encoded(data: bytes, targets: Encodings, address: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Encode the outputs of an exchange batch as records, by topic. Outputs without a target are left out. All
    records carry the clock of their batch, which is the same when the batch is repeated; the sink adds when they are
    written."""
    clock = next((part.time for part in parts_of(data) if isinstance(part, Clock)), None)
    for flow, output, frame in ExchangeBatch.outputs(data):
        target = targets.get((flow, output))
        if target is not None and frame.height:
            with attribute_errors(flow):
                found = _records(frame, target, address, clock)
            yield target.topic, found


def _records(frame: pl.DataFrame, target: OutputEncoding, address: str, clock: Instant | None) -> pa.RecordBatch:
    time = pl.col("event_time").cast(pl.Datetime("us", "UTC")).cast(pl.Int64)
    # No clock shows what is beyond these; the row's reason says that its time was absurd.
    times = frame.select(pl.when(time.is_between(START_OF_TIME, END_OF_TIME - 1)).then(time)).to_series()
    event_time = times.cast(pl.Datetime("us", "UTC")).to_arrow()
    values = encode_columns(
        target.type,
        frame.select(target.columns),
        event_time=event_time,
        batch_time=clock,
        registry=registry_for(address, target.type),
    )
    # Results without a key stay together, so that a retraction is read after what it retracts.
    keys = pa.repeat(pa.scalar(_ALL, pa.binary()), frame.height) if target.marked else None
    if target.key:
        oldest = pl.CompatLevel.oldest()
        keys = key_of([frame[name].rechunk().to_arrow(compat_level=oldest) for name in target.key])
    return records(values, keys=keys, event_times=event_time, type=target.type)


def markers(log: Log, topic: str, watermark: Instant) -> pa.RecordBatch:
    """A punctuation for each partition of a topic: everything before it was written."""
    partitions = log.topic_info(topic).partitions
    marker = punctuation(watermark)
    if partitions == 1:
        return marker
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < partitions:
        key = b"\0%d" % number
        found.setdefault(partition_of(key, partitions), key)
        number += 1
    keyed = [marker.set_column(0, marker.schema.field(0), pa.array([key], pa.binary())) for key in found.values()]
    return pa.concat_batches(keyed)
