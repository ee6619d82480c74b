"""The archive: every event once, where its time says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from tests.engine.engine_data import START, positions
from tests.engine.topic_frames import decoded
from tidewheel.engine.jobs.archive import Archive, Archiver
from tidewheel.errors import CheckpointError, DefinitionError
from tidewheel.transport.events import codec
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import Arrival, VehiclePosition

INPUT = "input.vehicle-position"


def archived(log, folder, *topics, limit=200_000):
    with Archiver.open(log, folder, topics or [INPUT]) as archiver:
        while archiver.step(limit=limit):
            pass
        assert archiver.lag == 0


def rows(folder, topic=INPUT) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(file, hive_partitioning=False) for file in Archive(folder).files(topic)])


def test_every_event_is_there_once_and_decoded(log, tmp_path):
    log.create_topic(INPUT, partitions=2)
    for first in range(0, 9_000, 500):
        batch = positions(range(first, first + 500))
        keys = [str(number).encode() for number in range(first, first + 500)]
        log.append(INPUT, records(batch.column("value"), keys=keys, event_times=batch.column("event_time")))
    archived(log, tmp_path / "archive", limit=1_000)
    found = rows(tmp_path / "archive")
    assert found.height == 9_000
    assert sorted(found["vehicle"]) == list(range(9_000))
    assert found.filter(pl.col("vehicle") == 7)["lat"].item() == pytest.approx(60.1007)
    assert found.group_by("_partition", "_offset").len()["len"].max() == 1
    assert set(found["_key"].cast(pl.String)) == {str(number) for number in range(9_000)}
    assert log.committed("archive") == {(INPUT, 0): log.topic_info(INPUT).next_offsets[0],
                                        (INPUT, 1): log.topic_info(INPUT).next_offsets[1]}  # fmt: skip


def test_files_are_where_topic_day_and_hour_say(log, tmp_path):
    log.append(INPUT, positions(range(9_000)))  # two and a half hours
    event = codec.encode(codec.pack(VehiclePosition(vehicle=1), event_time=None))
    log.append(INPUT, records([event]))
    archived(log, tmp_path / "archive")
    assert Archive(tmp_path / "archive").topics() == [INPUT]
    places = Counter()
    for file in Archive(tmp_path / "archive").files(INPUT):
        topic, day, hour, _ = Path(file).relative_to(tmp_path / "archive").parts
        assert topic == f"topic={INPUT}"
        frame = pl.read_parquet(file, hive_partitioning=False)
        places[day, hour] += frame.height
        if "HIVE" not in day:
            assert set(frame["event_time"].dt.strftime("day=%Y-%m-%d/hour=%H")) == {f"{day}/{hour}"}
    expected = pl.Series([START + n * 1_000_000 for n in range(9_000)]).cast(pl.Datetime("us")).dt.strftime("hour=%H")
    assert {hour: count for (_, hour), count in places.items() if "HIVE" not in hour} == dict(Counter(expected))
    assert places["day=__HIVE_DEFAULT_PARTITION__", "hour=__HIVE_DEFAULT_PARTITION__"] == 1


def test_it_goes_on_where_it_stopped(log, tmp_path):
    log.append(INPUT, positions(range(100)))
    archived(log, tmp_path / "archive")
    before = Archive(tmp_path / "archive").files(INPUT)
    log.append(INPUT, positions(range(100, 150)))
    archived(log, tmp_path / "archive")
    assert sorted(rows(tmp_path / "archive")["vehicle"]) == list(range(150))
    assert set(before) < set(Archive(tmp_path / "archive").files(INPUT))


def test_what_a_killed_archiver_has_begun_is_nothing(log, tmp_path):
    folder = tmp_path / "archive"
    log.append(INPUT, positions(range(100)))
    archived(log, folder)
    (file,) = Archive(folder).files(INPUT)
    unfinished = Path(file).with_name("0-000000000100-000000000150.parquet")
    unfinished.write_bytes(Path(file).read_bytes())
    assert Archive(folder).files(INPUT) == [file]
    log.append(INPUT, positions(range(100, 160)))
    archived(log, folder)
    assert not unfinished.exists()
    assert sorted(rows(folder)["vehicle"]) == list(range(160))


KILLED = """
import sys
from tidewheel.engine.jobs.archive import Archiver
from tidewheel.transport.open_log import open_log

with open_log(sys.argv[1]) as log, Archiver.open(log, sys.argv[2], ["input.vehicle-position"]) as archiver:
    while archiver.step(limit=200):
        print(archiver.lag, flush=True)
"""


def test_an_archiver_that_is_killed_again_and_again_archives_everything_once(log, tmp_path):
    folder = tmp_path / "archive"
    for first in range(0, 8_000, 200):
        log.append(INPUT, positions(range(first, first + 200)))
    for steps in (3, 10, 14):
        command = [sys.executable, "-c", KILLED, log.address, str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(steps):
            assert process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    archived(log, folder)
    assert sorted(rows(folder)["vehicle"]) == list(range(8_000))


def test_malformed_records_are_dead_letters_and_markers_are_left_out(log, tmp_path):
    log.append(INPUT, records([b"junk", codec.encode(codec.pack(Arrival(), event_time=1))]))
    log.append(INPUT, positions(range(5)))
    log.append(INPUT, codec.punctuation(START))
    archived(log, tmp_path / "archive")
    assert rows(tmp_path / "archive").height == 5
    assert next(letter.raw for letter in decoded(log, "dead.archive")) == b"junk"
    archived(log, tmp_path / "archive")
    assert len(decoded(log, "dead.archive")) == 2


@pytest.mark.parametrize("count", [3, 5, 20], ids=["fewer", "as many", "more"])
def test_a_topic_that_was_made_anew_is_not_taken_for_the_one_before(count, log, tmp_path):
    log.append(INPUT, positions(range(5)))
    archived(log, tmp_path / "archive")
    log.forget("archive")
    log.delete_topic(INPUT)
    log.append(INPUT, positions(range(count)))
    with pytest.raises(CheckpointError, match="created again since it was archived"):
        archived(log, tmp_path / "archive")
    archived(log, tmp_path / "other")
    assert rows(tmp_path / "other").height == count


def test_what_makes_no_sense_is_refused(log, tmp_path):
    log.append(INPUT, positions(range(5)))
    archived(log, tmp_path / "archive")
    with open_log(tmp_path / "other.tw") as other:
        other.append(INPUT, positions(range(5)))
        with pytest.raises(CheckpointError, match="archived from another log"):
            archived(other, tmp_path / "archive")
    with pytest.raises(DefinitionError, match=r"does not hold the topic 'input.door'; it holds input.vehicle-position"):
        Archive(tmp_path / "archive").files("input.door")
    with (
        Archiver.open(log, tmp_path / "archive", [INPUT]),
        pytest.raises(CheckpointError, match="another process writes"),
        Archiver.open(log, tmp_path / "archive", [INPUT]),
    ):
        pass
    note = tmp_path / "archive" / f"topic={INPUT}" / "_progress.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "version": 99}))
    with pytest.raises(CheckpointError, match="version 99"):
        Archive(tmp_path / "archive").files(INPUT)
