"""`run --batch --input RECORDING`: a recording, in one command, gives what replaying it into a log and running over
that gives; and every message is accounted for."""

from __future__ import annotations

import gzip
import os
import signal
from collections import Counter

import pytest
import zstandard

from tests.support.command import Running, eventually, lines, tidewheel
from tests.support.hfp_messages import hfp, topic
from tidewheel.ingest.lookup import LookupWorker
from tidewheel.ingest.message import Message
from tidewheel.ingest.replay.recording import encode_line
from tidewheel.model.time import format_instant, instant
from tidewheel.transport.events import codec
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.materialize import compare, materialize
from tidewheel_transit.final_stop import FINAL_STOP
from tidewheel_transit.transit_pb2 import Door, VehiclePosition

pytestmark = pytest.mark.long

BEGIN = instant("2026-03-02T06:15:00Z")
SECOND = 1_000_000
JOB = """
import tidewheel as tw

@tw.job("routes", reads="input.vehicle-position")
def routes(positions: tw.Stream, *, size: str = "10 s") -> tw.Result:
    \"\"\"Positions of each route.\"\"\"
    return positions.key_by("route").window(tw.windows.tumbling(size)).aggregate(positions=tw.agg.count())
"""


def position(second: int, *, temporal: str = "ongoing") -> bytes:
    time = BEGIN + second * SECOND
    place = topic(temporal=temporal)
    return encode_line(hfp(topic=place, received_at=time + SECOND, tst=format_instant(time)))


class Terminus:
    """Where all journeys end."""

    async def ask(self, key):
        return {"final_stop": "1", "final_lat": 60.17, "final_lon": 24.94}


def left(folder) -> list[str]:
    """What commands have left there that is not to stay."""
    return [path.name for path in folder.iterdir() if ".recording-" in path.name]


def test_a_recording_gives_what_replaying_it_and_running_over_the_log_gives(spark, shared, tmp_path, inside):
    log = tmp_path / "monday.tw"
    files = [shared / "data" / "hfp" / f"{name}.jsonl.gz" for name in ("bus520_2024", "lightrail15")]
    jobs = ["vehicle-distribution", "delay-distribution", "journeys", "final-stop-distribution"]
    reported = lines(inside("replay", *files, "--processor", "hfp", "--speed", "max", "--json", "--log", log))[-1]
    with open_log(log) as opened:
        positions = {"topics": "input.vehicle-position", "type": VehiclePosition}
        LookupWorker(opened, FINAL_STOP, Terminus(), **positions).run(until_idle=True)
    inside("run", *jobs, "--batch", "--log", log)
    # Into the same log: its own events, which are the same ones, must not be read with them.
    options = [argument for file in files for argument in ("--input", file)]
    once = ["--processor", "hfp", "--version", "once"]
    done = inside("run", *jobs, "--batch", *options, *once, "--json", "--log", log)
    final = lines(done)[-1]
    messages = final["messages"]
    assert messages["received"] == reported["received"] > 3_690
    assert sum(messages["topics"].values()) == reported["topics"]
    assert sum(messages["filtered"].values()) == reported["filtered"] > 0
    assert (messages["dead"], final["dead_letters"]) == ({}, None)
    assert f"{reported['received']:,} messages = {reported['topics']:,} in topics" in done.stderr
    with open_log(log) as opened:
        for job in jobs:
            found = compare(materialize(opened, f"analytics.{job}.batch"), materialize(opened, f"analytics.{job}.once"))
            assert found.equal, (job, found.only_first, found.only_second, found.changed)
            assert found.same > 0, job
            assert found.open == 0, job
        cells = set(materialize(opened, "analytics.final-stop-distribution.once").rows["cell"])
        assert cells not in (set(), {0}), "it finds the answers that the log has"
        years = Counter(materialize(opened, "analytics.journeys.once").rows["window_end"].dt.year())
        assert 2024 in years, "events are of the time that they were recorded at"
        assert final["results"] == sum(opened.topic_info(f"analytics.{job}.once").count for job in jobs)
    assert left(tmp_path) == []


