"""`run`: a job on the log, exactly once, whatever stops it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.command import Running, identities, in_process, lines
from tidewheel.transport.open_log import open_log

SIMULATE = ["simulate", "--steady", "--speed", "max", "--clock", "2026-03-02T06:15:00Z"]


class Story(NamedTuple):
    """A run that was stopped by SIGTERM, and the run that finished its work."""

    log: Path
    written: int
    """How many results were there between the two."""
    stopped: dict[str, Any]
    begun: set[str]
    """The batches that were begun, between the two; likewise `committed`."""
    committed: set[str]
    finished: dict[str, Any]
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def story(spark, tmp_path_factory) -> Story:
    log = tmp_path_factory.mktemp("run") / "city.tw"
    in_process(*SIMULATE, "--rate", 500, "--for", "60s", "--log", log)
    job = ["run", "vehicle-cell", "--json", "--log", log]
    with Running(*job, "--max-events-per-batch", 1_000) as running:
        for reported in running.objects():
            if reported.get("results", 0) > 0:
                break
        stopped = lines(running.end(signal.SIGTERM))[-1]
    with open_log(log) as opened:
        written = identities(opened, "analytics.vehicle-cell").total()
    spark = Path(f"{log}.checkpoints") / "vehicle-cell" / "spark"
    begun, committed = (
        {path.name for path in (spark / kind).iterdir() if path.name.isdigit()} for kind in ("offsets", "commits")
    )
    done = in_process(*job, "--available-now", "--no-fsync")
    return Story(log, written, stopped, begun, committed, lines(done)[-1], done)


@pytest.mark.slow
def test_sigterm_finishes_the_batch_and_the_next_run_goes_on(story):
    assert story.stopped["lag"] > 0, "it was done before it could be stopped: give it more to do"
    assert story.stopped["events"] > 0
    assert story.written == story.stopped["results"]
    assert story.committed == story.begun, "the batch was dropped, not finished"
    assert (story.finished["events"], story.finished["lag"]) == (story.stopped["lag"], 0)


def test_every_position_on_a_journey_has_its_result_once(story):
    with open_log(story.log) as log:
        results = identities(log, "analytics.vehicle-cell")
        assert results == identities(log, "input.vehicle-position")
        assert results.total() == story.stopped["results"] + story.finished["results"]


def test_it_reports_what_it_processed(story):
    reported, said = story.finished, story.done.stderr
    assert f"{reported['events']:,} events processed, {reported['results']:,} results in analytics.vehicle-cell" in said


def test_the_results_can_be_looked_at(story, inside):
    # The last record is a mark of how far event time is.
    record, mark = lines(inside("tail", "analytics.vehicle-cell", "-n", 2, "--json", "--log", story.log))
    assert mark["details"]["@type"].endswith("Punctuation")
    assert record["key"] == f"{record['details']['operator']}/{record['details']['vehicle']}"
    assert int(record["details"]["cell"]) >> 52 & 0xF == 9
    (found,) = lines(inside("topics", "--json", "--log", story.log))
    assert [(group["group"], group["lag"]) for group in found["groups"]] == [("vehicle-cell", 0)]


def test_a_checkpoint_of_other_parameters_is_refused(story, inside):
    said = inside("run", "vehicle-cell", "--resolution", 8, "--available-now", "--log", story.log, code=4).stderr
    assert "does not fit this job: vehicle-cell: parameter resolution: 9 → 8. " in said
    assert "--accept-changes" in said
    assert "--version v2" in said
    assert "Traceback" not in said


def test_a_checkpoint_of_another_log_is_refused(story, inside, tmp_path):
    checkpoint = f"{story.log}.checkpoints/vehicle-cell"
    other = tmp_path / "other.tw"
    said = inside("run", "vehicle-cell", "--log", other, "--checkpoint", checkpoint, code=4).stderr
    assert "does not fit this job: it was made on another log" in said


def test_results_are_not_written_twice_by_a_run_that_begins_anew(story, inside, tmp_path):
    said = inside("run", "vehicle-cell", "--log", story.log, "--checkpoint", tmp_path / "new", code=2).stderr
    assert "analytics.vehicle-cell holds results of another run" in said
    assert "--version NAME" in said
