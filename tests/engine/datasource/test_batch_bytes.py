"""How large batches are in bytes, and how much of one a task holds."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql.types import _parse_datatype_string

from tests.engine.engine_data import START
from tidewheel.engine.datasource import batch_limit
from tidewheel.engine.datasource.backfill import SuspendedFlows, plan_catch_up
from tidewheel.engine.datasource.batch_limit import raw_size
from tidewheel.engine.datasource.batch_planner import OffsetRange, first_offset, plan_batch
from tidewheel.engine.datasource.batch_reader import read_ranges
from tidewheel.engine.datasource.options import ReadOptions
from tidewheel.engine.datasource.reader_function import ReadInfo
from tidewheel.engine.execution.map_side_reader import MapSideReader
from tidewheel.engine.jobs.run import run
from tidewheel.engine.runtime.exchange_rows import EXCHANGE
from tidewheel.engine.spark.arrow_schema import arrow_schema
from tidewheel.engine.streams.stream_factory import stream
from tidewheel.errors import DefinitionError
from tidewheel.model import aggregates as agg
from tidewheel.model.watermarks import bounded
from tidewheel.model.windows import tumbling
from tidewheel.transport.events.codec import encode, pack
from tidewheel.transport.events.registry import type_name
from tidewheel.transport.log.block_header import Place, decode_header
from tidewheel.transport.log.log_types import records
from tidewheel_transit.transit_pb2 import VehiclePosition

INPUT = "input.vehicle-position"
MB = 1 << 20


def large(number: int, size: int, *, noise: bool = False) -> bytes:
    """A position with so many bytes of text in it."""
    text = os.urandom(size // 2).hex() if noise else "x" * size
    position = VehiclePosition(vehicle=number, speed=1.0, journey=text)
    at = START + number * 1_000_000
    return encode(pack(position, event_time=at, ingestion_time=at))


def fill(log, count: int, size: int, **options) -> None:
    for number in range(count):
        at = [START + number * 1_000_000]
        log.append(INPUT, records([large(number, size, **options)], event_times=at, type=type_name(VehiclePosition)))


def batches(log, **limits) -> list[int]:
    """The records of each batch until all are read."""
    strategies = {INPUT: bounded("1 s")}
    offset, sizes = first_offset(log, [INPUT], "earliest", clock=0), []
    while (after := plan_batch(log, strategies, offset, clock=1, tick=0, **limits)) is not offset:
        sizes.append(after.positions[INPUT, 0] - offset.positions[INPUT, 0])
        offset = after
    return sizes


def test_a_block_knows_how_large_its_records_are_before_compression(log):
    fill(log, 1, MB)
    log.append(INPUT, records([b"a" * 100] * 50, keys=[b"key"] * 50))
    first, second = log.blocks(INPUT, 0, 0)
    assert first.size < MB / 10 < MB <= raw_size(first) < 1.1 * MB
    assert 50 * 103 <= raw_size(second) < 50 * 103 + 1_000
    old = decode_header(
        b"\x08\x01\x10\x01", Place(1, 0, 0, 1, 1, 10, 0)
    ).summary  # as earlier versions wrote it: the size is estimated
    assert old.raw_size == 0
    assert batch_limit.raw_size(type(first)("t", 0, 0, 1, 1_000, old)) == 4_000


def test_a_batch_ends_where_it_has_enough_bytes_but_takes_one_block_at_least(log):
    fill(log, 7, 100_000)
    assert batches(log, limit=None) == [7]
    assert batches(log, limit=None, limit_bytes=350_000) == [3, 3, 1]
    assert batches(log, limit=2, limit_bytes=350_000) == [2, 2, 2, 1]
    assert batches(log, limit=100, limit_bytes=10) == [1] * 7


def test_flows_that_catch_up_keep_to_it_too(log):
    fill(log, 7, 100_000)
    strategies = {INPUT: bounded("1 s")}
    begin = first_offset(log, [INPUT], "earliest", clock=0)
    reached = plan_batch(log, strategies, begin, limit=None, clock=1, tick=0)
    waiting = SuspendedFlows().suspend("flow", "why", begin).resume()
    after = plan_catch_up(log, strategies, reached, reached, waiting, limit=None, limit_bytes=250_000, clock=2)
    (catch_up,) = after.catch_ups.values()
    assert catch_up.end.positions[INPUT, 0] == 2


def test_the_option_is_checked():
    given = {"log": "x.tw", "topics": "a"}
    assert ReadOptions.of(given).max_bytes == 256 * MB
    assert ReadOptions.of({**given, "maxBytesPerBatch": "1000"}).max_bytes == 1_000
    with pytest.raises(DefinitionError, match="'maxBytesPerBatch' must be a whole number above 0"):
        ReadOptions.of({**given, "maxBytesPerBatch": "0"})


def test_a_batch_that_was_planned_too_large_is_read_in_pieces(spark, log, monkeypatch):
    """With a limit that is smaller, so that it takes less: what is held at a time, and that nothing is missing."""
    monkeypatch.setattr("tidewheel.engine.datasource.batch_reader.AT_ONCE_BYTES", 250_000)
    monkeypatch.setattr("tidewheel.engine.execution.map_side_reader.AT_ONCE_BYTES", 250_000)
    fill(log, 20, 100_000)
    counts = (
        stream(log, INPUT, type=VehiclePosition).key_by("vehicle").window(tumbling("10 s")).aggregate(n=agg.count())
    )
    reader = MapSideReader([counts.flow()], 2)
    held: list[int] = []

    def watched(decoded, info):
        def seen():
            for batch in decoded:
                held.append(batch.size)
                yield batch

        return reader(seen(), info)

    watched.columns = reader.columns
    options = ReadOptions(log.address, (INPUT,), types={INPUT: type_name(VehiclePosition)}, metadata=("_append_time",))
    object.__setattr__(options, "transform", watched)
    info = ReadInfo(None, START, START, 0, 1)
    schema = arrow_schema(_parse_datatype_string(EXCHANGE))
    found = list(read_ranges(log, options, [OffsetRange(INPUT, 0, 0, 20)], info, schema))
    assert len(held) == 7
    assert max(held) < 400_000
    assert len(found) == 7
    places = [place for batch in found for place in batch.column("task").to_pylist()]
    assert places == sorted(places)
    assert len(found[0]) == 2  # every key group gets the time, once


def test_large_records_run_through_in_batches_of_bounded_size(spark, log, tmp_path):
    fill(log, 12, MB, noise=True)
    rows = stream(log, INPUT, type=VehiclePosition).with_columns(pl.col("journey").str.len_bytes().alias("length"))
    result = rows.select("vehicle", "length").key_by("vehicle").each_row().named("lengths")
    job = run(result, log=log, checkpoint=tmp_path / "c", spark=spark, available_now=True, max_bytes_per_batch=4 * MB)
    job.wait()
    assert job.progress().batches == 4
    assert job.progress().events == 12


PROGRAM = """
import sys
import polars as pl
import tidewheel as tw
from tidewheel_transit.transit_pb2 import VehiclePosition

