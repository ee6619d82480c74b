"""Every result once, although the driver is killed again and again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from engine_data import START, positions
from test_sink import values

from tidewheel.apps.transit.transit_pb2 import VehicleCell
from tidewheel.errors import TopicNotFoundError
from tidewheel.transport import codec
from tidewheel.transport.log import Log

EVENTS = 120_000
BLOCK = 500
BATCH = 4_000
KILLS = 10
INPUT, RESULTS = "input.vehicle-position", "analytics.vehicle-cell"

DRIVER = """
import sys
from tidewheel.apps.transit.jobs import vehicle_cell
from tidewheel.engine.launch import run
from tidewheel.transport.log import open_log

log = open_log(sys.argv[1])
run = run(vehicle_cell, log=log, checkpoint=sys.argv[2], available_now=True, max_events_per_batch=4_000)
run.wait()
"""


def launch(log: Log, checkpoint: Path, errors: Path) -> subprocess.Popen[bytes]:
    with errors.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, log.address, str(checkpoint)], stderr=file, start_new_session=True
        )


def results(log: Log) -> int:
    try:
        return log.topic_info(RESULTS).count
    except TopicNotFoundError:
        return 0


def await_results(log: Log, count: int, driver: subprocess.Popen[bytes]) -> bool:
    """Until there are so many results; False if the driver ended before."""
    while results(log) < count:
        if driver.poll() is not None:
            return False
        time.sleep(0.01)  # looks at a condition: the next moment in which to kill
    return True


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_result_is_there_once_although_the_driver_is_killed(log, tmp_path):
    for first in range(0, EVENTS, BLOCK):
        log.append(INPUT, positions(range(first, first + BLOCK)))
    chance = random.Random(20)
    checkpoint, errors = tmp_path / "checkpoint", tmp_path / "errors"
    kills = 0
    while kills < KILLS:
        driver = launch(log, checkpoint, errors)
        batches = chance.choice([0, 1, 1, 2, 2, 3])
        if batches == 0:
            time.sleep(chance.uniform(0, 8))  # while it starts, or in its first batch
        else:
            reached = await_results(log, min(results(log) + (batches - 1) * BATCH + 1, EVENTS), driver)
            assert reached, errors.read_text()
            time.sleep(chance.uniform(0, 0.4))  # at any moment of the next batch
        if chance.random() < 0.5:
            os.killpg(driver.pid, signal.SIGKILL)  # driver, Java and workers at once
        else:
            driver.send_signal(signal.SIGKILL)  # the driver alone; its Java goes on for a moment
        driver.wait()
        kills += 1
    driver = launch(log, checkpoint, errors)
    assert driver.wait(300) == 0, errors.read_text()

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
