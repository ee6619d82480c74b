"""A job with a result for each event."""

from __future__ import annotations

from collections import Counter

from tests.engine.engine_data import START, positions
from tests.engine.topic_frames import values
from tidewheel.transport.events import codec
from tidewheel.transport.log.log import Log
from tidewheel_transit.transit_pb2 import VehicleCell

EVENTS = 36_000
BLOCK = 500
INPUT, RESULTS = "input.vehicle-position", "analytics.vehicle-cell"

JOB = """
from tidewheel_transit.jobs import vehicle_cell

def cells(log, checkpoint, **options):
    options = {"available_now": True, "max_events_per_batch": 3_000, **options}
    return tw.run(vehicle_cell, log=log, checkpoint=checkpoint, **options)
"""


def fill(log: Log) -> None:
    """One position after the other."""
    for first in range(0, EVENTS, BLOCK):
        log.append(INPUT, positions(range(first, first + BLOCK)))


def check(log: Log) -> None:
    """Every result is there once."""
    found: Counter[int] = Counter()
    for value in values(log, RESULTS):
        event = codec.decode(value)
        if event.details.type_url.endswith(".Punctuation"):
            continue
        message = VehicleCell.FromString(event.details.value)
        number = (message.operator - 1) * 100_000 + message.vehicle
        assert event.event_time.ToMicroseconds() == START + number * 1_000_000
        found[number] += 1
    assert found == Counter(range(EVENTS))
