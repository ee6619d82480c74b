"""A new version of jobs beside the old one, while events go on coming: over the history, compared, switched to."""

from __future__ import annotations

import signal

import pytest

from tests.support.command import Running, eventually, lines
from tidewheel.transport.open_log import open_log

pytestmark = pytest.mark.long

SIMULATE = ["simulate", "--steady", "--rate"]
JOBS = """
import polars as pl
import tidewheel as tw

@tw.job("routes", reads="input.vehicle-position")
def routes(positions: tw.Stream) -> tw.Result:
    \"\"\"Positions of each route.\"\"\"
    windows = positions.key_by("route").window(tw.windows.tumbling("2 s"), lateness="1 h")
    return windows.aggregate(positions=tw.agg.count())

@tw.job("busy", reads="input.vehicle-position")
def busy(positions: tw.Stream, *, least: int = 1) -> tw.Result:
    \"\"\"Routes with so many vehicles.\"\"\"
    windows = positions.key_by("route").window(tw.windows.tumbling("2 s"), lateness="1 h")
    return windows.aggregate(vehicles=tw.agg.count_distinct("vehicle")).filter(pl.col("vehicles") >= least)
"""
POSITIONS = "input.vehicle-position"
ROUTES, BUSY = "analytics.routes", "analytics.busy"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_new_version_catches_up_beside_the_old_one_and_readers_are_switched_to_it(tmp_path, inside):
    path, jobs = tmp_path / "city.tw", tmp_path / "jobs.py"
    jobs.write_text(JOBS, encoding="utf-8")
    here = ["--log", path]
    inside(*SIMULATE, 60, "--speed", "max", "--for", "30s", *here)
    with (
        open_log(path) as log,
        Running(*SIMULATE, 20, *here) as events,  # few, or a busy machine would hardly catch up with them
        Running("run", jobs, *here) as first,
    ):

        def count(topic: str) -> int:
            return next((info.count for info in log.topics() if info.name == topic), 0)

        def lag(run: str) -> int:
            return log.topic_info(POSITIONS).next_offsets[0] - log.committed(run).get((POSITIONS, 0), 0)

        eventually(lambda: lag("jobs") < 500, "the old version has done the history, and goes on")
        with Running("run", jobs, "--least", 2, "--version", "v2", "--max-events-per-batch", 500, *here) as second:
            # Into topics of its own, over all of the history, in small batches: at first it is behind.
            eventually(lambda: count(f"{ROUTES}.v2"), "the new version has begun")
            said = inside("compare", ROUTES, f"{ROUTES}.v2", *here, code=1).stdout
            assert f"{ROUTES}.v2 is behind" in said
            before = count(ROUTES)
            eventually(lambda: count(ROUTES) > before, "the old version goes on beside it")
            eventually(lambda: lag("jobs.v2") < 500, "the new version has caught up")
            events.end(signal.SIGTERM)
            eventually(lambda: lag("jobs") == lag("jobs.v2") == 0, "both have done all that came")

            # What was meant to stay the same is the same, what was to change has changed, and nothing else.
            (reported,) = lines(inside("compare", ROUTES, f"{ROUTES}.v2", "--json", *here))
            assert (reported["equal"], reported["behind"]) == (True, 0)
            assert reported["same"] > 100
            (reported,) = lines(inside("compare", BUSY, f"{BUSY}.v2", "--examples", 10_000, "--json", *here, code=1))
            assert (reported["behind"], reported["only_second"], reported["changed"]) == (0, 0, 0)
            assert min(reported["same"], reported["only_first"]) > 10
            assert {row["vehicles"] for row in reported["examples"]["only_first"]} == {1}

            with Running("tail", BUSY, "--follow", "-n", 1, "--json", *here) as reader:
                found = reader.objects()
                next(found)
                inside("switch", BUSY, f"{BUSY}.v2", *here)
                assert reader.process.stderr is not None
                assert f"stands for {BUSY}.v2 now" in reader.process.stderr.readline()
                assert first.end(signal.SIGTERM).returncode == 0, "nobody needs the old version any more"
                ended = count(BUSY)
                with Running(*SIMULATE, 60, *here) as more:  # until a window has ended, however long that takes
                    followed = (record["details"] for record in found)
                    result = next(details for details in followed if "vehicles" in details)
                    assert int(result["vehicles"]) >= 2
                    more.end(signal.SIGTERM)
            assert count(BUSY) == ended
            second.end(signal.SIGTERM)
            shown = lines(inside("tail", BUSY, "-n", 5, "--json", *here))
            assert shown == lines(inside("tail", f"{BUSY}.v2", "--as-is", "-n", 5, "--json", *here))
