"""The parameters of jobs from a TOML file: a table for each job, and one for what several share."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tidewheel.engine.jobs.job import Job
from tidewheel.errors import DefinitionError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["ALL", "read_config"]

ALL = "all"
"""The table of parameters for every job that has them."""


def read_config(path: str | Path, jobs: Mapping[str, Job]) -> dict[str, dict[str, Any]]:
    """Read the parameters of jobs from a file and check them. `jobs` are all that the file may name.

    A table is called after a job and holds its parameters; the table `all` holds those that several jobs have, each
    for every job that has it. A job's own table goes before `all`.
    """
    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise DefinitionError(f"the configuration {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path} is no TOML: {error}") from None
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise DefinitionError(
                f"{path}: {name} stands in no table; put it under [{ALL}], or under the job that it is for, like "
                f"[{next(iter(jobs), 'my-job')}]"
            )
        if name != ALL and name not in jobs:
            raise DefinitionError(f"{path}: [{name}] is not a job{_guess(name, [ALL, *jobs])}")
    shared = tables.pop(ALL, {})
    for key in shared:
        if not any(key in _names(job) for job in jobs.values()):
            everything = sorted({name for job in jobs.values() for name in _names(job)})
            raise DefinitionError(f"{path}: [{ALL}] {key}: no job has such a parameter{_guess(key, everything)}")
    found: dict[str, dict[str, Any]] = {}
    for name, job in jobs.items():
        values = _checked(path, ALL, job, {key: value for key, value in shared.items() if key in _names(job)})
        values |= _checked(path, name, job, tables.get(name, {}))
        if values:
            found[name] = values
    return found


def _checked(path: str | Path, table: str, job: Job, given: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {parameter.name: parameter for parameter in job.parameters}
    for key in given:
        if key not in parameters:
            raise DefinitionError(
                f"{path}: [{table}] {key}: the job {job.name} has no such parameter{_guess(key, list(parameters))}"
            )
    return {key: parameters[key].checked(value, where=f"{path}: [{table}]") for key, value in given.items()}


def _names(job: Job) -> list[str]:
    return [parameter.name for parameter in job.parameters]


def _guess(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"{hint} There are: {', '.join(known) or 'none'}"
