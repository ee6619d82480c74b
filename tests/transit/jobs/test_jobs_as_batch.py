"""All transit jobs as a stream in batches of any size, as a stream in one batch, and as a batch over the log and over
an archive of it: the same tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tidewheel as tw
from tests.transit.jobs.job_checks import TEN
from tests.transit.jobs.job_traffic import JOB_TOPICS, fill
from tidewheel.engine.jobs.archive import Archiver
from tidewheel.engine.jobs.batch import run_batch
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.materialize import compare, materialize

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def reported(spark, tmp_path_factory):
    """A log on which all jobs have run in each way."""
    folder = tmp_path_factory.mktemp("ways")
    with open_log(folder / "city.tw") as log:
        fill(log, seconds=150, rate=40, seed=7)
        # Nothing is late, so that every cut into batches must give the same.
        results = [replace(job, watermark=tw.watermarks.bounded("2 h")).on(log) for job in TEN]

        def named(way):
            return [result.named(f"{result.name}.{way}") for result in results]

        for way, most in (("small", 2_500), ("whole", 1_000_000)):
            run = tw.run(
                *named(way), log=log, checkpoint=folder / way, spark=spark, available_now=True,
                max_events_per_batch=most,
            )  # fmt: skip
            run.wait()
            assert run.failed == {}
        run_batch(*named("batch"), log=log, spark=spark)
        with Archiver.open(log, folder / "archive", JOB_TOPICS) as archiver:
            while archiver.step(limit=2_000):
                pass
        run_batch(*named("archive"), log=log, archive=folder / "archive", spark=spark, key_groups=5)
        yield log


@pytest.mark.parametrize("way", ["whole", "batch", "archive"])
@pytest.mark.parametrize("name", [job.name for job in TEN])
def test_every_way_gives_the_same_table(reported, name, way):
    found = compare(materialize(reported, f"analytics.{name}.small"), materialize(reported, f"analytics.{name}.{way}"))
    assert found.equal, (found.only_first, found.only_second, found.changed)
    assert found.same > 0
    assert found.open == 0


@pytest.mark.parametrize("way", ["whole", "batch", "archive"])
def test_every_way_finds_the_same_answers(reported, way):
    name = "final-stop-distribution"
    found = compare(materialize(reported, f"failed.{name}.small"), materialize(reported, f"failed.{name}.{way}"))
    assert found.equal, (found.only_first, found.only_second)
    assert set(materialize(reported, f"failed.{name}.{way}").rows["reason"]) == {
        "broken",
        "the service knows no answer",
    }
    cells = set(materialize(reported, f"analytics.{name}.{way}").rows["cell"])
    assert len(cells) > 2, "known stops"
    assert not {0, None} & cells, "those that nobody knows are apart"
    apart = materialize(reported, f"unresolved.{name}.{way}")
    assert len(apart.rows) > 0
    assert compare(materialize(reported, f"unresolved.{name}.small"), apart).equal
