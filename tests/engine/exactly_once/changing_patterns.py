"""Patterns that change while a job runs, through SIGKILLs: every match and every dropped partial match once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

import tidewheel as tw
from tests.engine.orders import put_frame, read
from tidewheel.engine.datasource.batch_planner import first_offset, plan_batch
from tidewheel.engine.operators.operator import REPORTS, BatchTime, MemoryStore
from tidewheel.engine.operators.patterns.dynamic_patterns import DynamicPatterns
from tidewheel.engine.operators.patterns.pattern import DynamicPatternsOperator
from tidewheel.engine.spark.worker import registry_for
from tidewheel.model.watermarks import ControlTopic
from tidewheel.transport.events.codec import decode_columns
from tidewheel.transport.log.log import Log

BLOCKS, BLOCK, PER_BATCH = 60, 100, 500
INPUT, CONTROL, RESULTS = "input.order", "control.patterns", "analytics.found"
WATERMARK = tw.watermarks.bounded("2 s", future=None)
OUTPUTS = {"results": RESULTS, "timed_out": "timed.out", "dropped": "dropped"}
COLUMNS = ["country", "pattern", "version", "match_start", "match_end"]

JOB = """
def changing_patterns(log, checkpoint, **options):
    found = (
        tw.stream(log, "input.order", watermark=tw.watermarks.bounded("2 s", future=None))
        .key_by("country")
        .match_from(log.topic("control.patterns"))
    )
    return found.start(
        results=log.topic("analytics.found"),
        outputs={"timed_out": log.topic("timed.out"), "dropped": log.topic("dropped")},
        checkpoint=checkpoint, available_now=True, max_events_per_batch=500, **options,
    )
"""


def fill(log: Log) -> None:
    """Orders, and every now and then a pattern that comes, changes or goes."""
    chance = np.random.default_rng(5)
    registry = tw.PatternRegistry(log.topic(CONTROL))
    for number in range(BLOCKS):
        if number % 4 == 1:
            most = int(chance.integers(100, 900))
            rise = tw.pattern("low", pl.col("amount") < most).followed_by("high", pl.col("amount") > most + 50)
            registry.put(f"rise{number % 3}", rise.within("2 s"), measures={"by": tw.measures.last("high.amount")})
        if number % 15 == 14:
            registry.remove(registry.list()[0].name)
        times = number * 2 + np.sort(chance.uniform(0, 2, BLOCK)) - chance.exponential(0.3, BLOCK)
        orders = {
            "at": np.round(np.clip(times, 0, None), 3),
            "country": chance.choice(["fi", "se", "no", "dk", "ee"], BLOCK),
            "amount": chance.integers(1, 1_000, BLOCK),
        }
        put_frame(log, pl.DataFrame(orders))


def batches(log: Log, kind: str) -> Iterator[tuple[dict[str, pl.DataFrame], BatchTime]]:
    """What each batch holds, by topic, and its time."""
    types = {INPUT: kind, CONTROL: "tidewheel.v1.PatternDefinition"}
    strategies = {INPUT: WATERMARK, CONTROL: ControlTopic()}
    before = first_offset(log, list(types), "earliest", clock=0)
    while (after := plan_batch(log, strategies, before, limit=PER_BATCH, clock=0, tick=1)) is not before:
        frames: dict[str, list[pl.DataFrame]] = {}
        for (topic, partition), end in after.positions.items():
            for batch in log.read(topic, partition, before.positions[topic, partition], end=end):
                registry = registry_for(log.address, types[topic])
                decoded = decode_columns(types[topic], batch.records.column("value"), registry=registry)
                frames.setdefault(topic, []).append(pl.DataFrame(pl.from_arrow(decoded.columns)))
        together = {topic: pl.concat(parts) for topic, parts in frames.items()}
        yield together, BatchTime(before.watermark, after.watermark, after.clock)
        before = after


def undisturbed(log: Log) -> dict[str, list[tuple[Any, ...]]]:
    """The same batches in one go, in this process, without Spark and without key groups."""
    kind = "tidewheel.results.Order"
    schema = {"event_time": pl.Datetime("us", "UTC"), "country": pl.String(), "amount": pl.Int64()}
    patterns = DynamicPatterns(CONTROL, ("country",), schema)
    operator, store = DynamicPatternsOperator(patterns, ("country",)), MemoryStore()
    found: dict[str, list[pl.DataFrame]] = {}
    for frames, batch_time in batches(log, kind):
        reported = []
        if CONTROL in frames:
            reported.append(
                operator.on_control(
                    store, patterns.accepted([frames[CONTROL]]).with_columns(pl.lit(True).alias(REPORTS)), batch_time
                )
            )
        orders = frames.get(INPUT)
        if orders is not None:
            orders = orders.with_columns(pl.col("event_time").cast(pl.Int64).alias("__time"))
            orders, _ = operator.split_late(orders, batch_time.watermark_before)
        reported.append(operator.step(store, orders, batch_time))
        for outputs in reported:
            for name, frame in outputs.items():
                found.setdefault(name, []).append(frame)
    return {name: rows(pl.concat(frames)) for name, frames in found.items()}


def rows(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    extra = [name for name in ("measures", "stage", "reason") if name in frame.columns]
    return sorted(frame.select(*COLUMNS, *extra, "event_time").rows(), key=repr)


def check(log: Log) -> None:
    """All outputs are those of the same batches in one go."""
    expected = undisturbed(log)
    assert all(len(expected[name]) > 20 for name in OUTPUTS), {name: len(found) for name, found in expected.items()}
    assert {row[1] for row in expected["results"]} == {"rise0", "rise1", "rise2"}
    assert {row[-2].split()[0] for row in expected["dropped"]} == {"replaced", "removed"}
    for name, topic in OUTPUTS.items():
        assert rows(read(log, topic)) == expected[name], name
