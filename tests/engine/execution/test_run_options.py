"""The options of a run: the same for all that start one, checked before anything is done."""

import inspect
import re
import typing
from dataclasses import MISSING, fields
from functools import partial

import pytest
from pyspark.sql import SparkSession

import tidewheel as tw
from tidewheel.engine.execution.run_options import DataFrameRunOptions, RunOptions, RunSettings
from tidewheel.errors import DefinitionError
from tidewheel.transport.events.event_pb2 import DeadLetter

NAMES = list(RunOptions.__annotations__)


@pytest.fixture
def start(log, tmp_path):
    """Everything that starts a run, ready but for its options."""
    log.append_rows("input.row", [{"event_time": "2026-01-31T12:00:00Z", "value": 1}], time="event_time")
    rows = tw.stream(log, "input.row").key_by("value").each_row().named("rows")

    def same(letters):
        return letters

    return {
        "run": partial(tw.run, rows, log=log, checkpoint=tmp_path / "c"),
        "start": partial(rows.start, results=log.topic("analytics.rows"), checkpoint=tmp_path / "c"),
        "run_dataframe": partial(
            tw.run_dataframe,
            same,
            log=log,
            reads={"dead.rows": DeadLetter},
            writes=DeadLetter,
            name="rows",
            checkpoint=tmp_path / "c",
        ),
    }


def test_what_is_handed_on_has_a_field_and_a_default_for_each_option():
    assert sorted(each.name for each in fields(RunSettings)) == sorted(NAMES)
    assert [each.name for each in fields(RunSettings) if each.default is MISSING] == []
    scope = {"SparkSession": SparkSession}
    kinds = typing.get_type_hints(RunOptions, None, {**scope, **vars(inspect.getmodule(RunOptions))})
    assert kinds == typing.get_type_hints(RunSettings, None, {**scope, **vars(inspect.getmodule(RunSettings))})


def test_every_option_is_documented_once_and_named_wherever_it_can_be_given():
    documented = re.findall(r"^    (\w+): ", inspect.getdoc(tw.RunOptions), re.MULTILINE)
    assert documented == NAMES
    assert NAMES[-3:] == [name for name in NAMES if name not in DataFrameRunOptions.__annotations__]
    for function in (tw.run, tw.Result.start):
        assert [name for name in NAMES if f"`{name}`" not in inspect.getdoc(function)] == []
    own = DataFrameRunOptions.__annotations__
    assert [name for name in NAMES if (f"`{name}`" in inspect.getdoc(tw.run_dataframe)) != (name in own)] == []


@pytest.mark.parametrize("caller", ["run", "start", "run_dataframe"])
def test_an_unknown_option_is_refused_with_the_nearest(start, caller, tmp_path):
    message = rf"{caller}: there is no option 'availble_now' \(did you mean 'available_now'\?\); there are spark, "
    with pytest.raises(DefinitionError, match=message):
        start[caller](availble_now=True)
    with pytest.raises(DefinitionError, match=r"no option 'xyz'; there are .*append_to_existing"):
        start[caller](xyz=1)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("name", ["key_groups", "accept_changes", "clock"])
def test_a_job_of_plain_spark_has_no_options_for_state_of_ours(start, name):
    with pytest.raises(DefinitionError, match=f"run_dataframe: there is no option '{name}'"):
        start["run_dataframe"](**{name: getattr(RunSettings(), name)})


def test_an_output_that_is_given_like_an_option(start, log):
    rows = tw.stream(log, "input.row").deduplicate("value", horizon="5 s")
    with pytest.raises(DefinitionError, match=r'start: duplicates is an output; say outputs=\{"duplicates": topic\}'):
        rows.start(duplicates=log.topic("duplicates.rows"), checkpoint="never")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"max_events_per_batch": 0}, "max_events_per_batch must be a whole number of at least 1, got 0"),
        ({"max_bytes_per_batch": 2.5}, "max_bytes_per_batch must be a whole number of at least 1, got 2.5"),
        ({"max_events_per_batch": None}, "max_events_per_batch must be a whole number of at least 1, got None"),
        ({"key_groups": True}, "key_groups must be a whole number of at least 1, got True"),
        ({"available_now": "yes"}, "available_now must be True or False, got 'yes'"),
        ({"clock": "sun"}, "clock must be wall or log, got 'sun'"),
        ({"start_from": "soon"}, "start_from must be ISO text like .*, got 'soon'"),
    ],
)
def test_values_that_make_no_sense_are_refused(start, option, message, tmp_path):
    with pytest.raises(DefinitionError, match=message):
        start["run"](**option)
    assert not (tmp_path / "c").exists()


def test_a_session_is_made_only_when_the_rest_was_checked(start):
    def never():
        raise AssertionError("there was no need for Spark yet")

    with pytest.raises(DefinitionError, match="clock must be"):
        start["run"](spark=never, clock="sun")
    with pytest.raises(AssertionError, match="no need for Spark"):
        start["run"](spark=never)
