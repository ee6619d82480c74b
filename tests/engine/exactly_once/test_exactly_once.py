"""Every result once, although the driver is killed again and again."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.engine.engine_data import START, positions
from tests.engine.topic_frames import values
from tests.support.driver_process import kill, start_driver, until_written, written
from tidewheel.transport.events import codec
from tidewheel_transit.transit_pb2 import VehicleCell

EVENTS = 120_000
BLOCK = 500
BATCH = 4_000
KILLS = 10
CUT = 3
"""So many of the kills must fall into a batch, at least."""
INPUT, RESULTS = "input.vehicle-position", "analytics.vehicle-cell"

DRIVER = """
import sys
from tidewheel.engine.jobs.run import run
from tidewheel.transport.open_log import open_log
from tidewheel_transit.jobs import vehicle_cell

log = open_log(sys.argv[1])
run = run(vehicle_cell, log=log, checkpoint=sys.argv[2], available_now=True, max_events_per_batch=4_000)
run.wait()
"""


def unfinished(checkpoint: Path) -> set[str]:
    """The batches that were begun and not finished."""
    begun, done = (
        {path.name for path in (checkpoint / "spark" / kind).glob("*") if path.name.isdigit()}
        for kind in ("offsets", "commits")
    )
    return begun - done


@pytest.mark.slow
def test_every_result_is_there_once_although_the_driver_is_killed(log, tmp_path):
    for first in range(0, EVENTS, BLOCK):
        log.append(INPUT, positions(range(first, first + BLOCK)))
    chance = random.Random(20)
    checkpoint, errors = tmp_path / "checkpoint", tmp_path / "errors"
    kills = cut = 0
    while kills < KILLS or cut < CUT:
        driver = start_driver(DRIVER, log, checkpoint, errors)
        batches = chance.choice([0, 1, 1, 2, 2, 3])
        if batches == 0:
            time.sleep(chance.uniform(0, 8))  # while it starts, or in its first batch
        else:
            wanted = min(written(log, RESULTS) + (batches - 1) * BATCH + 1, EVENTS)
            assert until_written(log, RESULTS, wanted, driver), errors.read_text()
            time.sleep(chance.uniform(0, 0.4))  # at any moment of the next batch
        kill(driver, alone=chance.random() >= 0.5)
        cut += bool(unfinished(checkpoint))
        kills += 1
    driver = start_driver(DRIVER, log, checkpoint, errors)
    assert driver.wait(300) == 0, errors.read_text()
    assert not unfinished(checkpoint)

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
