"""Jobs as a batch: the same tables as the stream, over the log and over an archive of it."""

from __future__ import annotations

import random
import sys
from datetime import datetime, timezone

import polars as pl
import pytest
from pyspark import cloudpickle

import tidewheel as tw
from tests.engine.engine_data import START
from tests.engine.orders import read
from tidewheel.engine.jobs.archive import Archiver
from tidewheel.engine.jobs.batch import run_batch
from tidewheel.errors import DefinitionError
from tidewheel.transport.events import codec
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.materialize import compare, materialize
from tidewheel_transit.transit_pb2 import Arrival, VehiclePosition

pytestmark = pytest.mark.long

POSITIONS, ARRIVALS = "input.vehicle-position", "input.arrival"
SECONDS = 200


@tw.job("speeds", reads={POSITIONS: VehiclePosition})
def speeds(rows: tw.Stream, *, size: str = "30 s") -> tw.Result:
    """Positions and speed of each operator, sliding; with late panes and retractions."""
    return (
        rows.key_by("operator")
        .window(tw.windows.sliding(size, every="10 s"), lateness="1 h")
        .accumulate("retracting")
        .aggregate(n=tw.agg.count(), mean=tw.agg.mean("speed"), vehicles=tw.agg.count_distinct("vehicle"))
    )


@tw.job("busiest", reads={POSITIONS: VehiclePosition})
def busiest(rows: tw.Stream) -> tw.Result:
    """The most positions that a vehicle has in a minute: windows over windows."""
    counts = (
        rows.key_by("operator", "vehicle")
        .window(tw.windows.tumbling("10 s"), lateness="1 h")
        .accumulate("retracting")
        .aggregate(n=tw.agg.count())
    )
    return counts.window(tw.windows.tumbling("1 min"), lateness="1 h").aggregate(most=tw.agg.max("n"))


