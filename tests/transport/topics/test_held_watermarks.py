"""What jobs tell of who holds their watermarks."""

from __future__ import annotations

from contextlib import suppress

from tidewheel.errors import DefinitionError
from tidewheel.model.watermark_hold import Holder
from tidewheel.topic_names import HOLDS_TOPIC
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.held_watermarks import HeldWatermarks

SECOND = 1_000_000
HOLDER = Holder("input.door", 2, since=5 * SECOND, mark=None, fed=5 * SECOND)


def test_what_one_reports_another_reads_until_it_is_retracted(log: Log) -> None:
    job, reader = HeldWatermarks(log), HeldWatermarks(log)
    assert reader.all(now=0) == {}
    job.report("cells", [HOLDER], now=10 * SECOND)
    assert reader.all(now=11 * SECOND) == {"cells": (HOLDER,)}
    job.report("cells", [], now=12 * SECOND)
    assert reader.all(now=12 * SECOND) == {}


def test_it_is_reported_seldom_and_what_nobody_repeats_is_forgotten(log: Log) -> None:
    job = HeldWatermarks(log)
    job.report("cells", [], now=0)
    assert [info.name for info in log.topics()] == []
    for second in range(60):
        job.report("cells", [HOLDER], now=second * SECOND)
    assert sum(batch.records.num_rows for batch in log.read(HOLDS_TOPIC, 0, 0)) == 2
    assert HeldWatermarks(log).all(now=119 * SECOND) == {"cells": (HOLDER,)}
    assert HeldWatermarks(log).all(now=121 * SECOND) == {}


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(log: Log) -> None:
    reader = HeldWatermarks(log)
    HeldWatermarks(log).report("old", [HOLDER], now=0)
    assert list(reader.all(now=0)) == ["old"]
    log.delete_topic(HOLDS_TOPIC)
    HeldWatermarks(log).report("new", [HOLDER], now=0)
    assert list(reader.all(now=0)) == ["new"]


def test_what_cannot_be_understood_is_passed_over(log: Log) -> None:
    strange = [b"{", b"[]", b'{"at": 1}', b'{"at": 1, "held": [{"topic": "x"}]}', b'{"at": null, "held": []}']
    later = b'{"at": 0, "held": [{"topic": "a", "partition": 0, "since": 0, "mark": null, "fed": 0, "more": 1}]}'
    log.create_topic(HOLDS_TOPIC, compact=True)
    log.append(HOLDS_TOPIC, records([*strange, later], keys=[b"%d" % n for n in range(6)]))
    with suppress(DefinitionError):  # a log may refuse what has no key
        log.append(HOLDS_TOPIC, records([later]))
    reader = HeldWatermarks(log)
    assert [(job, [holder.place for holder in held]) for job, held in reader.all(now=0).items()] == [("5", ["a/0"])]
    HeldWatermarks(log).report("cells", [HOLDER], now=0)
    assert "cells" in reader.all(now=0)
