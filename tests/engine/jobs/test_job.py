"""Jobs: defined, run, stopped, gone on with."""

from __future__ import annotations

import json
import sqlite3

import polars as pl
import polars_h3
import pytest

import tidewheel as tw
from tests.engine.engine_data import START, positions
from tests.engine.orders import read
from tests.engine.topic_frames import decoded as messages_of
from tests.engine.topic_frames import values
from tidewheel.engine.jobs.discovery import find_jobs, installed_jobs, jobs_of_file
from tidewheel.errors import CheckpointError, DamagedLogError, DefinitionError, JobError
from tidewheel.testing import Script, row
from tidewheel.topic_names import TYPES_TOPIC
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import Punctuation, TypeDefinition
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.jobs import vehicle_cell
from tidewheel_transit.transit_pb2 import Arrival, VehicleCell, VehiclePosition

INPUT = "input.vehicle-position"
RESULTS = "analytics.vehicle-cell"


def decoded(log, topic):
    return [message for message in messages_of(log, topic) if not isinstance(message, Punctuation)]


def run_to_end(log, folder, spark, of=vehicle_cell, *, accept_changes=False, **parameters):
    run = tw.run(
        of.on(log, **parameters),
        log=log,
        checkpoint=folder,
        spark=spark,
        available_now=True,
        accept_changes=accept_changes,
    )
    run.wait()
    return run.progress()


def test_each_position_gets_its_cell(spark, log, tmp_path):
    log.append(INPUT, positions(range(500)))
    progress = run_to_end(log, tmp_path / "c", spark)
    messages = sorted(decoded(log, RESULTS), key=lambda message: message.vehicle)
    assert [message.vehicle for message in messages] == list(range(500))
    expected = pl.DataFrame({"lat": [m.lat for m in messages], "lon": [m.lon for m in messages]}).select(
        polars_h3.latlng_to_cell("lat", "lon", 9)
    )
    assert [message.cell for message in messages] == expected.to_series().to_list()
    assert (progress.events, progress.lag) == (500, 0)
    (batch,) = log.read(RESULTS, 0, 0)
    keys = {key for key in batch.records["key"].to_pylist() if key is not None}
    assert keys == {f"1/{number}".encode() for number in range(500)}


def test_what_has_no_place_or_no_journey_is_left_out(spark, log, tmp_path):
    nowhere = [
        VehiclePosition(vehicle=1, journey="journey"),
        VehiclePosition(vehicle=2, lat=91, lon=0, journey="journey"),
    ]
    log.append(INPUT, records([codec.encode(codec.pack(message, event_time=START)) for message in nowhere]))
    log.append(INPUT, positions(range(10, 13), journey="deadrun"))
    log.append(INPUT, positions(range(5)))
    run_to_end(log, tmp_path / "c", spark)
    assert sorted(message.vehicle for message in decoded(log, RESULTS)) == list(range(5))


def test_malformed_records_are_dead_letters_of_the_job(spark, log, tmp_path):
    panicking = bytes.fromhex("1affffffffffffffffff01")  # details of 2^64 - 1 bytes
    log.append(INPUT, records([b"junk", codec.encode(codec.pack(Arrival(), event_time=1)), panicking, b"\x0b" * 10**6]))
    log.append(INPUT, positions(range(5)))
    run_to_end(log, tmp_path / "c", spark)
    assert len(decoded(log, RESULTS)) == 5
    first, second, third, fourth = decoded(log, "dead.vehicle-cell")
    assert first.raw == b"junk"
    assert third.raw == panicking
    assert "broke off" in third.reason
    assert fourth.raw == b"\x0b" * 10**6
    assert "expected tidewheel.transit.v1.VehiclePosition" in second.reason


def test_a_job_goes_on_where_it_was(spark, log, tmp_path):
    log.append(INPUT, positions(range(100)))
    run_to_end(log, tmp_path / "c", spark)
    log.append(INPUT, positions(range(100, 150)))
    progress = run_to_end(log, tmp_path / "c", spark)
    assert progress.events == 50
    assert sorted(message.vehicle for message in decoded(log, RESULTS)) == list(range(150))
    assert log.committed("vehicle-cell") == {(INPUT, 0): 150}


