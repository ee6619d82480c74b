"""Orders in Parquet files, which Spark reads one a micro-batch."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame, SparkSession

SCHEMA = "ordered_at TIMESTAMP, customer STRING, amount BIGINT"
START = 1_774_742_400  # 29 March 2026, 00:00 UTC, an hour before Europe's clocks go forward
Order = tuple[int, str, int]
"""The second after the start, the customer and the amount."""


def write_orders(folder: Path, files: Sequence[Sequence[Order]]) -> None:
    """Write the files so that Spark reads them in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    for orders in files:
        number = len(list(folder.iterdir()))
        path = folder / f"{number}.parquet"
        frame = pl.DataFrame(list(orders), schema=["second", "customer", "amount"], orient="row")
        at = ((pl.col("second") + START) * 1_000_000).cast(pl.Datetime("us", "UTC")).alias("ordered_at")
        frame.select(at, "customer", "amount").write_parquet(path)
        os.utime(path, (START + number, START + number))


def read_orders(spark: SparkSession, folder: Path) -> DataFrame:
    """The orders as a stream, a file a micro-batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def disordered(seed: int, *, files: int, size: int) -> list[list[Order]]:
    """Orders of a few customers over hours, out of order and with gaps between them; amounts are different."""
    chance = random.Random(seed)
    amounts = iter(range(1, files * size + 1))
    return [
        [
            (max(0, number * 1_800 + chance.randint(-3_000, 1_800)), chance.choice("abcde"), next(amounts))
            for _ in range(size)
        ]
        for number in range(files)
    ]
