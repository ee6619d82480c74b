"""A checkpoint on a full disk: the error says so, and with room the job goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidewheel as tw
from tests.engine.orders import INPUT, put
from tests.engine.orders import rows as results
from tests.support.disks import fill, small_disk
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.engine.execution.running_query import translate_error
from tidewheel.errors import CheckpointError, JobError


def test_a_checkpoint_that_cannot_be_begun_for_want_of_room_says_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        other = fill(disk)
        checkpoint = Checkpoint(disk / "state")
        with pytest.raises(CheckpointError, match=r"state cannot be written: No space left on device; make room"):
            checkpoint.acquire({"job": "x", "log": "y"})
        other.unlink()
        checkpoint.acquire({"job": "x", "log": "y"})
        checkpoint.release()


@pytest.mark.long
def test_a_disk_that_becomes_full_under_a_running_job_is_what_broke_it(spark, log, tmp_path: Path) -> None:
    put(log, (1.0, "fi", 1))
    rows = tw.stream(log, INPUT).key_by("country").each_row().named("rows")
    with small_disk(tmp_path / "disk", megabytes=4) as disk:
        run = tw.run(rows, log=log, checkpoint=disk / "state", spark=spark)
        while run.progress().events < 1:
            assert not run.wait(0.1), "it ended"
        other = fill(disk)
        put(log, (2.0, "fi", 1))
        with pytest.raises(JobError, match="job rows: a disk is full, that of the checkpoint"):
            run.wait(timeout=900)
        other.unlink()
        again = tw.run(rows, log=log, checkpoint=disk / "state", spark=spark, available_now=True)
        again.wait()
        assert again.progress().lag == 0
    assert [amount for (amount,) in results(log, "analytics.rows", ["amount"])] == [1, 1]


class Report(Exception):
    """What Spark says."""


def test_what_may_pass_is_not_reported_as_damage_of_a_checkpoint_that_is_whole(tmp_path: Path) -> None:
    for kind, expected in (
        ("UNRELEASED_THREAD_ERROR", JobError),
        ("UNCATEGORIZED", JobError),
        ("CANNOT_READ_DELTA_FILE_NOT_EXISTS", CheckpointError),
    ):
        report = Report(f"[CANNOT_LOAD_STATE_STORE.{kind}] An error occurred during loading state.")
        reported = translate_error("cells", report, Checkpoint(tmp_path))  # type: ignore[arg-type]
        assert type(reported) is expected, kind
        assert ("delete the checkpoint" in str(reported)) is (expected is CheckpointError)
    (tmp_path / "spark" / "offsets").mkdir(parents=True)
    (tmp_path / "spark" / "offsets" / "0").write_bytes(b"v1")
    (tmp_path / "spark" / "offsets" / ".0.crc").write_bytes(b"crc\0" + (512).to_bytes(4, "big") + b"wrong")
    report = Report("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.")
    assert isinstance(translate_error("cells", report, Checkpoint(tmp_path)), CheckpointError)  # type: ignore[arg-type]


def test_a_full_disk_is_found_in_sparks_report() -> None:
    report = Report(
        "[STREAM_FAILED] Query terminated with exception: No space left on device SQLSTATE: XXKST\n"
        "=== Streaming Query ===\njava.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream"
    )
    reported = translate_error("cells", report)  # type: ignore[arg-type]
    assert isinstance(reported, JobError)
    assert "job cells: a disk is full, that of the checkpoint" in str(reported)
