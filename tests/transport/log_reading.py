"""Reading a log in tests."""

from __future__ import annotations

from datetime import datetime, timezone

from tidewheel.transport.log import Batch, Log

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def values(batches: list[Batch]) -> list[bytes]:
    return [value for batch in batches for value in batch.records.column("value").to_pylist()]


def offsets(batches: list[Batch]) -> list[int]:
    return [offset for batch in batches for offset in batch.records.column("offset").to_pylist()]


def read(log: Log, topic: str, partition: int = 0) -> list[Batch]:
    return list(log.read(topic, partition, log.position(topic, partition, "earliest")))
