"""A job that is not the one its checkpoint was made for: refused before Spark is started, in words that help."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import textwrap

import polars as pl
import pytest

import tidewheel as tw
from tests.support.command import tidewheel
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.engine.execution import shared_query
from tidewheel.engine.execution.computation import definition_of
from tidewheel.engine.jobs.discovery import find_jobs
from tidewheel.errors import CheckpointError
from tidewheel_transit.transit_pb2 import VehiclePosition

TOPIC = "input.vehicle-position"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch):
    def session(*args, **options):
        raise AssertionError("Spark would be started")

    monkeypatch.setattr(shared_query, "session", session)


def positions(log, topic=TOPIC, **options):
    return tw.stream(log, topic, type=VehiclePosition, **options)


def counted(rows, *, least=15, size="10 s", keys=("vehicle",), lateness="0 s", **more):
    fast = rows.filter(pl.col("speed") > least).key_by(*keys).window(tw.windows.tumbling(size), lateness=lateness)
    return fast.aggregate(n=tw.agg.count(), top=tw.agg.max(pl.col("speed") * 3.6), **more).named("fast")


def stopped(rows, slow=1.0):
    stop = tw.pattern("fast", pl.col("speed") > 10).next("standing", pl.col("speed") < slow)
    return rows.key_by("vehicle").match(stop).named("fast")


def made(folder, log, *results, name="fast", **changes):
    """A checkpoint as a run of these results leaves it."""
    flows = {result.name: definition_of(result) for result in results}
    held = Checkpoint(folder)
    held.acquire({"job": name, "log": log.identity, "key_groups": 2, "flows": json.loads(json.dumps(flows)), **changes})
    held.release()
    return folder


def refusal(log, folder, *results, **options):
    with pytest.raises(CheckpointError) as refused:
        tw.run(*results, log=log, checkpoint=folder, name="fast", **options)
    return str(refused.value)


def begun(log, folder, *results, **options):
    """Were these not refused?"""
    with pytest.raises(AssertionError, match="Spark would be started"):
        tw.run(*results, log=log, checkpoint=folder, name="fast", **options)
    return True


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        (lambda rows: counted(rows, least=12), 'filter: col("speed") > 15 → col("speed") > 12'),
        (lambda rows: counted(rows, size="20 s"), "window: tumbling('10 s') → tumbling('20 s')"),
        (lambda rows: counted(rows, keys=("operator", "vehicle")), "key_by: vehicle → operator, vehicle"),
        (lambda rows: counted(rows, lateness="5 s"), "lateness: not set → 5 s"),
        (lambda rows: counted(rows, acc=tw.agg.sum("acc")), "aggregate acc: not set → sum('acc')"),
        (
            lambda rows: counted(rows.with_columns(x=pl.col("speed") + 1)),
            'with_columns((col("speed") + 1).alias("x")) is new',
        ),
        (lambda rows: counted(positions(rows.input.log, "input.other")), f"input topics: {TOPIC} → input.other"),
        (
            lambda rows: counted(positions(rows.input.log, watermark="5 s")),
            "watermark: bounded('1 s') → bounded('5 s')",
        ),
    ],
)
def test_what_differs_is_reported_by_job_and_step_before_spark_is_started(log, tmp_path, changed, reported):
    folder = made(tmp_path / "c", log, counted(positions(log)))
    assert begun(log, folder, counted(positions(log)))
    said = refusal(log, folder, changed(positions(log)))
    assert f"does not fit this job: fast: {reported}. State was made by these steps" in said
    assert "--version v2" in said
    assert 'result.named("NAME.v2") and a new checkpoint' in said
    assert refusal(log, folder, changed(positions(log)), accept_changes=True) == said


def test_patterns_report_their_stage_and_other_kinds_all_of_them(log, tmp_path):
    folder = made(tmp_path / "c", log, stopped(positions(log)))
    said = refusal(log, folder, stopped(positions(log), slow=2.0))
    assert 'fast: pattern standing condition expression: col("speed") < 1.0 → col("speed") < 2.0. ' in said
    assert "match(" in (said := refusal(log, folder, counted(positions(log))))
    assert "window(windows" in said


def test_without_state_a_change_may_be_accepted(log, tmp_path):
    def fast(least):
        return positions(log).filter(pl.col("speed") > least).key_by("vehicle").each_row().named("fast")

    folder = made(tmp_path / "c", log, fast(15))
    said = refusal(log, folder, fast(12))
    assert 'fast: filter: col("speed") > 15 → col("speed") > 12. ' in said
    assert "go on with --accept-changes (accept_changes=True)" in said
    assert begun(log, folder, fast(12), accept_changes=True)
    assert "job more is new" in refusal(log, folder, fast(15), fast(3).named("more"))
    with_state = counted(positions(log)).named("more")
    assert "State was made" in refusal(log, folder, fast(15), with_state, accept_changes=True)


def test_another_polars_may_have_other_words_for_an_expression(log, tmp_path):
    """Then nothing but expressions differs, and who knows that they are what they were says so."""
    result = counted(positions(log))
    reworded = json.loads(json.dumps(definition_of(result)).replace("> 15", "greater than 15"))
    folder = made(tmp_path / "c", log, result, flows={"fast": reworded})
    assert "State was made by these steps" in refusal(log, folder, result)
    kept = json.loads((folder / "tidewheel.json").read_text())
    assert kept["polars"] == pl.__version__
    folder = made(tmp_path / "d", log, result, flows={"fast": reworded}, polars="1.99.0")
    said = refusal(log, folder, result)
    assert f"made with polars 1.99.0, and this is polars {pl.__version__}" in said
    assert "--accept-changes" in said
    assert begun(log, folder, result, accept_changes=True)
    assert "lateness: not set → 5 s" in refusal(
        log, folder, counted(positions(log), lateness="5 s"), accept_changes=True
    )


def test_the_version_of_polars_is_that_of_the_last_run(log, tmp_path):
    folder = made(tmp_path / "c", log, counted(positions(log)), polars="1.99.0")
    made(folder, log, counted(positions(log)))
    assert json.loads((folder / "tidewheel.json").read_text())["polars"] == pl.__version__


def test_a_checkpoint_of_another_format_is_refused_in_words(log, tmp_path):
    for version, when in ((4, "an earlier"), (6, "a later")):
        folder = made(tmp_path / str(version), log, counted(positions(log)), version=version)
        said = refusal(log, folder, counted(positions(log)))
        assert f"was written by {when} Tidewheel (its format is {version}, and this one reads 5)" in said
        assert "start with a new checkpoint" in said


MY_JOB = """
    import tidewheel as tw
    from tidewheel_transit.transit_pb2 import VehiclePosition

    @tw.job("counts", reads={"input.vehicle-position": VehiclePosition})
    def counts(rows: tw.Stream, *, size: str = "10 s") -> tw.Result:
        return rows.window(tw.windows.tumbling(size)).aggregate(n=tw.agg.count())
    """


@pytest.mark.parametrize(
    ("job", "change", "difference"),
    [
        ("my_jobs.py", ("--size", "20 s"), "counts: parameter size: 10 s → 20 s. "),
        ("vehicle-distribution", ("--resolution", 8), "vehicle-distribution: parameter resolution: 9 → 8. "),
    ],
)
def test_the_command_refuses_it_without_java_and_before_pyspark_is_imported(log, tmp_path, job, change, difference):
    if job.endswith(".py"):
        (tmp_path / job).write_text(textwrap.dedent(MY_JOB))
        job = tmp_path / job
    (found,) = find_jobs([str(job)])
    folder = made(tmp_path / "c", log, found.on(log), name=found.name)
    home, started = tmp_path / "java", tmp_path / "started"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    java.chmod(java.stat().st_mode | stat.S_IEXEC)
    environment = {"JAVA_HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    options = ("--log", log.address, "--checkpoint", folder, "--available-now")
    said = tidewheel("run", job, *change, *options, code=4, **environment, PYTHONPROFILEIMPORTTIME="1").stderr
    assert difference in said
    assert "--version v2" in said
    imported = {line.rpartition("|")[2].strip() for line in said.splitlines() if line.startswith("import time:")}
    assert imported & {"polars", "pyspark", "pandas.core", "pyarrow", "py4j"} == {"polars", "pyarrow"}
    assert not started.exists()
    looking = "from tidewheel.java import find_java; find_java()"
    subprocess.run([sys.executable, "-c", looking], env={**os.environ, **environment}, check=True)
    assert started.exists(), "as soon as somebody looks for a Java to start Spark with"
