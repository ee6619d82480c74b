"""Every parameter of every transit job, from a file and from the command line; and what is refused."""

from __future__ import annotations

import json
import sys

import pytest

from tests.transit.jobs.job_checks import TEN
from tidewheel.cli import main
from tidewheel.engine.execution import query_start

pytestmark = pytest.mark.long

SQUARE = [[24.0, 60.0], [25.0, 60.0], [25.0, 61.0], [24.0, 60.0]]
GEOMETRY = {"type": "Polygon", "coordinates": [SQUARE]}
FENCES = json.dumps(
    {
        "type": "FeatureCollection",
        "features": [{"type": "Feature", "properties": {"name": "square"}, "geometry": GEOMETRY}],
    }
)
OTHERS = {
    "resolution": 7,
    "size": "40 s",
    "every": "4 s",
    "lateness": "7 s",
    "mode": "retracting",
    "early": "2 s",
    "forget": "90 min",
    "gap": "3 min",
    "fast": 12.5,
    "standing": 0.5,
    "within": "8 s",
    "nearer": 150.5,
    "by": 50.5,
    "fences": FENCES,
}
"""A value for each parameter that is nobody's default."""

WRONG = {"mode": "sometimes", "fences": "nowhere.json"}
"""Text that is none for a parameter; for all others it is a duration."""

EVERY = [pytest.param(job, parameter, id=f"{job.name} {parameter.name}") for job in TEN for parameter in job.parameters]
TEXTS = [case for case in EVERY if case.values[1].type is str]
NUMBERS = [case for case in EVERY if case.values[1].type is not str]


class Reported(Exception):
    """Raised instead of running, with what would have been run."""


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run jobs by the command, up to where Spark would start: the parameters of each."""

    def record(results, *_, **__):
        raise Reported({result.name: dict(result.parameters) for result in results})

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["tidewheel", "run", *map(str, arguments), "--log", str(tmp_path / "city.tw")])
        with pytest.raises(Reported) as caught:
            main()
        return caught.value.args[0]

    monkeypatch.setattr(query_start, "start_query", record)
    return call


@pytest.fixture
def refused(monkeypatch, tmp_path, capfd):
    """Run a job by the command, which must refuse it: what it says."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["tidewheel", "run", *map(str, arguments), "--log", str(tmp_path / "city.tw")])
        monkeypatch.setenv("COLUMNS", "400")
        monkeypatch.setattr(query_start, "start_query", lambda *_, **__: pytest.fail("it would have been run"))
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        reported = capfd.readouterr().err
        assert "Traceback" not in reported
        return reported

    return call


@pytest.fixture
def config(tmp_path):
    """A file with one parameter in a table."""

    def write(table, name, value):
        path = tmp_path / "city.toml"
        path.write_text(f"[{table}]\n{name} = {json.dumps(value)}\n", encoding="utf-8")
        return path

    return write


def defaults(job):
    return {parameter.name: parameter.default for parameter in job.parameters}


@pytest.mark.parametrize(("job", "parameter"), EVERY)
def test_it_comes_from_the_file_and_before_that_from_the_command_line(command, config, job, parameter):
    name, other = parameter.name, OTHERS[parameter.name]
    assert other != parameter.default
    expected = {job.name: {**defaults(job), name: other}}
    assert command(job.name, f"--{name}", other) == expected
    assert command(job.name, "--config", config(job.name, name, other)) == expected
    assert command(job.name, "--config", config("all", name, other)) == expected
    over = command(job.name, "--config", config(job.name, name, other), f"--{name}", parameter.default)
    assert over == {job.name: defaults(job)}


def test_what_is_not_given_is_the_default(command):
    assert command(*(job.name for job in TEN)) == {job.name: defaults(job) for job in TEN}


def test_what_several_jobs_have_is_for_all_of_them(command):
    reported = command(*(job.name for job in TEN), "--resolution", 7)
    assert {name for name, given in reported.items() if given.get("resolution") == 7} == {
        job.name for job in TEN if "resolution" in defaults(job)
    }


@pytest.mark.parametrize(("job", "parameter"), EVERY)
def test_another_type_in_the_file_is_refused(refused, config, job, parameter):
    name, kind = parameter.name, parameter.type.__name__
    for value in (True, 5 if kind == "str" else "five", *([8.5] if kind == "int" else [])):
        reported = refused(job.name, "--config", config(job.name, name, value))
        assert f"[{job.name}]: {name} must be {kind}, got {value!r} ({type(value).__name__})" in reported


@pytest.mark.parametrize(("job", "parameter"), NUMBERS)
def test_no_number_on_the_command_line_is_refused(refused, job, parameter):
    reported = refused(job.name, f"--{parameter.name}", "five")
    assert f"Invalid value for '--{parameter.name}': " in reported
    assert "number" in reported or "integer" in reported


@pytest.mark.parametrize(("job", "parameter"), TEXTS)
def test_text_that_makes_no_sense_is_refused(refused, config, job, parameter):
    text = WRONG.get(parameter.name, "soon")
    for given in ([f"--{parameter.name}", text], ["--config", config(job.name, parameter.name, text)]):
        assert repr(text) in refused(job.name, *given)


@pytest.mark.parametrize("job", [pytest.param(job, id=job.name) for job in TEN])
def test_an_unknown_name_is_refused(refused, config, job):
    assert "No such option: --colour" in refused(job.name, "--colour", "red")
    reported = refused(job.name, "--config", config(job.name, "colour", "red"))
    assert f"[{job.name}] colour: the job {job.name} has no such parameter" in reported
    assert all(parameter.name in reported for parameter in job.parameters)
