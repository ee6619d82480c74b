"""The job of final stops on Spark, beside another job: the same as in one process; the other one notices nothing."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from pure_run import PureRun
from test_final_stop_distribution import final
from test_lookup_kills import BLOCKS, SIZE, TOPIC, LogRun, blocks, put

import tidewheel as tw
from tidewheel.apps.transit.final_stop import FINAL_STOP, SimulatedFinalStops
from tidewheel.apps.transit.jobs import final_stop_distribution, vehicle_distribution
from tidewheel.apps.transit.transit_pb2 import FinalStopCount, VehicleCount, VehiclePosition
from tidewheel.engine.launch import Target, start_flows
from tidewheel.engine.workers import registry_for
from tidewheel.ingest.lookup import Asker, Limits, ProviderError
from tidewheel.transport import codec
from tidewheel.transport.codec import decode_envelopes
from tidewheel.transport.log import Log


class Uncertain:
    """Knows some lines, does not know others, and cannot tell of some."""

    async def ask(self, key):
        match int(key[0][:4] if key[0][:4].isdecimal() else 0) % 3:
            case 0:
                return await SimulatedFinalStops().ask(key)
            case 1:
                return None
            case _:
                raise ProviderError("broken", again=False, healthy=True)


def read(log: Log, topic: str) -> pl.DataFrame:
    frames = []
    for batch in log.read(topic, 0, 0):
        values = batch.records.column("value")
        for kind in set(decode_envelopes(values).columns["type"].to_pylist()) - {"tidewheel.v1.Punctuation"}:
            found = codec.decode_columns(kind, values, registry=registry_for(log.address, kind))
            frames.append(pl.DataFrame(pl.from_arrow(found.columns)))
    return pl.concat(frames)


@pytest.mark.slow
def test_on_spark_it_is_the_same_and_the_job_beside_it_notices_nothing(spark, log, tmp_path):
    for frame in blocks()[: BLOCKS // 2]:
        put(log, frame)
    Asker(log, FINAL_STOP, Uncertain(), topics=TOPIC, type=VehiclePosition, limits=Limits(breaker_failures=1_000)).run(
        until_idle=True
    )
    rows = tw.stream(log, TOPIC, type=VehiclePosition, watermark=tw.watermarks.bounded("1 s", future=None))
    stops = final_stop_distribution(rows, size=f"{SIZE} s").named("final-stop-distribution")
    vehicles = vehicle_distribution(rows).named("vehicle-distribution")
    start_flows(
        {
            stops: {
                "results": Target(log.topic("analytics.stops"), FinalStopCount),
                "failed": Target(log.topic("failed.stops")),
            },
            vehicles: {"results": Target(log.topic("analytics.vehicles"), VehicleCount)},
        },
        log,
        checkpoint=tmp_path / "checkpoint",
        name="jobs",
        spark=spark,
        available_now=True,
        max_events_per_batch=400,
        buckets=2,
    ).wait()

    alone = LogRun(log)
    alone.go_on()
    expected = alone.running.outputs
    assert len(alone.offsets) > 3
    table = final(read(log, "analytics.stops"))
    assert table == final(expected["results"])
    assert {cell for _, cell in table} > {0}
    failed = read(log, "failed.stops")
    columns = ["operator", "vehicle", "event_time", "reason", *FINAL_STOP.keys]
    assert sorted(failed.select(columns).rows()) == sorted(expected["failed"].select(columns).rows())
    assert set(failed["reason"]) == {"broken", "the service knows no answer"}

    other = PureRun(vehicles)
    for before, after in pairwise(alone.offsets):
        other.step(alone.read(TOPIC, VehiclePosition, before, after), after.watermark)
    assert final(read(log, "analytics.vehicles")) == final(other.outputs["results"])
