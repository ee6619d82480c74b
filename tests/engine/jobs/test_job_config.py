"""Parameters of jobs from a TOML file."""

from __future__ import annotations

import pytest

import tidewheel as tw
from tidewheel.engine.jobs.configuration import read_config
from tidewheel.errors import DefinitionError


@tw.job("cells", reads="input.arrival")
def cells(rows: tw.Stream, *, resolution: int = 9, size: str = "30 s") -> tw.Result:
    """Cells."""
    return rows.each_row()


@tw.job("fast", reads="input.arrival")
def fast(rows: tw.Stream, *, resolution: int = 9, limit: float = 20.0, early: bool = False) -> tw.Result:
    """Fast ones."""
    return rows.each_row()


JOBS = {"cells": cells, "fast": fast}


def config(tmp_path, text):
    path = tmp_path / "city.toml"
    path.write_text(text)
    return read_config(path, JOBS)


def test_a_table_for_each_job_goes_before_what_all_share(tmp_path):
    text = """
        [all]
        resolution = 8
        size = "1 min"

        [fast]
        limit = 12          # a whole number will do for a fraction
        resolution = 7
        early = true
    """
    assert config(tmp_path, text) == {
        "cells": {"resolution": 8, "size": "1 min"},
        "fast": {"resolution": 7, "limit": 12.0, "early": True},
    }


def test_an_empty_file_sets_nothing(tmp_path):
    assert config(tmp_path, "") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[cels]\nresolution = 8",
            r"city.toml: \[cels\] is no job; did you mean 'cells'\? There are: all, cells, fast",
        ),
        (
            "[cells]\nresolutoin = 8",
            r"city.toml: \[cells\] resolutoin: the job cells has no such parameter; did you mean",
        ),
        ("[cells]\nlimit = 8.0", r"city.toml: \[cells\] limit: the job cells has no such parameter\. There are: resol"),
        ("[all]\nlimits = 8.0", r"city.toml: \[all\] limits: no job has such a parameter; did you mean 'limit'\?"),
        ('[cells]\nresolution = "8"', r"city.toml: \[cells\]: resolution must be int, got '8' \(str\)"),
        ("[all]\nresolution = 8.5", r"city.toml: \[all\]: resolution must be int, got 8.5 \(float\)"),
        ("[all]\nresolution = true", r"city.toml: \[all\]: resolution must be int, got True \(bool\)"),
        ("resolution = 8", r"city.toml: resolution stands in no table; put it under \[all\]"),
        ("[cells]\n\nresolution 8", r"city.toml is no TOML: .*line 3"),
    ],
)
def test_mistakes_are_reported_with_file_table_and_key(tmp_path, text, message):
    with pytest.raises(DefinitionError, match=message):
        config(tmp_path, text)


def test_a_file_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(DefinitionError, match=r"none.toml cannot be read: No such file"):
        read_config(tmp_path / "none.toml", JOBS)
