"""The runs of jobs that are starting, as they report it in the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from tidewheel.errors import DataLossError, TopicNotFoundError
from tidewheel.model.time import Duration, Instant, duration
from tidewheel.topic_names import RUNS_TOPIC
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records

__all__ = ["ENDED", "FIRST_BATCH", "RUNNING", "STARTING", "USUAL", "RunState", "RunStates", "start_text"]

STARTING = "starting Spark"
FIRST_BATCH = "first batch"
RUNNING = "running"
ENDED = "ended"

USUAL = (15, 40)
"""Seconds that a start takes, from a large machine to two busy cores."""

_STALE: Duration = duration("3 min")
"""A run that was starting so long ago was ended before it came to say so."""


@dataclass(frozen=True, slots=True)
class RunState:
    """A run's stage, and since when the run has been starting."""

    stage: str
    since: Instant


class RunStates:
    """The states that runs have reported. Keeps its position: each call reads only what is new.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> states = RunStates(open_log(tempfile.mkdtemp() + "/city.tw"))
    >>> states.report("jobs", RunState(STARTING, since=0))
    >>> states.starting(now=5_000_000)
    {'jobs': RunState(stage='starting Spark', since=0)}
    >>> states.report("jobs", RunState(RUNNING, since=0))
    >>> states.starting(now=5_000_000)
    {}
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._recorded: dict[str, RunState] = {}
        self._topic = ""
        self._position = 0
        self._found: dict[str, RunState] = {}

    def report(self, run: str, state: RunState) -> None:
        """Record the state of a run, if it is new."""
        if self._recorded.get(run) == state:
            return
        self._log.ensure_topic(RUNS_TOPIC, compact=True)
        value = json.dumps({"stage": state.stage, "since": state.since}).encode()
        self._log.append(RUNS_TOPIC, records([value], keys=[run.encode()]))
        self._recorded[run] = state

    def starting(self, *, now: Instant) -> Mapping[str, RunState]:
        """By name, the runs that have not come to their first results."""
        with suppress(TopicNotFoundError, DataLossError):
            info = self._log.topic_info(RUNS_TOPIC)
            if info.id != self._topic:
                self._topic, self._position, self._found = info.id, 0, {}
            start = max(self._position, info.first_offsets[0])
            for batch in self._log.read(RUNS_TOPIC, 0, start, on_damage=lambda _: None):
                columns = (batch.records.column(name).to_pylist() for name in ("key", "value"))
                for key, value in zip(*columns, strict=True):
                    with suppress(ValueError, TypeError, KeyError, AttributeError):  # of others, or of a later version
                        fields = json.loads(value)
                        self._found[key.decode()] = RunState(str(fields["stage"]), int(fields["since"]))
                self._position = batch.records.column("offset")[-1].as_py() + 1
        return {
            run: state
            for run, state in sorted(self._found.items())
            if state.stage in (STARTING, FIRST_BATCH) and abs(now - state.since) < _STALE
        }


def start_text(state: RunState, *, now: Instant) -> str:
    """Describe what is going on and how long it takes.

    >>> start_text(RunState(STARTING, since=0), now=8_000_000)
    'Spark is starting: 8 s so far, first results usually after 15 to 40 s'
    >>> start_text(RunState(FIRST_BATCH, since=0), now=50_000_000)
    'Spark works on its first batch: 50 s so far, longer than the usual 15 to 40 s'
    """
    doing = "Spark is starting" if state.stage == STARTING else "Spark works on its first batch"
    so_far = max(0, now - state.since) // 1_000_000
    if so_far > USUAL[1]:
        return f"{doing}: {so_far} s so far, longer than the usual {USUAL[0]} to {USUAL[1]} s"
    return f"{doing}: {so_far} s so far, first results usually after {USUAL[0]} to {USUAL[1]} s"
