"""Jobs: defined, run, stopped, gone on with."""

from __future__ import annotations

import polars as pl
import polars_h3
import pytest
from engine_data import START, positions
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from test_sink import decoded, values

from tidewheel.apps.transit.jobs import vehicle_cell
from tidewheel.apps.transit.transit_pb2 import Arrival, VehicleCell, VehiclePosition
from tidewheel.engine.job import installed_jobs, job
from tidewheel.engine.run import start
from tidewheel.errors import CheckpointError, DefinitionError, JobError
from tidewheel.transport import codec
from tidewheel.transport.log import open_log, records

INPUT = "input.vehicle-position"
RESULTS = "analytics.vehicle-cell"


def run_to_end(log, folder, spark, of=vehicle_cell, **options):
    run = start(of, log, checkpoint=folder, spark=spark, available_now=True, **options)
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


def test_results_carry_the_batch_s_clock_and_the_vehicle_as_key(spark, log, tmp_path):
    log.append(INPUT, positions(range(5)))
    progress = run_to_end(log, tmp_path / "c", spark)
    events = [codec.decode(value) for value in values(log, RESULTS)]
    assert {event.ingestion_time.ToMicroseconds() for event in events} == {progress.clock}
    assert min(event.event_time.ToMicroseconds() for event in events) == START
    (batch,) = log.read(RESULTS, 0, 0)
    assert set(batch.records["key"].to_pylist()) == {f"1/{number}".encode() for number in range(5)}


def test_what_has_no_place_or_no_journey_is_left_out_and_counted(spark, log, tmp_path):
    nowhere = [
        VehiclePosition(vehicle=1, journey="journey"),
        VehiclePosition(vehicle=2, lat=91, lon=0, journey="journey"),
    ]
    log.append(INPUT, records([codec.encode(codec.pack(message, event_time=START)) for message in nowhere]))
    log.append(INPUT, positions(range(10, 13), journey="deadrun"))
    log.append(INPUT, positions(range(5)))
    progress = run_to_end(log, tmp_path / "c", spark)
    assert progress.observed == {"deadruns left out": 3, "without a place": 2}
    assert len(values(log, RESULTS)) == 5


def test_malformed_records_are_dead_letters_of_the_job(spark, log, tmp_path):
    log.append(INPUT, records([b"junk", codec.encode(codec.pack(Arrival(), event_time=1))]))
    log.append(INPUT, positions(range(5)))
    run_to_end(log, tmp_path / "c", spark)
    assert len(values(log, RESULTS)) == 5
    first, second = decoded(log, "dead.vehicle-cell")
    assert first.raw == b"junk"
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
    run = start(vehicle_cell, log, checkpoint=tmp_path / "c", spark=spark, max_events_per_batch=100)
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


def test_parameters_change_the_result_and_a_checkpoint_remembers_them(spark, log, tmp_path):
    log.append(INPUT, positions(range(5)))
    run_to_end(log, tmp_path / "c", spark, resolution=5)
    cells = pl.DataFrame({"cell": [message.cell for message in decoded(log, RESULTS)]}).select(
        polars_h3.get_resolution("cell")
    )
    assert set(cells.to_series()) == {5}
    with pytest.raises(CheckpointError, match=r"resolution.*5.*9"):
        run_to_end(log, tmp_path / "c", spark)


def test_a_checkpoint_of_another_log_is_refused(spark, log, tmp_path):
    log.append(INPUT, positions(range(5)))
    run_to_end(log, tmp_path / "c", spark)
    with open_log(tmp_path / "new.tw") as new:
        with pytest.raises(CheckpointError, match="log was"):
            run_to_end(new, tmp_path / "c", spark)
        with pytest.raises(DefinitionError, match="log that it reads"):
            start(vehicle_cell, log, checkpoint=tmp_path / "d", spark=spark, results=new.topic("x"))


def test_a_job_that_fails_says_what_broke_it(spark, log, tmp_path):
    @job("broken", reads={INPUT: VehiclePosition}, writes=VehicleCell)
    def broken(frame: DataFrame) -> DataFrame:
        """Fails on the third vehicle."""
        reason = f.raise_error(f.concat(f.lit("vehicle is odd: "), f.col("vehicle").cast("string")))
        return frame.select("event_time", f.when(f.col("vehicle") == 3, reason).cast("string").alias("route"))

    log.append(INPUT, positions(range(5)))
    with pytest.raises(JobError, match=r"job broken failed.*vehicle is odd: 3"):
        run_to_end(log, tmp_path / "c", spark, of=broken)
    assert "analytics.broken" in [info.name for info in log.topics()]
    assert values(log, "analytics.broken") == []


def test_a_result_that_does_not_fit_is_refused_at_the_start(spark, log, tmp_path):
    @job("misfit", reads={INPUT: VehiclePosition}, writes=VehicleCell)
    def misfit(frame: DataFrame) -> DataFrame:
        """Gives a column that the result does not have."""
        return frame.select("event_time", "headsign")

    with pytest.raises(DefinitionError, match=r"job misfit: .*no field 'headsign'"):
        run_to_end(log, tmp_path / "c", spark, of=misfit)


def test_several_inputs_come_in_the_order_of_reads(spark, log, tmp_path):
    @job("both", reads={INPUT: VehiclePosition, "input.arrival": Arrival}, writes=VehicleCell)
    def both(moving: DataFrame, arriving: DataFrame, *, least: int = 0) -> DataFrame:
        """Vehicles of both topics."""
        columns = ["event_time", "vehicle"]
        return moving.select(columns).union(arriving.select(columns)).where(f.col("vehicle") >= least)

    log.append(INPUT, positions(range(5)))
    log.append("input.arrival", records([codec.encode(codec.pack(Arrival(vehicle=77), event_time=START))]))
    run_to_end(log, tmp_path / "c", spark, of=both, least=3)
    assert sorted(message.vehicle for message in decoded(log, "analytics.both")) == [3, 4, 77]


def test_definitions_that_make_no_sense_are_refused():
    make = job("x", reads={INPUT: VehiclePosition}, writes=VehicleCell)
    with pytest.raises(DefinitionError, match="takes 2 DataFrames and reads 1"):
        make(lambda a, b: a)

    def untyped(frame: DataFrame, *, size=3) -> DataFrame:
        return frame

    with pytest.raises(DefinitionError, match="size needs a type"):
        make(untyped)
    with pytest.raises(DefinitionError, match=r"no parameter 'resolutoin'.*resolution"):
        vehicle_cell.configured({"resolutoin": 5})
    with pytest.raises(DefinitionError, match="resolution must be int"):
        vehicle_cell.configured({"resolution": "high"})


def test_a_resolution_that_h3_does_not_have_is_refused(spark, log, tmp_path):
    with pytest.raises(DefinitionError, match=r"0 .* to 15, got 16"):
        run_to_end(log, tmp_path / "c", spark, resolution=16)
    log.append(INPUT, positions(range(5)))
    run_to_end(log, tmp_path / "d", spark)  # the refusal holds nothing back


def test_jobs_of_installed_packages_are_found():
    assert installed_jobs()["vehicle-cell"] is vehicle_cell
    assert repr(vehicle_cell) == (
        "<Job vehicle-cell: input.vehicle-position: tidewheel.transit.v1.VehiclePosition → "
        "analytics.vehicle-cell: tidewheel.transit.v1.VehicleCell>"
    )
