"""The demo ends in good order, whoever ends it, and its counts add up."""

from __future__ import annotations

import io
import os
import re
import signal
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.support.command import Running, eventually, identities, in_process, lines
from tidewheel.engine.jobs.discovery import installed_jobs
from tidewheel.ingest.pipeline import read_reports
from tidewheel.model.time import duration, now
from tidewheel.transport.events import codec
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.run_states import RunStates
from tidewheel_transit.commands.demo import RETENTION_AGE, keep_an_hour
from tidewheel_transit.commands.demo_view import Dashboard, first_of_all, plain
from tidewheel_transit.commands.demo_watch import Watch
from tidewheel_transit.transit_pb2 import VehicleCell, VehiclePosition

DEMO = ["demo", "--job", "vehicle-cell", "--port", 0]


def counts(text: str, line: str) -> list[int]:
    """The numbers of a line of the summary."""
    (found,) = re.findall(rf"^{line}:\s*(.*)$", text, re.MULTILINE)
    assert found.count("✓") == (line != "processed")
    return [int(number.replace(",", "")) for number in re.findall(r"\b\d[\d,]*", found)]


def assert_adds_up(log_path, shown: str, *, alone: bool = True) -> None:
    """alone: no other job reads other topics."""
    received, topics, filtered, dead = counts(shown, "in")
    assert received == topics + filtered + dead > 0
    positions, batches, _ = counts(shown, "processed")
    results, expected, *_ = counts(shown, "results")
    reported = lines(in_process("tail", "metrics.vehicle-cell", "-n", 100_000, "--json", "--log", log_path))
    skipped = sum(int(line["details"].get("skipped", 0)) for line in reported)
    assert results == expected > 0
    assert positions - skipped == expected if alone else positions - skipped > expected
    assert batches > 0
    with open_log(log_path) as log:
        (report,) = read_reports(log)
        assert report.received == received
        found = identities(log, "analytics.vehicle-cell")
        assert found == identities(log, "input.vehicle-position")
        assert found.total() == results


@pytest.mark.slow
def test_the_demo_of_all_jobs_stops_by_itself_and_its_counts_add_up(tmp_path):
    path = tmp_path / "demo.tw"
    with Running("demo", "--port", 0, "--for", "8s", "--rate", 300, "--log", path) as running:
        shown, said = running.process.communicate(timeout=300)
        assert running.process.returncode == 0, said
        assert_adds_up(path, shown, alone=False)
        assert re.search(r"processed [\d,]+ positions/s, lag [\d,]+, results [\d,]+", shown)
        assert re.search(
            r"^start: +first vehicles (at once|[\d.]+ s), first results [\d.]+ s after", shown, re.MULTILINE
        )
        assert "(Spark is starting: " in shown
        assert "first results usually after" in shown
        with open_log(path) as log:
            for job in installed_jobs():
                assert log.topic_info(f"metrics.{job}").count > 0, job
            for job in ("vehicle-distribution", "final-stop-distribution"):
                assert log.topic_info(f"analytics.{job}").count > 0, job
            assert RunStates(log).starting(now=now()) == {}
        panes = lines(in_process("tail", "analytics.vehicle-distribution", "-n", 100_000, "--json", "--log", path))
        timings = {line["details"]["pane_timing"] for line in panes if "pane_timing" in line["details"]}
        assert timings >= {"EARLY", "ON_TIME"}, "provisional results, and firm ones"
        eventually(lambda: not running.processes(), "no process is left behind", timeout=60)


def test_ctrl_c_ends_the_demo_with_everything_finished(tmp_path):
    with Running(*DEMO, "--rate", 300, "--log", tmp_path / "demo.tw") as running:
        assert running.process.stdout is not None
        for line in running.process.stdout:
            if "Ctrl-C ends it" in line:
                break
        assert len(running.processes()) > 3
        done = running.end(signal.SIGINT)
        assert_adds_up(tmp_path / "demo.tw", done.stdout)
        eventually(lambda: not running.processes(), "no process is left behind", timeout=60)


