"""A running job whose watermark is held says by whom, to those who ask it and to those who look at the log."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

import tidewheel as tw
from tests.engine.orders import INPUT, put
from tidewheel.model.time import now
from tidewheel.serve.view.status import Status
from tidewheel.transport.topics.held_watermarks import HeldWatermarks


def test_an_empty_partition_that_holds_the_watermark_is_named(spark, log, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tidewheel.model.watermark_hold.HELD_AFTER", 1_000_000)
    log.create_topic(INPUT, partitions=2)
    put(log, (time.time(), "fi", 1))  # without keys: all in one of the two
    (empty,) = [number for number, end in enumerate(log.topic_info(INPUT).next_offsets) if end == 0]
    sums = tw.stream(log, INPUT).key_by("country").window(tw.windows.tumbling("5 s")).aggregate(n=tw.agg.count())
    began = now()
    run = tw.run(sums.named("sums"), log=log, checkpoint=tmp_path / "run", spark=spark)
    try:
        while not (held := run.progress().held_by):
            assert not run.wait(0.1), "it ended"
        assert run.progress().lag == 0
        assert run.progress().watermark is None
        (holder,) = held
        assert (holder.topic, holder.partition, holder.mark) == (INPUT, empty, None)
        assert began <= holder.since <= now()
        command = [sys.executable, "-m", "tidewheel.cli", "topics", "--log", log.address, "--json"]
        reported = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        (warning,) = reported["warnings"]
        assert warning["what"] == "Watermark of sums"
        assert warning["found"].startswith(f"held by {INPUT}/{empty} for ")
        assert warning["found"].endswith(": never an event")
        assert 'idle="1 min"' in warning["fix"]
        (shown,) = Status(log).sum_up(log.topics(), now=now())["held"]
        assert shown["job"] == "sums"
        assert shown["by"] == [{"topic": INPUT, "partition": empty, "since": holder.since // 1_000}]
        assert shown["moved"] is False
    finally:
        run.stop()
    assert HeldWatermarks(log).all(now=now()) == {}
