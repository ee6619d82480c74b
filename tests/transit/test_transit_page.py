"""The page on the transit jobs tells every job, every parameter, and every field of what they give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT
from tidewheel.engine.jobs.job import Job
from tidewheel.transport.log.log import Log
from tidewheel_transit import jobs

PAGE = (ROOT / "docs" / "transit.md").read_text(encoding="utf-8")
FOLDER = Path(jobs.__file__).parent
PROTO = FOLDER.parent / "transit.proto"
JOBS = [job for name in jobs.__all__ if isinstance(job := getattr(jobs, name), Job)]


WORDS = {
    "vehicle": ("operator", "vehicle"),
    "cell": ("cell",),
    "cell left": ("cell",),
    "journey": ("operator", "vehicle", "operating_day", "start", "route", "direction"),
    "pair": ("route", "direction", "operator", "vehicle", "other_operator", "other_vehicle"),
    "vehicle and region": ("operator", "vehicle", "fence"),
}
"""What keys are called."""

TOPICS = {"positions": "input.vehicle-position", "arrivals": "input.arrival"}
LONGEST = 120


def table(section: str, number: int = 0) -> list[list[str]]:
    """The rows of a table in a section, without its head."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^\|.*\n\|[-|]+\|\n((?:\|.*\n)*)", text, re.MULTILINE)[number]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def first_column(section: str) -> set[str]:
    return {name for row in table(section) for name in code(row[0])}


def key_of(job: Job, log: Log) -> tuple[str, ...]:
    return job.key or job.on(log).stages[-1].keys


def test_every_job_is_reported():
    assert first_column("Results") == {job.name for job in JOBS}


def test_every_parameter_is_reported_and_no_other():
    assert first_column("Parameters") == {parameter.name for job in JOBS for parameter in job.parameters}


def test_every_job_is_reported_with_what_it_reads_its_message_and_its_key(log):
    reported = {
        code(name)[0]: (TOPICS[reads], *code(message), WORDS[key]) for name, reads, message, key, _ in table("Results")
    }
    assert reported == {job.name: (*job.reads, job.writes.DESCRIPTOR.name, key_of(job, log)) for job in JOBS}


def test_every_message_is_reported_with_its_key_and_all_its_fields(log):
    pane = [name for field, _ in table("Fields", 1) for name in code(field)]
    reported = {}
    for message, key, fields in table("Fields"):
        named = [*code(key), *code(fields), *(pane if "window and pane" in fields else [])]
        assert len(named) == len(set(named)), message
        reported[code(message)[0]] = (tuple(code(key)), set(named))
    expected = {job.writes.DESCRIPTOR: key_of(job, log) for job in JOBS}
    assert reported == {of.name: (key, {field.name for field in of.fields}) for of, key in expected.items()}


@pytest.mark.parametrize("job", [pytest.param(job, id=job.name) for job in JOBS])
def test_the_definition_of_a_message_gives_its_topic_and_its_key(job, log):
    text = PROTO.read_text(encoding="utf-8")
    (comment,) = re.findall(rf"((?:^//.*\n)+)message {job.writes.DESCRIPTOR.name} ", text, re.MULTILINE)
    words = " ".join(comment.replace("//", "").split())
    assert re.search(rf"\b{job.topic}\b", words)
    for key in re.findall(r"Key: ([\w, ]+)", words):
        assert tuple(key.split(", ")) == key_of(job, log)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(FOLDER.glob("*.py"))])
def test_a_job_is_a_short_file(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_every_job_has_a_file_of_its_own():
    files = {Path(job.function.__code__.co_filename) for job in JOBS}
    assert files == {FOLDER / f"{job.name.replace('-', '_')}.py" for job in JOBS}