def test_ctrl_c_while_spark_starts_ends_the_demo_at_once(tmp_path):
    with Running(*DEMO, "--log", tmp_path / "demo.tw") as running:
        eventually(lambda: len(running.processes()) >= 4, "simulator and Spark are on their way")
        done = running.end(signal.SIGINT)
        assert "nothing was processed" in done.stdout
        eventually(lambda: not running.processes(), "no process is left behind", timeout=60)


def test_nothing_outlives_a_demo_that_is_killed(tmp_path):
    with Running(*DEMO, "--log", tmp_path / "demo.tw") as running:
        eventually(lambda: len(running.processes()) >= 4, "simulator and Spark are on their way")
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        eventually(lambda: not running.processes(), "all have ended", timeout=120)


def drawn(dashboard: Dashboard, snapshot, *, height: int = 40) -> str:
    """What a terminal of so many lines shows."""
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(dashboard.draw(snapshot, height=height, stage="Ctrl-C ends it"))
    return console.file.getvalue()


def test_the_terminal_shows_rates_lag_and_the_latest_results(tmp_path, monkeypatch):
    def position(n: int) -> bytes:
        message = VehiclePosition(operator=22, vehicle=n, lat=60.17, lon=24.94, journey="journey")
        return codec.encode(codec.pack(message, event_time=n, ingestion_time=n))

    def result(n: int) -> bytes:
        message = VehicleCell(
            operator=22, vehicle=n, mode="tram", route="1009", cell=0x891126D3607FFFF + n, speed=10.0, delay=-150
        )
        return codec.encode(codec.pack(message, event_time=n, ingestion_time=n))

    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr("tidewheel.model.rate.time", clock)
    dashboard = Dashboard()
    with open_log(tmp_path / "log.tw") as log:
        log.create_topic("input.vehicle-position")
        log.create_topic("analytics.vehicle-cell")
        watch = Watch(log, start_from={}, group="demo")
        shown = drawn(dashboard, watch.look(seconds=0.0, job={}))
        assert re.search(r"lag +0 positions ", shown)
        assert "none yet" in shown

        log.append("input.vehicle-position", records([*map(position, range(100, 120))]))
        log.append("analytics.vehicle-cell", records([*map(result, range(100, 112))]))
        log.commit("demo", {("input.vehicle-position", 0): 12})
        clock.monotonic = lambda: 102.0
        snapshot = watch.look(seconds=2.0, job={"batches": 3, "batch_ms": 250.0}, url="http://127.0.0.1:8080")
    shown = drawn(dashboard, snapshot)
    assert re.search(r"in +10 events/s", shown)
    assert re.search(r"processed +6 positions/s", shown)
    assert re.search(r"lag +8 positions \(0\.8 s\)", shown)
    assert "3, the last took 250 ms" in shown
    assert "http://127.0.0.1:8080" in shown
    assert re.findall(r"tram +1009 +22/(\d+)", shown) == ["111", "110", "109", "108", "107", "106", "105", "104"]
    assert re.search(rf"22/111 +{0x891126D3607FFFF + 111:x} +36 km/h +2 min late", shown)
    assert re.findall(r"22/(\d+)", drawn(dashboard, snapshot, height=20)) == ["111", "110", "109"]


def test_the_first_position_and_the_first_result_are_reported_from_the_address_on(tmp_path):
    position = codec.encode(codec.pack(VehiclePosition(operator=22, vehicle=1), event_time=5, ingestion_time=5))
    with open_log(tmp_path / "log.tw") as log:
        log.append("input.vehicle-position", records([position]))
        watch = Watch(log, start_from={("input.vehicle-position", 0): 1}, group="demo")
        assert watch.firsts() == (None, None)
        before = now()
        log.append("input.vehicle-position", records([position]))
        log.append("analytics.vehicle-distribution", codec.punctuation(5))
        (vehicles, results) = watch.firsts()
        assert results is None, "a watermark is no result"
        log.append("analytics.emergency-stop", records([position]))
        again, results = watch.firsts()
        log.append("analytics.journeys", records([position]))
        assert before <= vehicles == again <= results <= now()
        assert watch.firsts() == (vehicles, results), "the first ones stay the first"
    assert first_of_all(vehicles, [vehicles, vehicles + 15_500_000]) == (
        "start:      first vehicles at once, first results 15.5 s after the address of the map was shown"
    )
    assert first_of_all(0, [None, None]) == "start:      nothing came after the address of the map was shown"


