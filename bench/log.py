"""The log alone: how fast events get into it, and how much room they take."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from bench.events import TOPIC, columns_of, encoded
from bench.figures import Figure, best_rate, with_aim
from tidewheel.transport.events import codec
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import VehiclePosition

__all__ = ["appends", "room"]

_BATCH = 1_000


def appends(frame: pl.DataFrame, folder: Path, *, repeat: int) -> list[Figure]:
    """Encode and append the same events in batches of 1,000, in columns and one message at a time."""
    parts = [columns_of(part) for part in frame.iter_slices(_BATCH)]
    rows = [part.to_dicts() for part in frame.iter_slices(_BATCH)]

    def in_columns(log: Log) -> None:
        for part in parts:
            log.append(TOPIC, encoded(part))

    def one_at_a_time(log: Log) -> None:
        for part in rows:
            log.append(TOPIC, records([_single(row) for row in part], event_times=[_micros(row) for row in part]))

    def rates(clock: Callable[[], float]) -> list[float]:
        found = []
        for work in (in_columns, one_at_a_time):
            # Whoever appends keeps the log open: its journal has its length from the first run on.
            with open_log(folder / f"{work.__name__}.tw") as log:
                found.append(best_rate(frame.height, partial(work, log), repeat=repeat, clock=clock))
        return found

    columns, single = rates(time.perf_counter)
    busy_columns, busy_single = rates(time.process_time)
    group = "Appending, encoded, in batches of 1,000, each durable on disk"
    return [
        Figure(group, "encoded in columns", columns, "events/s", "at least 200,000", columns >= 200_000),
        Figure(group, "encoded one message at a time", single, "events/s"),
        with_aim(group, "ratio", columns / single, "x", least=5),
        Figure(group, "ratio of processor time, without what both wait for the disk", busy_columns / busy_single, "x"),
    ]


def room(frame: pl.DataFrame, folder: Path) -> list[Figure]:
    """Bytes per event as JSON and as binary: the events themselves, and the files of logs that hold them."""
    some = frame.head(20_000)
    binary = encoded(columns_of(some))
    texts = [codec.encode(codec.decode(value), format="json") for value in binary.column("value").to_pylist()]
    as_json = records(texts, event_times=binary.column("event_time"))
    plain, stored = {}, {}
    for name, batch in (("json", as_json), ("binary", binary)):
        plain[name] = sum(map(len, batch.column("value").to_pylist())) / some.height
        path = folder / f"{name}.tw"
        with open_log(path) as log:
            for start in range(0, some.height, _BATCH):
                log.append(TOPIC, batch.slice(start, _BATCH))
        stored[name] = path.stat().st_size / some.height  # closed: nothing is left in SQLite's journal
    parquet = folder / "room.parquet"
    some.write_parquet(parquet, compression="zstd")
    group = "Room for a vehicle position"

    def share(name: str, part: float, whole: float) -> Figure:
        return with_aim(group, name, 100 * part / whole, "%", most=40)

    return [
        Figure(group, "as JSON", plain["json"], "bytes"),
        Figure(group, "as binary", plain["binary"], "bytes"),
        share("binary against JSON", plain["binary"], plain["json"]),
        Figure(group, "the log's file, binary", stored["binary"], "bytes"),
        share("the log's file, binary, against JSON as it is", stored["binary"], plain["json"]),
        # Compression leaves of both encodings what they say, which is the same. Digits of JSON take less room then than
        # the same numbers as floats, whose bits look random; Parquet shows how little is left to win.
        Figure(group, "the log's file, JSON", stored["json"], "bytes"),
        share("the log's file, binary against JSON, both compressed", stored["binary"], stored["json"]),
        Figure(group, "the same columns as Parquet, compressed", parquet.stat().st_size / some.height, "bytes"),
    ]


def _single(row: dict[str, Any]) -> bytes:
    fields = {name: value for name, value in row.items() if value is not None}
    event_time, arrival_time = fields.pop("event_time"), fields.pop("arrival_time")
    event = codec.pack(VehiclePosition(**fields), event_time=None)
    event.event_time.FromDatetime(event_time)
    event.ingestion_time.FromDatetime(arrival_time)
    return codec.encode(event)


def _micros(row: dict[str, Any]) -> int:
    return int(row["event_time"].timestamp() * 1_000_000)