def faster(events: pl.DataFrame, state: pl.DataFrame, clock: tw.Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows that are faster than the row before; among those of one time the order of arrival tells which was before."""
    joined = events.join(state, on="vehicle", how="left", maintain_order="left")
    before = pl.col("speed").shift().over("vehicle").fill_null(pl.col("last"))
    found = joined.with_columns(before.alias("before")).filter(pl.col("speed") > pl.col("before"))
    last = events.group_by("vehicle", maintain_order=True).agg(pl.col("speed").last().alias("last"))
    kept = pl.concat([state.join(last, on="vehicle", how="anti").select("vehicle", "last"), last])
    return found.select("vehicle", "event_time", "before", "speed"), kept


@tw.job("risers", reads={POSITIONS: VehiclePosition}, watermark=tw.watermarks.bounded("20 s"))
def risers(rows: tw.Stream) -> tw.Result:
    """A process function, for which order matters."""
    return rows.key_by("vehicle").process(faster, state={"last": pl.Float32})


@tw.job("stops", reads={ARRIVALS: Arrival})
def stops(rows: tw.Stream) -> tw.Result:
    """Each arrival that names a stop."""
    return rows.filter(pl.col("stop").is_not_null()).select("vehicle", "stop").key_by("vehicle").each_row()


def fill(log, seed=6):
    """Traffic with disorder of up to 15 s, equal times, repeats and nulls, in uneven blocks."""
    chance = random.Random(seed)
    events = []
    for second in range(SECONDS):
        for vehicle in range(6):
            for _ in range(chance.choice([1, 1, 1, 2])):
                speed = chance.choice([None, *range(20)])
                message = VehiclePosition(mode="bus", operator=vehicle % 2, vehicle=vehicle, speed=speed)
                events.append((second + chance.uniform(0, 15), START + second * 1_000_000, POSITIONS, message))
        stop = chance.choice([None, "a", "b"])
        events.append((second, START + second * 1_000_000, ARRIVALS, Arrival(vehicle=second % 6, stop=stop)))
    events.sort(key=lambda event: event[0])
    while events:
        size = chance.randrange(5, 150)
        some, events = events[:size], events[size:]
        for topic in (POSITIONS, ARRIVALS):
            mine = [(time, message) for _, time, of, message in some if of == topic]
            if mine:
                values = [codec.encode(codec.pack(message, event_time=time)) for time, message in mine]
                log.append(topic, records(values, event_times=[time for time, _ in mine]))
    # A last event of each topic, so that the watermark passes all that is before it.
    for topic, kind in ((POSITIONS, VehiclePosition), (ARRIVALS, Arrival)):
        end = START + 3_600_000_000
        value = codec.encode(codec.pack(kind(vehicle=99), event_time=end))
        log.append(topic, records([value], event_times=[end]))


JOBS = (speeds, busiest, stops)


@pytest.fixture(scope="module")
def reported(spark, tmp_path_factory):
    """A log on which the jobs have run as a stream in small batches, as a batch, and as a batch over its archive."""
    folder = tmp_path_factory.mktemp("batch")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import this file
    with tw.open_log(folder / "city.tw") as log:
        fill(log)
        run = tw.run(
            *JOBS, log=log, checkpoint=folder / "stream", spark=spark, available_now=True, max_events_per_batch=300
        )
        run.wait()
        tw.run(risers, log=log, checkpoint=folder / "risers", spark=spark, available_now=True).wait()
        everything = [job.on(log) for job in (*JOBS, risers)]
        run_batch(*(result.named(f"{result.name}.batch") for result in everything[:3]), log=log, spark=spark)
        run_batch(everything[3].named("risers.batch"), log=log, spark=spark)
        with Archiver.open(log, folder / "archive", [POSITIONS, ARRIVALS]) as archiver:
            while archiver.step(limit=200):
                pass
        for results in (everything[:3], everything[3:]):
            run_batch(
                *(result.named(f"{result.name}.archive") for result in results),
                log=log,
                archive=folder / "archive",
                spark=spark,
                key_groups=5,
            )
        yield log


@pytest.mark.parametrize("name", ["speeds", "busiest", "stops", "risers"])
@pytest.mark.parametrize("other", ["batch", "archive"])
def test_a_batch_gives_the_tables_of_the_stream(reported, name, other):
    stream = materialize(reported, f"analytics.{name}")
    batch = materialize(reported, f"analytics.{name}.{other}")
    found = compare(stream, batch)
    assert found.same > (2 if name == "busiest" else 10)
    assert found.equal, (found.only_first, found.only_second, found.changed)


def test_the_table_is_that_of_all_events(reported):
    """The oracle: plain polars over the whole input."""
    frames = [
        pl.from_arrow(codec.decode_columns(VehiclePosition, batch.records.column("value")).columns)
        for batch in reported.read(POSITIONS, 0, 0)
    ]
    rows = pl.concat(frames).filter(pl.col("event_time") < datetime.fromtimestamp(START / 1e6 + 3_000, timezone.utc))
    expected = (
        rows.sort("event_time")
        .group_by_dynamic("event_time", every="10s", period="30s", offset="-20s", group_by="operator")
        .agg(pl.len().alias("n"), pl.col("speed").cast(pl.Float64).mean().alias("mean"))
    )
    wanted = {
        (row["operator"], row["event_time"]): (row["n"], pytest.approx(row["mean"])) for row in expected.to_dicts()
    }
    table = materialize(reported, "analytics.speeds.batch").rows.filter(pl.col("n") > 0)
    table = table.filter(pl.col("window_end") < datetime.fromtimestamp(START / 1e6 + 3_000, timezone.utc))
    found = {(row["operator"], row["window_start"]): (row["n"], row["mean"]) for row in table.to_dicts()}
    assert found == wanted


def test_nothing_is_late_in_a_batch_and_every_event_is_in_its_metrics(reported):
    metrics = read(reported, "metrics.speeds.batch")
    assert metrics["late"].sum() == 0
    assert metrics["events"].sum() == reported.topic_info(POSITIONS).count
    assert read(reported, "metrics.speeds.archive")["events"].sum() == reported.topic_info(POSITIONS).count


def test_what_cannot_be_a_batch_is_refused(spark, log, tmp_path):
    stream = tw.stream(log, POSITIONS, type=VehiclePosition)
    looking = stream.key_by("vehicle").match_from(log.topic("control.patterns")).named("looking")
    with pytest.raises(DefinitionError, match=r"looking looks for patterns that a topic changes.*--available-now"):
        run_batch(looking, log=log, spark=spark)
    with pytest.raises(DefinitionError, match=r"does not hold the topic 'input.arrival'; it holds nothing"):
        run_batch(stops, log=log, archive=tmp_path / "none", spark=spark)
