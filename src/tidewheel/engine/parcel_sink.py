"""What a sink does with parcels: every output of every flow becomes events in its topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.engine.halves import CLOCK, TICK, Parcel, blamed
from tidewheel.engine.workers import registry_for
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME
from tidewheel.model.time import Instant
from tidewheel.transport.codec import encode_columns, punctuation
from tidewheel.transport.log import Log, records
from tidewheel.transport.partitioner import partition_of

__all__ = ["ParcelTarget", "encoded", "markers", "watermarks_of"]

_ALL = b"all"


@dataclass(frozen=True)
class ParcelTarget:
    """The topic of an output, its message type, the columns that fill the message, and those that make the key.
    `marked`: the topic also gets the query's watermark, for those who read it."""

    topic: str
    type: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    marked: bool


def watermarks_of(data: bytes) -> dict[str, Instant]:
    """The watermarks that a parcel tells, by flow."""
    return {flow: int(frame["watermark"][0]) for flow, port, frame in Parcel.read(data) if port == TICK}


def encoded(
    data: bytes, targets: Mapping[tuple[str, str], ParcelTarget], address: str
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of a parcel by topic. Outputs without a target are left out: nobody asked for them. All carry
    the clock of their batch, which is the same when the batch is repeated; the sink adds when they are written."""
    frames = Parcel.read(data)
    clock = next((int(frame["clock"][0]) for _, port, frame in frames if port == CLOCK), None)
    for flow, port, frame in frames:
        target = targets.get((flow, port))
        if target is not None and frame.height:
            with blamed(flow):
                found = _records(frame, target, address, clock)
            yield target.topic, found


def _records(frame: pl.DataFrame, target: ParcelTarget, address: str, clock: Instant | None) -> pa.RecordBatch:
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
        keys = pc.binary_join_element_wise(*(_part(frame[name]) for name in target.key), b"/")
    return records(values, keys=keys, event_times=event_time, type=target.type)


def _part(column: pl.Series) -> pa.Array:
    """A column of the key: bytes as they are, anything else as text."""
    part = column if column.dtype == pl.Binary else column.cast(pl.String).cast(pl.Binary)
    return part.fill_null(b"").to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.binary())


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
