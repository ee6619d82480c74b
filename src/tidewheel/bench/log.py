"""The log alone: how fast events get into it, and how much room they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from tidewheel.apps.transit.transit_pb2 import VehiclePosition
from tidewheel.bench.events import TOPIC, columns_of, encoded
from tidewheel.bench.figures import Figure, best_rate
from tidewheel.transport import codec
from tidewheel.transport.log import open_log, records

__all__ = ["appends", "room"]

_BATCH = 1_000


def appends(frame: pl.DataFrame, folder: Path) -> list[Figure]:
    """Encode and append in batches of 1,000, in columns and one message at a time."""
    parts = [columns_of(part) for part in frame.iter_slices(_BATCH)]
    rows = [part.to_dicts() for part in frame.head(frame.height // 8).iter_slices(_BATCH)]

    def in_columns() -> None:
        with open_log(folder / "columns.tw") as log:
            for part in parts:
                log.append(TOPIC, encoded(part))

    def one_at_a_time() -> None:
        with open_log(folder / "single.tw") as log:
            for part in rows:
                log.append(TOPIC, records([_single(row) for row in part], event_times=[_micros(row) for row in part]))

    columns = best_rate(frame.height, in_columns)
    single = best_rate(sum(map(len, rows)), one_at_a_time)
    group = "Appending, encoded, in batches of 1,000, each durable on disk"
    return [
        Figure(group, "encoded in columns", columns, "events/s", "at least 200,000", columns >= 200_000),
        Figure(group, "encoded one message at a time", single, "events/s"),
        Figure(group, "ratio", columns / single, "x", "at least 5", columns / single >= 5),
    ]


def room(frame: pl.DataFrame, folder: Path) -> list[Figure]:
    """Bytes per event as JSON and as binary: the events themselves, and what their blocks take on disk."""
    some = frame.head(20_000)
    binary = encoded(columns_of(some))
    texts = [codec.encode(codec.decode(value), format="json") for value in binary.column("value").to_pylist()]
    as_json = records(texts, event_times=binary.column("event_time"))
    plain, stored = {}, {}
    for name, batch in (("json", as_json), ("binary", binary)):
        plain[name] = sum(map(len, batch.column("value").to_pylist())) / some.height
        with open_log(folder / f"{name}.tw") as log:
            for start in range(0, some.height, _BATCH):
                log.append(TOPIC, batch.slice(start, _BATCH))
            stored[name] = log.topic_info(TOPIC).size / some.height
    share = 100 * plain["binary"] / plain["json"]
    stored_share = 100 * stored["binary"] / stored["json"]
    group = "Room for a vehicle position"
    return [
        Figure(group, "as JSON", plain["json"], "bytes"),
        Figure(group, "as binary", plain["binary"], "bytes"),
        Figure(group, "binary against JSON", share, "%"),
        Figure(group, "as JSON, in compressed blocks on disk", stored["json"], "bytes"),
        Figure(group, "as binary, in compressed blocks on disk", stored["binary"], "bytes"),
        Figure(
            group,
            "binary against JSON, in compressed blocks on disk",
            stored_share,
            "%",
            "at most 40",
            stored_share <= 40,
        ),
        Figure(
            group,
            "binary in compressed blocks against plain JSON",
            100 * stored["binary"] / plain["json"],
            "%",
        ),
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
