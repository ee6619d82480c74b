"""Orders to put into logs, and results to read from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from tidewheel.transport.events import event_pb2
from tidewheel.transport.events.codec import decode_columns, encode_columns
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.events.schema_inference import define_message, generated_type_name
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.types import load_types, publish_types

INPUT = "input.order"
SCHEMA = {"at": pl.Float64, "country": pl.String, "amount": pl.Int64}


def put(log: Log, *rows: tuple[float, str, int]) -> None:
    """Append orders (seconds since 1970, country, amount) as one block."""
    put_frame(log, pl.DataFrame(list(rows), schema=SCHEMA, orient="row"))


def put_frame(log: Log, frame: pl.DataFrame, topic: str = INPUT) -> None:
    """Append orders as one block."""
    types = TypeRegistry()
    types.register(event_pb2)
    name = define_message(types, "order", pa.schema({"country": pa.string(), "amount": pa.int64()}))
    publish_types(log, types, [name])
    times = (frame["at"] * 1_000_000).cast(pl.Int64).cast(pl.Datetime("us", "UTC")).to_arrow()
    log.append(
        topic, records(encode_columns(name, frame.drop("at"), event_time=times, registry=types), event_times=times)
    )


def read(log: Log, topic: str) -> pl.DataFrame:
    """All events of a topic, without markers, in the order of the log."""
    types = TypeRegistry()
    types.register(event_pb2)
    load_types(log, types)
    frames = []
    info = log.topic_info(topic)
    for partition in range(info.partitions):
        for batch in log.read(topic, partition, info.first_offsets[partition]):
            decoded = decode_columns(generated_type_name(topic), batch.records.column("value"), registry=types)
            assert not decoded.errors
            frames.append(pl.from_arrow(decoded.columns))
    assert all(isinstance(frame, pl.DataFrame) for frame in frames)
    return pl.concat(frames) if frames else pl.DataFrame()


def rows(log: Log, topic: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """These columns of all events of a topic."""
    frame = read(log, topic)
    return frame.select(columns).rows() if frame.height else []