def test_a_running_job_is_stopped_between_batches(spark, log, tmp_path):
    run = tw.run(vehicle_cell, log=log, checkpoint=tmp_path / "c", spark=spark, max_events_per_batch=100)
    for number in range(30):
        log.append(INPUT, positions(range(number * 100, number * 100 + 100)))
    assert log.wait({(RESULTS, 0): 0}, 60)
    run.stop()
    assert not run.active
    commits = {path.name for path in (tmp_path / "c" / "spark" / "commits").iterdir() if path.name.isdigit()}
    offsets = {path.name for path in (tmp_path / "c" / "spark" / "offsets").iterdir() if path.name.isdigit()}
    assert commits == offsets  # no batch was begun and not finished
    run_to_end(log, tmp_path / "c", spark)
    assert sorted(message.vehicle for message in decoded(log, RESULTS)) == list(range(3_000))


def resolutions(log, topic=RESULTS):
    cells = pl.DataFrame({"cell": [message.cell for message in decoded(log, topic)]})
    return set(cells.select(polars_h3.get_resolution("cell")).to_series())


def test_parameters_change_the_result_and_a_checkpoint_remembers_them(spark, log, tmp_path):
    log.append(INPUT, positions(range(5)))
    run_to_end(log, tmp_path / "c", spark, resolution=5)
    assert resolutions(log) == {5}
    with pytest.raises(
        CheckpointError,
        match=r"vehicle-cell: parameter resolution: 5 → 9\. .*--accept-changes \(accept_changes=True\).*--version v2",
    ):
        run_to_end(log, tmp_path / "c", spark)
    log.append(INPUT, positions(range(5, 10)))
    run_to_end(log, tmp_path / "c", spark, accept_changes=True)
    assert resolutions(log) == {5, 9}
    assert len(decoded(log, RESULTS)) == 10


def test_state_does_not_go_on_with_other_parameters(spark, log, tmp_path):
    @tw.job("counts", reads={INPUT: VehiclePosition})
    def counts(rows: tw.Stream, *, size: str = "10 s") -> tw.Result:
        """Counts."""
        return rows.window(tw.windows.tumbling(size)).aggregate(n=tw.agg.count())

    run_to_end(log, tmp_path / "c", spark, of=counts)
    run_to_end(log, tmp_path / "c", spark, of=counts, accept_changes=True)  # of which there are none
    with pytest.raises(CheckpointError, match=r"counts: parameter size: 10 s → 20 s\. State .*--version v2"):
        run_to_end(log, tmp_path / "c", spark, of=counts, accept_changes=True, size="20 s")


def test_a_checkpoint_of_another_log_is_refused(spark, log, tmp_path):
    log.append(INPUT, positions(range(5)))
    run_to_end(log, tmp_path / "c", spark)
    with open_log(tmp_path / "new.tw") as new:
        with pytest.raises(CheckpointError, match="made on another log"):
            run_to_end(new, tmp_path / "c", spark)
        with pytest.raises(DefinitionError, match="does not read this log"):
            tw.run(vehicle_cell.on(log), log=new, checkpoint=tmp_path / "d", spark=spark)


def test_a_job_that_fails_says_what_broke_it(spark, log, tmp_path):
    @tw.job("broken", reads={INPUT: VehiclePosition})
    def broken(rows: tw.Stream) -> tw.Result:
        """Takes words for numbers."""
        return rows.select(number=pl.col("mode").cast(pl.Int32)).each_row()

    log.append(INPUT, positions(range(5)))
    with pytest.raises(JobError, match=r"job broken: broken: InvalidOperationError: .*`i32` failed.*bus"):
        run_to_end(log, tmp_path / "c", spark, of=broken)
    assert values(log, "analytics.broken") == []


def test_a_result_that_does_not_fit_is_refused_at_the_start(spark, log, tmp_path):
    @tw.job("misfit", reads={INPUT: VehiclePosition}, writes=VehicleCell)
    def misfit(rows: tw.Stream) -> tw.Result:
        """Lacks what the message has."""
        return rows.select("headsign").each_row()

    with pytest.raises(DefinitionError, match=r"VehicleCell has a field 'cell' that the results lack"):
        run_to_end(log, tmp_path / "c", spark, of=misfit)

    @tw.job("keyless", reads={INPUT: VehiclePosition}, key="vehicle")
    def keyless(rows: tw.Stream) -> tw.Result:
        """Has no column for its key."""
        return rows.select("headsign").each_row()

    with pytest.raises(DefinitionError, match=r"keyless: the key names a column 'vehicle' that the results lack"):
        run_to_end(log, tmp_path / "d", spark, of=keyless)


