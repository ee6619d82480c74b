"""Valid events, mutated where it hurts a decoder, by the batch: into the log, into a job's reader, onto the live map.

Nothing dies, and every event is accounted for.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from tests.support.ingest_support import dead_letters, eventually
from tidewheel.engine.datasource.batch_planner import OffsetRange
from tidewheel.engine.datasource.batch_reader import read_ranges
from tidewheel.engine.datasource.options import ReadOptions
from tidewheel.engine.datasource.reader_function import ReadInfo
from tidewheel.engine.spark.arrow_schema import arrow_schema
from tidewheel.ingest.message import Message
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.ingest.processors.events import EventProcessor
from tidewheel.model.time import now
from tidewheel.serve.layers.catalogue import Catalogue
from tidewheel.serve.view.feed import Feed
from tidewheel.serve.view.history import History
from tidewheel.serve.view.view import View
from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import type_name
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel_transit.transit_pb2 import Arrival, VehicleCell, VehiclePosition

os.environ["RUST_BACKTRACE"] = "0"  # a panic is cheap, its backtrace is not
BATCH = 500
SIZES = [pytest.param(3_000, id="few"), pytest.param(20_000, id="many", marks=pytest.mark.long)]
NOW = 1_772_432_130_250_000
LENGTHS = [0, 1, 127, 128, 2**14, 2**31, 2**32 - 1, 2**63 - 1, 2**63, *(2**64 - less for less in range(1, 14))]


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def valid(choose: random.Random, kind: type) -> bytes:
    message = {
        VehiclePosition: lambda: VehiclePosition(
            mode="bus", operator=18, vehicle=choose.randrange(2_000), lat=60.1, lon=24.9, speed=-1.5, route="1071"
        ),
        VehicleCell: lambda: VehicleCell(mode="tram", operator=40, vehicle=choose.randrange(200), lat=60.1, lon=24.9),
        Arrival: lambda: Arrival(stop="1140447", vehicle=-7),
    }[kind]()
    return codec.encode(codec.pack(message, event_time=NOW + choose.randrange(10**9), ingestion_time=NOW))


def mutated(choose: random.Random, event: bytes) -> bytes:
    """With a length, a tag or a bit that is another, or with a piece missing, doubled, or put in."""
    what = choose.randrange(7)
    place = choose.randrange(len(event))
    if what <= 1:  # the length or number at this place becomes an absurd one
        return event[:place] + varint(choose.choice(LENGTHS)) + event[place + 1 :]
    if what == 2:  # a field that nobody knows, with an absurd length
        tag = varint(choose.choice([1, 2, 3, 4, 100, 2**29 - 1]) << 3 | choose.randrange(8))
        return event[:place] + tag + varint(choose.choice(LENGTHS)) + event[place:]
    if what == 3:
        changed = bytearray(event)
        for _ in range(choose.randint(1, 3)):
            changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
        return bytes(changed)
    if what == 4:
        return event[:place]
    if what == 5:  # groups within groups
        return event[:place] + b"\x0b" * choose.choice([1, 99, 101, 5_000, 20_000]) + event[place:]
    return event[:place] + event[choose.randrange(len(event)) :]


@cache
def events(count: int, kind: type, *others: type) -> Sequence[bytes]:
    """All but one in ten are mutated, and some of these only seem so."""
    choose = random.Random(f"{kind.__name__} {count}")
    found = []
    for _ in range(count):
        event = valid(choose, choose.choice([kind] * 9 + [*others]) if others else kind)
        found.append(mutated(choose, event) if choose.random() < 0.9 else event)
    return found


def batches(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (values[first : first + BATCH] for first in range(0, len(values), BATCH))


@pytest.mark.parametrize("count", SIZES)
def test_ingestion_accounts_for_every_mutated_event(log: Log, count: int) -> None:
    given = events(count, VehiclePosition, Arrival)
    pipeline = Pipeline(log, EventProcessor())
    for values in batches(given):
        pipeline([Message("input.fuzz", value, NOW) for value in values])
    report = pipeline.report()
    assert report.received == count == sum(report.topics.values()) + sum(report.dead.values())
    assert "processor-failed" not in report.dead
    letters = dead_letters(log, "events")
    assert len(letters) == sum(report.dead.values()) > count // 20
    assert any("broke off" in letter.reason for letter in letters), "or none makes the decoder panic any more"
    kept = pa.concat_arrays([batch.records["value"] for batch in log.read("input.fuzz", 0, 0)])
    assert len(kept) == report.topics["input.fuzz"] > count // 10
    assert not codec.decode_envelopes(kept).errors


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("typed", [False, True], ids=["of any type", "of a known type"])
def test_a_job_s_reader_accounts_for_every_mutated_event(log: Log, count: int, typed: bool) -> None:
    count = count if typed else count // 10
    given = events(count, VehiclePosition, *(() if typed else (Arrival,)))
    kind = type_name(VehiclePosition)
    for values in batches(given):
        log.append("a", records(values, type=kind if typed else None))
    options = ReadOptions.of({"log": log.address, "topics": "a", "type": kind, "malformed": "dead", "group": "g"})
    schema = arrow_schema(options.schema())
    rows = 0
    for first in range(0, count, 10 * BATCH):
        piece = OffsetRange("a", 0, first, min(first + 10 * BATCH, count))
        for batch in read_ranges(log, options, [piece], ReadInfo(None, None, 0, 0, 1), schema):
            batch.validate(full=True)
            rows += batch.num_rows
    letters = dead_letters(log, "g")
    assert rows + len(letters) == count
    assert len(letters) > count // 20
    assert any("broke off" in letter.reason for letter in letters)


@pytest.mark.parametrize("count", SIZES)
def test_the_live_map_accounts_for_every_mutated_event(log: Log, count: int) -> None:
    given = events(count, VehicleCell)
    feed = Feed(log, Catalogue(log), View(), History(limit=256 << 20))
    log.append("analytics.vehicle-cell", records([valid(random.Random(1), VehicleCell)]))
    feed.start()
    try:
        for values in batches(given):
            log.append("analytics.vehicle-cell", records(values))
        stats = feed.status.stats_of("analytics.vehicle-cell")
        end = {("analytics.vehicle-cell", 0): count + 1}
        while stats.count + stats.bad < count + 1:
            assert feed.running
            assert not feed.health()
            log.wait(end, 0.05)
        assert stats.bad > count // 20
        assert stats.count + stats.bad == count + 1
        last = codec.pack(VehicleCell(operator=1, vehicle=999_999, lat=60.1, lon=24.9), event_time=now())
        log.append("analytics.vehicle-cell", records([codec.encode(last)]))
        eventually(lambda: "1/999999" in feed.view["vehicles"].items, "what comes next is shown")
    finally:
        feed.stop()
    assert feed.failure is None


def test_the_mutations_reach_what_is_behind_the_checks() -> None:
    given = events(3_000, VehiclePosition)
    decoded = codec.decode_columns(VehiclePosition, pa.array(given))
    reasons = {reason.rpartition(": ")[2] for _, reason in decoded.errors}
    assert len(reasons) >= 8
    assert len(decoded.rows) + len(decoded.errors) + decoded.markers == 3_000
    assert np.all(np.diff(decoded.rows.to_numpy()) > 0)
