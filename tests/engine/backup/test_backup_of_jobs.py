"""Backups of a job that runs and is killed, while events come in: each of them goes on to exactly the right results."""

from __future__ import annotations

import os
import random
import threading
import time

import numpy as np
import polars as pl
import pytest

import tidewheel as tw
from tests.engine.exactly_once.windows import INPUT, JOB, RESULTS, expected, replayed
from tests.engine.orders import put_frame, read
from tests.support.driver_process import kill, start_driver, until_written, written
from tidewheel.engine.backup.backup import back_up
from tidewheel.engine.backup.restore import restore
from tidewheel.transport.open_log import open_log

pytestmark = pytest.mark.long

BLOCK = 200
AHEAD = 2_000
BACKUPS = 3

DRIVER = f"""
import sys
import tidewheel as tw
{JOB}
windows(tw.open_log(sys.argv[1]), sys.argv[2], available_now=False, max_events_per_batch=1_000).wait()
"""


@pytest.mark.slow
def test_every_backup_of_a_job_that_is_killed_goes_on_to_the_right_results(spark, log, tmp_path):
    chance = np.random.default_rng(11)
    blocks: list[pl.DataFrame] = []
    enough = threading.Event()

    def feed() -> None:
        with open_log(log.address, sync="normal") as own:
            while not enough.is_set():
                if len(blocks) * BLOCK - sum(own.committed("orders").values()) > AHEAD:
                    enough.wait(0.05)  # looks at a condition: what the job has read
                    continue
                begin = len(blocks) * 2.0
                at = np.sort(chance.uniform(begin, begin + 2, BLOCK)) - chance.exponential(1.5, BLOCK)
                block = pl.DataFrame(
                    {
                        "at": np.round(np.clip(at, 0, None), 3),
                        "country": chance.choice(["fi", "se", "no", "dk", "ee"], BLOCK),
                        "amount": chance.integers(1, 1_000, BLOCK),
                    }
                )
                blocks.append(block)
                put_frame(own, block, INPUT)

    feeder = threading.Thread(target=feed)
    feeder.start()
    moments = random.Random(3)
    checkpoint, errors = tmp_path / f"{os.path.basename(log.address)}.checkpoints" / "orders", tmp_path / "errors"
    try:
        driver = start_driver(DRIVER, log, checkpoint, errors)
        for number in range(BACKUPS):
            assert until_written(log, RESULTS, written(log, RESULTS) + 1, driver), errors.read_text()
            time.sleep(moments.uniform(0, 0.6))  # at any moment of the next batches
            assert driver.poll() is None, errors.read_text()
            if number == BACKUPS - 1:
                kill(driver, alone=True)  # its Java goes on for a moment
            back_up(log, tmp_path / f"backup{number}")
    finally:
        enough.set()
        feeder.join()
        if driver.poll() is None:
            kill(driver, alone=False)
    checkpoint.rename(tmp_path / "gone")  # what is restored has to do without it
    made = {"tw": tw}
    exec(JOB, made)
    orders = pl.concat(blocks)
    counts = []
    for number in range(BACKUPS):
        place = tmp_path / f"restored{number}"
        place.mkdir()
        restored = restore(tmp_path / f"backup{number}", place / "log.tw")
        with open_log(restored.log) as restored_log:
            # As far as its events go.
            options = {"spark": spark, "max_events_per_batch": 1_000}
            made["windows"](restored_log, restored.checkpoints["orders"], **options).wait()
            count = restored_log.topic_info(INPUT).count
            found = {
                (country, int(begin.timestamp() * 1_000_000)): values
                for (country, begin, _), values in replayed(read(restored_log, RESULTS)).items()
            }
            assert restored_log.topic_info("late.orders").count == 0
        assert found == expected(orders.head(count))
        counts.append(count)
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
