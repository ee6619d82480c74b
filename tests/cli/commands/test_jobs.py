"""A newcomer's job: made of another one's file, run from the command line in every way there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.command import identities, in_process, lines
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.materialize import materialize
from tidewheel_transit import jobs
from tidewheel_transit.jobs import vehicle_cell as template

pytestmark = pytest.mark.long

SIMULATE = ["simulate", "--steady", "--speed", "max", "--clock", "2026-03-02T06:15:00Z", "--rate", 300, "--for", "40s"]

ALL = [getattr(jobs, name) for name in jobs.__all__]
CHANGES = [
    ("vehicle-cell: each vehicle position with its H3 cell.", "busy-routes: how many vehicles each route has."),
    (
        "from tidewheel_transit.transit_pb2 import VehicleCell, VehiclePosition",
        "from tidewheel_transit.transit_pb2 import VehiclePosition",
    ),
    ('__all__ = ["vehicle_cell"]', '__all__ = ["busy_routes"]'),
    ('@tw.job("vehicle-cell", ', '@tw.job("busy-routes", '),
    (", writes=VehicleCell)", ")"),
    (
        "def vehicle_cell(positions: tw.Stream, *, resolution: int = 9)",
        'def busy_routes(positions: tw.Stream, *, size: str = "30 s")',
    ),
    ("Each vehicle position with its H3 cell.", "Vehicles of each route, in windows of this size."),
    ("import in_cells", "import on_journey"),
    (
        "Positions between journeys and positions without a place are skipped, and counted.",
        "Positions between journeys are skipped, and counted.",
    ),
]
"""What a newcomer changes in the words; the steps in between are written anew."""

STEPS = """\
    return (
        on_journey(positions)
        .key_by("route")
        .window(tw.windows.tumbling(size), lateness="1 h")
        .aggregate(vehicles=tw.agg.count_distinct("vehicle"), positions=tw.agg.count())
    )
"""


def newcomers_job() -> str:
    text = Path(template.function.__code__.co_filename).read_text(encoding="utf-8")
    for old, new in CHANGES:
        assert old in text, f"the template has changed: {old}"
        text = text.replace(old, new, 1)
    head, docstring, body = text.rpartition('"""\n')
    assert "return" in body
    return head + docstring + STEPS


class Story(NamedTuple):
    """What the commands reported."""

    log: Path
    job: Path
    together: dict[str, Any]
    archive: Path


@pytest.fixture(scope="module")
def story(spark, tmp_path_factory) -> Story:
    folder = tmp_path_factory.mktemp("jobs")
    log, job, config, archive = (folder / name for name in ("city.tw", "busy_routes.py", "city.toml", "archive"))
    in_process(*SIMULATE, "--log", log)
    job.write_text(newcomers_job(), encoding="utf-8")
    config.write_text('[busy-routes]\nsize = "20 s"\n[vehicle-cell]\nresolution = 7\n')
    together = ["run", job, "vehicle-cell", "--config", config, "--size", "10 s", "--log", log, "--json"]
    done = in_process(*together, "--available-now", "--max-events-per-batch", 2_000, "--no-fsync")
    in_process("archive", "--to", archive, "--available-now", "--log", log)
    in_process("run", job, "--batch", "--input", archive, "--size", "10 s", "--log", log)
    in_process("run", job, "--config", config, "--version", "v2", "--available-now", "--no-fsync", "--log", log)
    return Story(log, job, lines(done)[-1], archive)


def test_a_job_of_at_most_forty_lines_is_made_of_the_shortest(story):
    lengths = {job.name: len(Path(job.function.__code__.co_filename).read_text().splitlines()) for job in ALL}
    assert min(lengths.values()) == lengths[template.name]
    assert len(story.job.read_text().splitlines()) <= 40


@pytest.mark.slow
def test_jobs_run_together_in_one_query_each_with_its_topics(story):
    assert (story.together["job"], story.together["lag"], story.together["failed"]) == ("jobs", 0, {})
    with open_log(story.log) as log:
        names = {info.name for info in log.topics()}
        assert {"analytics.busy-routes", "late.busy-routes", "metrics.busy-routes"} <= names
        assert {"analytics.vehicle-cell", "metrics.vehicle-cell"} <= names
        assert identities(log, "analytics.vehicle-cell") == identities(log, "input.vehicle-position")
        assert log.groups() == ["archive", "busy-routes.v2", "jobs"]


def test_parameters_come_from_the_file_and_before_them_from_the_command_line(story, inside):
    def sizes(topic):
        with open_log(story.log) as log:
            rows = materialize(log, topic).rows
            return {size.total_seconds() for size in rows["window_end"] - rows["window_start"]}

    assert sizes("analytics.busy-routes") == {10.0}, "the command line goes before the file"
    assert sizes("analytics.busy-routes.v2") == {20.0}
    (record, _) = lines(inside("tail", "analytics.vehicle-cell", "-n", 2, "--json", "--log", story.log))
    assert int(record["details"]["cell"]) >> 52 & 0xF == 7


def test_a_batch_over_the_archive_gives_the_table_of_the_stream(story, inside):
    same = inside("compare", "analytics.busy-routes", "analytics.busy-routes.batch", "--json", "--log", story.log)
    (reported,) = lines(same)
    assert reported["same"] > 20


def test_another_version_stands_beside_the_first_until_readers_are_switched(story, inside):
    first, second = "analytics.busy-routes", "analytics.busy-routes.v2"
    (reported,) = lines(inside("compare", first, second, "--json", "--log", story.log, code=1))
    assert reported["only_first"] > 0
    inside("switch", first, second, "--log", story.log)
    (record, _) = lines(inside("tail", first, "-n", 2, "--json", "--log", story.log))
    (same, _) = lines(inside("tail", second, "--as-is", "-n", 2, "--json", "--log", story.log))
    assert record == same


def test_a_batch_is_not_written_twice(story, inside):
    said = inside("run", story.job, "--batch", "--log", story.log, code=2).stderr
    assert "analytics.busy-routes.batch holds results of another run" in said


def test_the_help_of_several_jobs_lists_all_their_parameters(story, inside):
    text = inside("run", story.job, "vehicle-cell", "--help").stdout
    assert "Vehicles of each route, in windows of this size." in text
    assert "--size" in text
    assert "--resolution" in text
