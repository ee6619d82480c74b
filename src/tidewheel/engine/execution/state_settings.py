"""The settings that stateful queries need: RocksDB, and a shuffle partition for each key group."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from tidewheel.engine.execution.session import SETTINGS
from tidewheel.errors import DefinitionError, SetupError

__all__ = ["check_state_store", "key_group_count", "partition_each_key_group", "warn_of_empty_partitions"]


_PARTITIONS = "spark.sql.shuffle.partitions"

_FEW_PARTITIONS = 32
"""How many partitions may stay empty without a warning."""

_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"


def key_group_count(spark: SparkSession, given: int | None) -> int:
    """The number of key groups of a query: as requested, else the number of shuffle partitions, at most 64."""
    number = given if given is not None else int(str(spark.conf.get(_PARTITIONS)))
    if number < 1:
        raise DefinitionError(f"key groups must be at least 1, got {number}")
    return min(number, 64) if given is None else number


def warn_of_empty_partitions(spark: SparkSession, key_groups: int, given: int | None) -> None:
    """Warn of partitions that will stay empty: for the query of a DataFrame, the session decides how many there are."""
    partitions = int(str(spark.conf.get(_PARTITIONS)))
    if partitions > max(2 * key_groups, _FEW_PARTITIONS):
        context: Any = getattr(spark, "_sc", None)  # a client of Spark Connect has none
        enough = given or (8 if context is None else int(context.defaultParallelism))
        warnings.warn(
            f"this session has {_PARTITIONS} = {partitions}, and the result {key_groups} key groups: in every "
            f"micro-batch Spark opens and commits the state of all partitions, {partitions - key_groups} of them "
            "empty, which takes many times as long as the work. Before the query is first started (the number is in "
            f'its checkpoint), say spark.conf.set("{_PARTITIONS}", "{enough}")',
            stacklevel=4,
        )


def check_state_store(spark: SparkSession) -> None:
    """Refuse a session that cannot keep state, before a checkpoint is made: it would remember the wrong store."""
    chosen = str(spark.conf.get(_STATE_STORE))
    if "RocksDB" not in chosen:
        raise SetupError(
            f"this needs a Spark session that keeps state in RocksDB, and yours has {chosen.rpartition('.')[2]}; use "
            f'tidewheel.session(), or say before: spark.conf.set("{_STATE_STORE}", "{SETTINGS[_STATE_STORE]}")'
        )


@contextmanager
def partition_each_key_group(spark: SparkSession, key_groups: int) -> Iterator[None]:
    """Set one partition per key group for a query that is started now: a partition without a key group costs each batch
    as much as one with. (A running query keeps its settings; one with a checkpoint keeps the number of partitions in
    it.)"""
    before = str(spark.conf.get(_PARTITIONS))
    spark.conf.set(_PARTITIONS, str(key_groups))
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, before)