def test_recordings_of_any_kind_are_read_and_what_cannot_be_is_kept_with_its_reason(spark, tmp_path, inside):
    first = [position(second) for second in range(20)]
    (tmp_path / "1.jsonl").write_bytes(b"\n".join([*first, b"no JSON"]))
    more = [position(second) for second in range(20, 40)] + [position(40, temporal="upcoming")] * 3
    (tmp_path / "2.jsonl.gz").write_bytes(gzip.compress(b"\n".join(more)))
    strange = encode_line(Message("strange", b"{}", BEGIN + 50 * SECOND))
    (tmp_path / "3.jsonl.zst").write_bytes(zstandard.compress(b"\n".join([position(45), strange])))
    (tmp_path / "routes.py").write_text(JOB, encoding="utf-8")
    log = tmp_path / "results.tw"
    options = [
        argument for name in ("1.jsonl", "2.jsonl.gz", "3.jsonl.zst") for argument in ("--input", tmp_path / name)
    ]
    options += ["--processor", "hfp"]
    done = inside("run", tmp_path / "routes.py", "--batch", *options, "--json", "--log", log)
    final = lines(done)[-1]
    assert final["messages"] == {
        "received": 46,
        "topics": {"input.vehicle-position": 41},
        "filtered": {"upcoming": 3},
        "dead": {"bad-topic": 2},
    }
    assert (final["results"], final["dead_letters"]) == (5, "dead.routes.batch")
    assert "46 messages = 41 in topics + 3 filtered + 2 dead letters" in done.stderr
    assert "2 dead letters are in dead.routes.batch, each with its reason" in done.stderr
    letters = [record["details"] for record in lines(inside("tail", "dead.routes.batch", "--json", "--log", log))]
    assert [letter["topic"].partition(":")[0] for letter in letters] == ["1.jsonl", "strange"]
    assert all(letter["reason"] for letter in letters)
    with open_log(log) as opened:
        rows = materialize(opened, "analytics.routes.batch").rows
        assert rows["positions"].to_list() == [10, 10, 10, 10, 1]
        assert rows["window_start"].dt.epoch("us").to_list() == [BEGIN + n * 10 * SECOND for n in range(5)]
        assert not [info.name for info in opened.topics() if info.name.startswith("input.")], "results only"
    assert left(tmp_path) == []
    said = inside("run", tmp_path / "routes.py", "--batch", *options, "--log", log, code=2).stderr
    assert "analytics.routes.batch holds results of another run" in said


def test_records_that_the_job_cannot_read_are_kept_too(spark, tmp_path, inside):
    """By another processor: events in their envelope, one of which is in a topic of another type."""
    sent = [VehiclePosition(mode="bus", operator=1, vehicle=7, lat=60.17, lon=24.94), Door(mode="bus")]
    events = [codec.encode(codec.pack(message, event_time=BEGIN)) for message in sent]
    messages = [Message("input.vehicle-position", event, BEGIN + SECOND) for event in events]
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(map(encode_line, messages)))
    log = tmp_path / "city.tw"
    command = ["run", "vehicle-cell", "--batch", "--input", tmp_path / "events.jsonl", "--json", "--log", log]
    assert "which processor reads the messages?" in inside(*command, code=2).stderr
    assert "no processor 'event'; did you mean 'events'?" in inside(*command, "--processor", "event", code=2).stderr
    final = lines(inside(*command, "--processor", "events"))[-1]
    assert final["messages"] == {"received": 2, "topics": {"input.vehicle-position": 2}, "filtered": {}, "dead": {}}
    assert (final["results"], final["dead_letters"]) == (1, "dead.vehicle-cell.batch")
    (letter,) = lines(inside("tail", "dead.vehicle-cell.batch", "--json", "--log", log))
    assert "Door" in letter["details"]["reason"]
    (result,) = lines(inside("tail", "analytics.vehicle-cell.batch", "--json", "--log", log))
    assert instant(result["event_time"]) == BEGIN


def test_nothing_stays_of_a_batch_that_fails(tmp_path, inside):
    (tmp_path / "1.jsonl").write_bytes(position(0))
    options = ["--input", tmp_path / "1.jsonl", "--processor", "hfp", "--log", tmp_path / "city.tw"]
    command = ["run", "vehicle-cell", "--batch", *options]
    said = inside(*command, "--resolution", 99, code=2).stderr
    assert "resolution" in said
    assert left(tmp_path) == []
    with open_log(tmp_path / "city.tw") as log:
        assert not [info.name for info in log.topics() if info.count and info.name.startswith(("input.", "analytics."))]


def test_a_batch_that_is_interrupted_leaves_nothing_and_one_that_is_killed_until_the_next(tmp_path):
    line = position(0) + b"\n"
    (tmp_path / "long.jsonl").write_bytes(line * 200_000)
    options = ["--input", tmp_path / "long.jsonl", "--processor", "hfp", "--json", "--log", tmp_path / "city.tw"]
    command = ["run", "vehicle-cell", "--batch", *options]
    with Running(*command) as running:
        assert next(running.objects())["state"] == "reading"
        (killed,) = left(tmp_path)
        os.kill(running.process.pid, signal.SIGKILL)
    assert left(tmp_path) == [killed]
    with Running(*command) as running:
        assert next(running.objects())["state"] == "reading"
        eventually(lambda: left(tmp_path) not in ([], [killed]), "it has a place of its own")
        assert killed not in left(tmp_path)
        done = running.end(signal.SIGTERM, code=143)
    assert "stopped before all was read; nothing was written" in done.stderr
    assert left(tmp_path) == []
    assert "analytics" not in tidewheel("topics", "--log", tmp_path / "city.tw").stdout