def test_while_spark_starts_a_line_shows_only_what_there_is(tmp_path):
    with open_log(tmp_path / "log.tw") as log:
        watch = Watch(log, start_from={}, group="demo")
        assert plain(watch.look(seconds=3.0, job={})) == "   3 s: in 0 events/s"
        reported = plain(watch.look(seconds=4.0, job={"batches": 1, "watermark": "2026-01-01T12:00:00Z"}))
    assert re.fullmatch(
        r"   4 s: in 0 events/s, processed 0 positions/s, lag 0, results 0, watermark [\d: -]+", reported
    )


def test_the_check_finds_what_is_missing_and_what_is_there_twice(tmp_path):
    def position(second: int) -> bytes:
        message = VehiclePosition(operator=1, vehicle=2, lat=60.0, lon=25.0, journey="journey")
        return codec.encode(codec.pack(message, event_time=second, ingestion_time=second))

    def result(second: int) -> bytes:
        return codec.encode(codec.pack(VehicleCell(operator=1, vehicle=2), event_time=second, ingestion_time=second))

    with open_log(tmp_path / "log.tw") as log:
        log.append("input.vehicle-position", records([position(0)]))
        watch = Watch(log, start_from={("input.vehicle-position", 0): 1}, group="demo")
        deadrun = codec.encode(codec.pack(VehiclePosition(lat=60.0, lon=25.0, journey="deadrun"), event_time=1))
        log.append("input.vehicle-position", records([*map(position, [1, 2, 3, 3]), deadrun]))
        log.append("analytics.vehicle-cell", records([*map(result, [0, 1, 2, 3])]))
        check = watch.check()
        assert (check.expected, check.missing, check.twice, check.whole) == (4, 1, 0, True)
        log.append("analytics.vehicle-cell", records([result(3), result(1)]))
        check = watch.check()
        assert (check.expected, check.missing, check.twice) == (4, 0, 1)
        assert not check.passed


def test_the_check_takes_what_retention_has_left(tmp_path):
    def positions(seconds) -> list[bytes]:
        message = VehiclePosition(operator=1, vehicle=2, lat=60.0, lon=25.0, journey="journey")
        return [codec.encode(codec.pack(message, event_time=second, ingestion_time=second)) for second in seconds]

    def results(seconds) -> list[bytes]:
        message = VehicleCell(operator=1, vehicle=2)
        return [codec.encode(codec.pack(message, event_time=second, ingestion_time=second)) for second in seconds]

    with open_log(tmp_path / "log.tw") as log:
        watch = Watch(log, start_from={}, group="demo")
        for some in (range(100), range(100, 150)):
            log.append("input.vehicle-position", records(positions(some)))
            log.append("analytics.vehicle-cell", records(results(some)))
        log.create_topic("input.vehicle-position", retention=Retention(size=0))
        log.maintain()
        assert log.topic_info("input.vehicle-position").first_offsets == (100,)
        check = watch.check()
        assert (check.expected, check.missing, check.twice, check.passed) == (50, 0, 0, True)
        assert not check.whole
        assert watch.look(seconds=1.0, job={}).results == 150


def test_the_topics_that_the_demo_makes_keep_an_hour(tmp_path):
    with open_log(tmp_path / "log.tw") as log:
        log.append("input.mine", records([b"x"]))
        log.append("input.vehicle-position", records([b"x"]))
        log.create_topic("ingested.hfp", compact=True)
        log.create_topic("analytics.short", retention=Retention(age=5))
        keep_an_hour(log, before={("input.mine", 0): 1})
        kept = {info.name: info.retention for info in log.topics()}
    assert kept == {
        "input.mine": Retention(),
        "input.vehicle-position": Retention(age=RETENTION_AGE),
        "ingested.hfp": Retention(),
        "analytics.short": Retention(age=5),
    }
    assert duration("1 h") <= RETENTION_AGE <= duration("90 min")