log = tw.open_log(sys.argv[1])
rows = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
rows = rows.with_columns(pl.col("journey").str.len_bytes().alias("length")).select("vehicle", "length")
counts = rows.key_by("vehicle").window(tw.windows.tumbling("10 s")).aggregate(length=tw.agg.max("length"))
for name, most in (("limited", {}), ("too-large", {"max_bytes_per_batch": 1 << 40})):
    run = tw.run(counts.named(name), log=log, checkpoint=f"{sys.argv[2]}/{name}", available_now=True, **most)
    run.wait()
    print(run.progress().batches, run.progress().events)
"""


@pytest.mark.long
def test_sixty_records_of_twenty_megabytes_run_through_in_bounded_memory(log, tmp_path):
    """In batches of the usual size, and planned as one that is too large."""
    fill(log, 60, 20 * MB)
    command = [sys.executable, "-c", PROGRAM, log.address, str(tmp_path / "c")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    most: dict[int, int] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for pid, held in _memory(process.pid):
                most[pid] = max(most.get(pid, 0), held)

    watcher = threading.Thread(target=watch)
    watcher.start()
    said, _ = process.communicate(timeout=800)
    over.set()
    watcher.join()
    assert process.returncode == 0
    (limited, events), (too_large, again) = (map(int, line.split()) for line in said.splitlines())
    assert events == again == 60
    assert limited > 1 == too_large
    print(f"{limited} batches and 1, most memory of a process {max(most.values()) / 1e6:,.0f} MB")
    assert max(most.values()) < 2_500_000_000


def _memory(group: int) -> list[tuple[int, int]]:
    """The processes of a group, with the bytes of memory that each holds."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[2]) == group:
            found.append((int(path.parent.name), int(fields[21]) * os.sysconf("SC_PAGESIZE")))
    return found