def test_steps_after_a_stage_are_done_to_its_results(spark, log, tmp_path):
    @tw.job("full", reads=INPUT, key="operator")
    def full(rows: tw.Stream, *, least: int = 3) -> tw.Result:
        """Minutes with many positions, and what they come to."""
        counts = rows.key_by("operator").window(tw.windows.tumbling("1 min")).aggregate(n=tw.agg.count())
        return counts.filter(pl.col("n") >= least).select("operator", twice=pl.col("n") * 2)

    log.append(INPUT, positions(range(90)))
    log.append(INPUT, positions(range(300, 302)))
    # A definition of a type that nobody asks for is of no concern, even if it is broken.
    unused = codec.encode(codec.pack(TypeDefinition(name="mine.Unused", file_descriptor_set=b"\xff"), event_time=0))
    log.append(TYPES_TOPIC, records([unused], keys=[b"mine.Unused"]))
    assert "Of each result: filter" in full.on(log).explain()
    run_to_end(log, tmp_path / "c", spark, of=full, least=30)
    start = START // 1_000_000
    whole = [n for n in pl.Series([(start + n) // 60 for n in range(90)]).value_counts()["count"] if n >= 30]
    found = read(log, "analytics.full")
    assert sorted(found["twice"]) == sorted(2 * n for n in whole)
    assert set(found.columns) == {"event_time", "ingestion_time", "operator", "twice"}


def test_the_function_gets_the_stream_of_the_topic_and_the_parameters(log):
    seen = {}

    @tw.job("moving", reads={INPUT: VehiclePosition})
    def moving(rows: tw.Stream, *, least: int = 0) -> tw.Result:
        """Moving vehicles."""
        seen.update(topics=rows.input.topics, least=least)
        return rows.each_row()

    result = moving.on(log, least=3)
    assert seen == {"topics": (INPUT,), "least": 3}
    assert (result.name, result.parameters) == ("moving", {"least": 3})


def test_the_type_of_a_topic_without_one_is_found_by_its_events(log):
    @tw.job("plain", reads=INPUT)
    def plain(rows: tw.Stream) -> tw.Result:
        """Rows."""
        return rows.each_row()

    with pytest.raises(DefinitionError, match="holds no event yet"):
        plain.on(log)
    log.append(INPUT, positions(range(2)))
    assert "vehicle" in plain.on(log).schema


def test_a_job_is_a_function_that_scripts_can_test():
    script = Script().add(at="12:00:01", lat=60.17, lon=24.94, journey="journey", **dict.fromkeys(OTHERS, 1))
    script = script.add(at="12:00:00", lat=60.17, lon=24.94, journey="deadrun", **dict.fromkeys(OTHERS, 2))
    expected = row(at="12:00:01", cell=617294884152279039, lat=60.17, lon=24.94, **dict.fromkeys(OTHERS, 1))
    assert script.run(vehicle_cell) == [expected]


OTHERS = ["mode", "operator", "vehicle", "speed", "heading", "route", "direction", "delay"]


def test_definitions_that_make_no_sense_are_refused(log):
    make = tw.job("x", reads={INPUT: VehiclePosition}, writes=VehicleCell)
    with pytest.raises(DefinitionError, match="takes 2 streams"):
        make(lambda a, b: a)
    for topics in ([], ["a", "b"]):
        with pytest.raises(DefinitionError, match=r"a job reads one topic, got (none|a, b)"):
            tw.job("x", reads=topics)(lambda a, b: a)

    def untyped(rows: tw.Stream, *, size=3) -> tw.Result:
        return rows.each_row()

    with pytest.raises(DefinitionError, match="size needs a type"):
        make(untyped)

    def wrong(rows: tw.Stream, *, size: int = "3") -> tw.Result:
        return rows.each_row()

    with pytest.raises(DefinitionError, match="size must be int, got '3'"):
        make(wrong)
    with pytest.raises(DefinitionError, match=r"gives? a result.*\.each_row\(\)|must give a result.*each_row"):
        make(lambda rows: rows).on(log)
    with pytest.raises(DefinitionError, match="a topic's name is"):
        tw.job("a b", reads=INPUT)(lambda rows: rows)
    with pytest.raises(DefinitionError, match=r"no parameter 'resolutoin'.*resolution"):
        vehicle_cell.configured({"resolutoin": 5})
    with pytest.raises(DefinitionError, match="resolution must be int"):
        vehicle_cell.configured({"resolution": "high"})
    with pytest.raises(DefinitionError, match=r"0 .* to 15, got 16"):
        vehicle_cell.on(log, resolution=16)


def test_jobs_of_installed_packages_are_found():
    assert installed_jobs()["vehicle-cell"] is vehicle_cell
    assert repr(vehicle_cell) == (
        "<Job vehicle-cell: input.vehicle-position: tidewheel.transit.v1.VehiclePosition → "
        "analytics.vehicle-cell: tidewheel.transit.v1.VehicleCell>"
    )


def test_jobs_of_files_are_found(tmp_path):
    file = tmp_path / "mine.py"
    with pytest.raises(DefinitionError, match=r"there is no file .*mine.py"):
        jobs_of_file(file)
    file.write_text("x = 1")
    with pytest.raises(DefinitionError, match=r"mine.py defines no job"):
        jobs_of_file(file)
    file.write_text("import nowhere_at_all")
    with pytest.raises(DefinitionError, match=r"mine.py cannot be loaded: ModuleNotFoundError: .*nowhere_at_all"):
        jobs_of_file(file)
    file.write_text(
        "import tidewheel as tw\n"
        "@tw.job('mine', reads='input.arrival')\n"
        "def mine(rows: tw.Stream) -> tw.Result:\n    return rows.each_row()\n"
    )
    assert [each.name for each in find_jobs(["vehicle-cell", str(file)])] == ["vehicle-cell", "mine"]
    with pytest.raises(DefinitionError, match="'mine' is named twice"):
        find_jobs([str(file), str(file)])


def test_a_damaged_block_ends_a_job_unless_it_is_told_to_go_on_without(spark, log, tmp_path):
    for first in (0, 100, 200):
        log.append(INPUT, positions(range(first, first + 100)))
    connection = sqlite3.connect(log.address)
    connection.execute("UPDATE payload SET data = zeroblob(length(data)) WHERE id = 2")
    connection.commit()
    connection.close()
    with pytest.raises(DamagedLogError, match=f"'{INPUT}' partition 0: the block of offsets 100 to 199 is damaged"):
        run_to_end(log, tmp_path / "c", spark)
    run = tw.run(vehicle_cell, log=log, checkpoint=tmp_path / "c", spark=spark, available_now=True, skip_damaged=True)
    run.wait()
    progress = run.progress()
    assert (progress.events, progress.lag, progress.damaged) == (300, 0, 100)
    assert sorted(message.vehicle for message in decoded(log, RESULTS)) == [*range(100), *range(200, 300)]
    (letter,) = decoded(log, "dead.vehicle-cell")
    assert (letter.topic, letter.count) == (INPUT, 100)


def test_a_checkpoint_does_not_go_on_with_an_older_log(spark, log, tmp_path):
    log.append(INPUT, positions(range(100)))
    source, backup = sqlite3.connect(log.address), sqlite3.connect(tmp_path / "backup.tw")
    source.backup(backup)
    source.close()
    backup.close()
    log.append(INPUT, positions(range(100, 200)))
    assert run_to_end(log, tmp_path / "c", spark).events == 200
    with open_log(tmp_path / "backup.tw") as older:
        with pytest.raises(CheckpointError, match=r"older than the checkpoint.*results of batches up to number -1"):
            run_to_end(older, tmp_path / "c", spark)
        query = json.loads((tmp_path / "c" / "spark" / "metadata").read_text())["id"]
        older.producer(f"spark:{query}", fence=False).append({}, sequence=9)  # as if they were there
        with pytest.raises(
            CheckpointError, match=r"older than the checkpoint.*100 events that were read are not in it"
        ):
            run_to_end(older, tmp_path / "c", spark)
        older.append(INPUT, positions(range(500, 700)))
        with pytest.raises(CheckpointError, match=r"older than the checkpoint.*gone on since.*at least 100 of them"):
            run_to_end(older, tmp_path / "c", spark)
