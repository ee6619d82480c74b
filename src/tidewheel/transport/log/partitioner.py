"""Assign records to partitions as librdkafka's `consistent` partitioner does."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

__all__ = ["partition_of", "partitioned"]


def partition_of(key: bytes, partitions: int) -> int:
    """Choose the partition that a key belongs to.

    >>> partition_of(b"18/423", 4), partition_of(b"", 4)
    (3, 0)
    """
    return zlib.crc32(key) % partitions


def partitioned(batch: pa.RecordBatch, partitions: int, *, unkeyed: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Split records by partition, in their order; those without a key go to `unkeyed`."""
    if partitions == 1:
        yield 0, batch
        return
    keys = batch.column("key").dictionary_encode()
    numbers = [partition_of(key, partitions) for key in keys.dictionary.to_pylist()]
    chosen = np.array([*numbers, unkeyed])[keys.indices.fill_null(len(numbers)).to_numpy()]
    for partition in np.unique(chosen).tolist():
        yield partition, batch.filter(pa.array(chosen == partition))
