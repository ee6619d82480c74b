"""Logs for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel.transport.events import codec
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import Arrival


@pytest.fixture
def small_log(tmp_path: Path) -> Path:
    """A log with five arrivals of three vehicles."""
    path = tmp_path / "small.tw"
    values = [
        codec.encode(
            codec.pack(
                Arrival(mode="bus", operator=18, vehicle=n % 3, lat=60.17, stop=str(n)), event_time=n * 1_000_000
            )
        )
        for n in range(5)
    ]
    with open_log(path) as log:
        keys = [f"18/{n % 3}".encode() for n in range(5)]
        log.append("input.arrival", records(values, keys=keys, event_times=[n * 1_000_000 for n in range(5)]))
    return path
