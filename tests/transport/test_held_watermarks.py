"""What jobs tell of who holds their watermarks."""

from __future__ import annotations

from tidewheel.model.watermark_hold import Holder
from tidewheel.transport.held_watermarks import HOLDS_TOPIC, HeldWatermarks
from tidewheel.transport.log import Log

SECOND = 1_000_000
HOLDER = Holder("input.door", 2, since=5 * SECOND, mark=None, fed=5 * SECOND)


def test_what_one_tells_another_reads_until_it_is_taken_back(log: Log) -> None:
    job, reader = HeldWatermarks(log), HeldWatermarks(log)
    assert reader.all(now=0) == {}
    job.tell("cells", [HOLDER], now=10 * SECOND)
    assert reader.all(now=11 * SECOND) == {"cells": (HOLDER,)}
    job.tell("cells", [], now=12 * SECOND)
    assert reader.all(now=12 * SECOND) == {}


def test_it_is_told_seldom_and_what_nobody_repeats_is_forgotten(log: Log) -> None:
    job = HeldWatermarks(log)
    job.tell("cells", [], now=0)
    assert [info.name for info in log.topics()] == []
    for second in range(60):
        job.tell("cells", [HOLDER], now=second * SECOND)
    assert sum(batch.records.num_rows for batch in log.read(HOLDS_TOPIC, 0, 0)) == 2
    assert HeldWatermarks(log).all(now=119 * SECOND) == {"cells": (HOLDER,)}
    assert HeldWatermarks(log).all(now=121 * SECOND) == {}


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(log: Log) -> None:
    reader = HeldWatermarks(log)
    HeldWatermarks(log).tell("old", [HOLDER], now=0)
    assert list(reader.all(now=0)) == ["old"]
    log.delete_topic(HOLDS_TOPIC)
    HeldWatermarks(log).tell("new", [HOLDER], now=0)
    assert list(reader.all(now=0)) == ["new"]
