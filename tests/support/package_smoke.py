"""What a set of packages must be able to do, in a process of its own: run with the folder to work in.

The parts that parse bytes of others or use what PySpark does not promise: codec, log, model, patterns, SQL, places, a
job on Spark with state and the exactly-once sink, the live map's server over HTTP and WebSocket.
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from pathlib import Path

import msgspec
import polars as pl
import pyarrow as pa
import sqlglot
import zstandard

import tidewheel as tw
from tests.support.expression_corpus import differing
from tests.transit.jobs.pure_run import run_pure
from tidewheel.ingest.replay.recording import read_recording
from tidewheel.testing import Script
from tidewheel.transport.events import codec
from tidewheel.transport.log.log_types import records
from tidewheel_transit import jobs
from tidewheel_transit.transit_pb2 import VehiclePosition

SECOND = 1_000_000
POSITIONS = "input.vehicle-position"


def events(numbers: range) -> pa.RecordBatch:
    """A position a second, of ten vehicles."""
    frame = pl.DataFrame({"vehicle": [n % 10 for n in numbers], "speed": [float(n % 20) for n in numbers]})
    times = pa.array([n * SECOND for n in numbers], pa.int64())
    values = codec.encode_columns(VehiclePosition, frame, event_time=times, ingestion_time=7)
    return records(values, event_times=times)


def check_codec() -> None:
    values = events(range(20)).column("value")
    mixed = pa.array([*values.to_pylist(), b"\xff", codec.encode(codec.decode(values[3].as_py()), format="json")])
    decoded = codec.decode_columns(VehiclePosition, mixed.cast(pa.binary()))
    assert decoded.columns["vehicle"].to_pylist() == [*(n % 10 for n in range(20)), 3]
    assert [place for place, _ in decoded.errors] == [20]


def check_model() -> None:
    rows = Script().add(at="12:00:01", key="a", v=3).add(at="12:00:12", key="a", v=5).end()
    panes = rows.run(lambda given: given.key_by("key").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.sum("v")))
    assert [pane["n"] for pane in panes] == [3, 5]
    rise = tw.pattern("low", pl.col("v") < 4).next("high", pl.col("v") > 4)
    (match,) = rows.run(
        lambda given: given.match(rise, measures={"by": tw.measures.last("high.v") - tw.measures.first("low.v")})
    )
    assert match["by"] == 2
    assert sqlglot.parse_one("SELECT 1 AS a").named_selects == ["a"]


def check_texts() -> None:
    """Checkpoints know expressions by their texts, also after another polars was installed."""
    assert not differing(), differing()


def check_places(log: tw.Log) -> None:
    """All transit jobs can be defined, and cells have the neighbours that they have."""
    assert all(getattr(jobs, name).on(log).schema for name in jobs.__all__)
    flows = jobs.flow_direction.on(log, size="10 s", every="10 s", lateness="0 s")
    rows = [
        {"event_time": n * SECOND, "operator": 1, "vehicle": 7, "journey": "journey", "lat": lat, "lon": 24.94}
        for n, lat in enumerate([60.1700, 60.1735, 60.2000])  # to a neighbour, too far
    ]
    found = run_pure(flows, [(pl.DataFrame(rows, schema=flows.input.schema()), None)])["results"]
    (crossing,) = found.select("cell", "neighbour", "crossings", "total").rows()
    assert crossing == (617294884152279039, 617294884155162623, 1, 1)


def check_recording(folder: Path) -> None:
    line = json.dumps({"topic": "t", "payload": "x", "received_at": "2026-01-01T00:00:00Z"}).encode() + b"\n"
    path = folder / "r.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(line))
    assert zstandard.ZstdDecompressor().decompress(path.read_bytes()) == line
    assert callable(read_recording)
    assert msgspec.json.decode(line)["topic"] == "t"


def check_job(folder: Path, log: tw.Log) -> None:
    """Windows with state, a repeatable sink, and a statement, on Spark."""
    for begin in (0, 50):
        log.append(POSITIONS, events(range(begin, begin + 50)))
    spark = tw.session()
    given = tw.stream(log, POSITIONS, type=VehiclePosition, watermark=tw.watermarks.bounded("1 s"))
    counted = given.key_by("vehicle").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count()).named("counted")
    options = {"results": log.topic("analytics.counted"), "late": log.topic("late.counted"), "spark": spark}
    for _ in range(2):
        counted.start(**options, checkpoint=folder / "c", available_now=True, max_events_per_batch=50).wait()
    found = log.topic_info("analytics.counted").count
    assert 80 <= found <= 110, found
    table = spark.createDataFrame([(1, 0), (5, 1), (9, 2)], "v INT, t INT").selectExpr(
        "v", "timestamp_seconds(t) AS at"
    )
    rising = tw.sql(
        "SELECT * FROM r MATCH_RECOGNIZE ("
        "ORDER BY at MEASURES LAST(B.v) AS top PATTERN (A B+) DEFINE B AS v > PREV(v))",
        r=table,
    )
    assert [row.top for row in rising.collect()] == [9]
    spark.stop()


def check_kafka() -> None:
    """The client starts, and asks a broker that is not there."""
    from tidewheel.transport.kafka.broker.cluster_probe import ClusterProbe

    assert ClusterProbe(["127.0.0.1:1"]).ask(timeout=0.2) is None


def check_server(log: tw.Log) -> None:
    from tidewheel.serve.http.server import serve

    with serve(log, port=0) as server:
        with urllib.request.urlopen(f"{server.url}/api/layers", timeout=30) as answer:
            assert answer.status == 200
        asyncio.run(_greeted(server.url))


async def _greeted(url: str) -> None:
    from websockets.asyncio.client import connect

    async with connect(url.replace("http", "ws", 1) + "/api/live", open_timeout=30) as socket:
        assert await asyncio.wait_for(socket.recv(), 30)


def main() -> None:
    import paho.mqtt.client

    assert paho.mqtt.client.MQTTv5
    folder = Path(sys.argv[1])
    check_codec()
    check_model()
    check_texts()
    check_recording(folder)
    check_kafka()
    with tw.open_log(folder / "city.tw", sync="normal") as log:
        check_places(log)
        check_server(log)
        print("codec, model, recordings, places and server work", flush=True)
        check_job(folder, log)
    print("all of it works", flush=True)


if __name__ == "__main__":
    main()
