"""Positions of vehicles that drive, brake, stand and sometimes stop hard: events to find patterns in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from bench.streams import BATCHES, START, Dataset, write_file
from tidewheel.transport.events.codec import encode_columns
from tidewheel.transport.events.registry import type_name, types
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.types import publish_types
from tidewheel_transit.transit_pb2 import VehiclePosition

__all__ = ["TOPIC", "drives", "position_dataset"]

TOPIC = "input.vehicle-position"
_COLUMNS = "event_time TIMESTAMP, operator INT, vehicle INT, speed FLOAT"
_DISORDER = 900_000  # µs: positions are out of order by less than a second
_BLOCK = 5_000
_WARM = 60
_DRIVING, _BRAKING, _STANDING = 0, 1, 2


def drives(count: int, vehicles: int, *, seed: int = 1) -> pl.DataFrame:
    """So many positions, one a second of each vehicle, in the order in which they arrive.

    A vehicle gets up to speed, and about once in a minute and a half brakes at 0.5 to 0.9 m/s², so that it takes more
    than ten seconds from 10 m/s, or, once in twenty times, at 3 to 6; then it stands for 10 to 30 seconds.

    >>> frame = drives(20_000, 50)
    >>> frame.height, frame["vehicle"].n_unique(), frame["event_time"].is_sorted()
    (20000, 50, False)
    >>> 0.2 < (frame["speed"] >= 10).mean() < 0.8, (frame["acc"] < -3).any()
    (True, True)
    """
    random = np.random.default_rng(seed)
    seconds = -(-count // vehicles)
    phase = random.choice([_DRIVING, _STANDING], vehicles, p=[0.8, 0.2])
    target = random.uniform(8, 17, vehicles)
    speed = np.where(phase == _DRIVING, target, 0.0)
    rate = np.zeros(vehicles)
    wait = random.integers(0, 30, vehicles)
    speeds, changes = np.empty((seconds, vehicles), np.float32), np.empty((seconds, vehicles), np.float32)
    for second in range(-_WARM, seconds):
        driving, braking, standing = (phase == one for one in (_DRIVING, _BRAKING, _STANDING))
        noise = random.normal(0, 0.15, vehicles)
        new = np.where(driving, speed + np.clip(target - speed, -1.0, 1.0) + noise, speed)
        new = np.where(braking, speed - rate + noise, new)
        new = np.where(standing, 0.0, np.clip(new, 0, None))
        begins = driving & (random.random(vehicles) < 1 / 90)
        hard = random.random(vehicles) < 0.05
        gentle, strong = random.uniform(0.5, 0.9, vehicles), random.uniform(3, 6, vehicles)
        rate = np.where(begins, np.where(hard, strong, gentle), rate)
        stopped = braking & (new < 0.5)
        wait = np.where(stopped, random.integers(10, 30, vehicles), wait - 1)
        goes = standing & (wait <= 0)
        target = np.where(goes, random.uniform(8, 17, vehicles), target)
        phase = np.where(begins, _BRAKING, np.where(stopped, _STANDING, np.where(goes, _DRIVING, phase)))
        if second >= 0:
            speeds[second], changes[second] = new, new - speed
        speed = new
    number = np.tile(np.arange(vehicles, dtype=np.int32), seconds)
    offset = random.integers(0, 1_000_000, vehicles)
    times = START + np.repeat(np.arange(seconds, dtype=np.int64) * 1_000_000, vehicles) + offset[number]
    order = np.argsort(times + random.integers(0, _DISORDER, len(times)), kind="stable")[:count]
    number, times = number[order], times[order]
    return pl.DataFrame(
        {
            "event_time": pl.Series(times).cast(pl.Datetime("us", "UTC")),
            "mode": np.where(number % 5 == 0, "tram", "bus"),
            "operator": (number % 9 + 1).astype(np.int32),
            "vehicle": number,
            "lat": 60.2 + (number % 101) * 1e-3,
            "lon": 24.9 + (number % 103) * 1e-3,
            "speed": speeds.ravel()[order],
            "acc": changes.ravel()[order],
            "heading": (number * 7 % 360).astype(np.int32),
            "route": pl.Series(number % 200).cast(pl.String),
        }
    )


def position_dataset(folder: Path, events: int, vehicles: int) -> Dataset:
    """Write positions once, to be read many times."""
    name = f"positions-{events}-{vehicles}"
    log = open_log(folder / f"{name}.tw")
    publish_types(log, types, [type_name(VehiclePosition)])
    per_batch = events // BATCHES
    frame = drives(per_batch * BATCHES, vehicles)
    fields = [name for name in types.schema(VehiclePosition).names if name in frame.columns]
    for batch, part in enumerate(frame.iter_slices(per_batch)):
        for block in part.iter_slices(_BLOCK):
            times = block["event_time"].to_arrow()
            values = encode_columns(VehiclePosition, block.select(fields), event_time=times, ingestion_time=times)
            log.append(TOPIC, records(values, event_times=times, type=type_name(VehiclePosition)))
        write_file(folder / f"{name}.files", batch, part.select("event_time", "operator", "vehicle", "speed"))
    return Dataset(
        per_batch * BATCHES, vehicles, log, folder / f"{name}.files", TOPIC, type_name(VehiclePosition), _COLUMNS
    )
