"""What runs of jobs tell of their start, and who reads it."""

from __future__ import annotations

from tidewheel.model.time import duration
from tidewheel.topic_names import RUNS_TOPIC
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.run_states import ENDED, FIRST_BATCH, RUNNING, STARTING, RunState, RunStates

AT = duration("1 h")


def test_a_run_is_starting_until_it_runs_or_has_ended(log):
    run, reader = RunStates(log), RunStates(log)
    assert reader.starting(now=AT) == {}
    for stage in (STARTING, FIRST_BATCH):
        run.report("jobs", RunState(stage, AT))
        assert reader.starting(now=AT + 5) == {"jobs": RunState(stage, AT)}
    run.report("other", RunState(STARTING, AT))
    run.report("jobs", RunState(RUNNING, AT))
    assert set(reader.starting(now=AT)) == {"other"}
    run.report("other", RunState(ENDED, AT))
    assert reader.starting(now=AT) == RunStates(log).starting(now=AT) == {}


def test_what_was_reported_is_not_reported_again(log):
    run = RunStates(log)
    for _ in range(3):
        run.report("jobs", RunState(STARTING, AT))
    assert log.topic_info(RUNS_TOPIC).count == 1


def test_a_run_that_was_killed_while_it_started_is_forgotten(log):
    RunStates(log).report("jobs", RunState(STARTING, AT))
    assert RunStates(log).starting(now=AT + duration("2 min")) != {}
    assert RunStates(log).starting(now=AT + duration("10 min")) == {}


def test_what_makes_no_sense_is_passed_over(log):
    log.ensure_topic(RUNS_TOPIC, compact=True)
    log.append(RUNS_TOPIC, records([b"{", b"[]", b'{"stage": "starting Spark"}'], keys=[b"a", b"b", b"c"]))
    RunStates(log).report("jobs", RunState(STARTING, AT))
    assert set(RunStates(log).starting(now=AT)) == {"jobs"}
