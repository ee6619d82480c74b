"""The page on the transit jobs tells every job and every parameter."""

from __future__ import annotations

import re
from pathlib import Path

from tidewheel.apps.transit import jobs
from tidewheel.engine.job import Job

PAGE = (Path(__file__).parents[2] / "docs" / "transit.md").read_text(encoding="utf-8")
JOBS = [job for name in jobs.__all__ if isinstance(job := getattr(jobs, name), Job)]


def first_column(section: str) -> set[str]:
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return {
        name for row in re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    }


def test_every_job_is_told():
    assert first_column("What each gives") == {job.name for job in JOBS}


def test_every_parameter_is_told_and_no_other():
    assert first_column("Parameters") == {parameter.name for job in JOBS for parameter in job.parameters}
