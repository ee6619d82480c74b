"""Key groups: keys are hashed to a fixed number of them, and each has its state and its own Spark partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from tidewheel.model.key_hash import key_hash

__all__ = ["key_group_ids", "by_key_group"]


def by_key_group(frame: pl.DataFrame, keys: Sequence[str], key_groups: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Partition rows by key group, in their order; key groups without rows are left out."""
    if key_groups == 1:
        yield 0, frame
        return
    numbered = frame.with_columns((key_hash(frame, keys) % key_groups).cast(pl.Int32).alias("__key_group"))
    for (number,), part in sorted(numbered.partition_by("__key_group", as_dict=True, maintain_order=True).items()):
        yield int(number), part.drop("__key_group")


def key_group_ids(key_groups: int) -> list[int]:
    """For each key group a number that Spark's hash partitioning sends to a partition of its own, if there are as many
    partitions as key groups: evenly spread work needs that. The first of all numbers is among them however many there
    are, so that this key group can tell that there were others.

    >>> len(set(key_group_ids(8)))
    8
    >>> all(0 in key_group_ids(number) for number in range(1, 100))
    True
    """
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < key_groups:
        found.setdefault(_spark_hash(candidate) % key_groups, candidate)
        candidate += 1
    return [found[number] for number in range(key_groups)]


def _spark_hash(value: int) -> int:
    """Murmur3 of an int as Spark partitions by it (seed 42)."""
    mask = 0xFFFFFFFF

    def rotated(number: int, by: int) -> int:
        return ((number << by) | (number >> (32 - by))) & mask

    k = (rotated((value * 0xCC9E2D51) & mask, 15) * 0x1B873593) & mask
    h = (rotated(42 ^ k, 13) * 5 + 0xE6546B64) & mask
    h ^= 4
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & mask
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & mask
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h
