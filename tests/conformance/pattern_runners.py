"""What runs the cases of event patterns: the NFA by itself, and the engine on Spark."""

from __future__ import annotations

import io
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tests.conformance.patterns import (
    SCHEMA,
    Outcome,
    PatternCase,
    PatternRunner,
    PatternStep,
    Row,
    Stages,
)
from tests.support.on_spark import Found, FrameStep, run_cases
from tidewheel.engine.execution.session import session
from tidewheel.engine.operators.operator import RESULTS
from tidewheel.engine.operators.patterns.recognizer import TIMED_OUT, PatternRecognizer
from tidewheel.engine.runtime.flow import Stage
from tidewheel.errors import TidewheelError
from tidewheel.model.panes import END_OF_TIME
from tidewheel.patterns.define.builder import Pattern
from tidewheel.patterns.define.references import collect
from tidewheel.patterns.nfa.harness import Harness
from tidewheel.patterns.vectorized.matcher import Matcher

COPIES = 3
"""So many keys run each case on Spark, side by side."""

BATCHES = 5
"""Into so many the events of a case that has no watermarks are cut."""

_INSTANT = pl.Datetime("us", "UTC")
_FRAME = {"event_time": _INSTANT, "copy": pl.Int64(), **SCHEMA}
Event = tuple[int, Row]


def nfa(cases: Sequence[PatternCase]) -> list[list[Outcome]]:
    """The NFA by itself, key by key."""
    return [[_on_automaton(case)] for case in cases]


def _on_automaton(case: PatternCase) -> Outcome:
    outcome = Outcome(late=[row["event"] for step in case.steps for _, row in step.late])
    try:
        built = case.build()
        harnesses: dict[Any, Harness] = {}
        names: defaultdict[Any, list[str]] = defaultdict(list)
        for step in case.steps:
            reported = {key: (len(one.matches), len(one.timed_out)) for key, one in harnesses.items()}
            for time, row in step.events:
                key = tuple(row[name] for name in case.keys)
                harness = harnesses.setdefault(key, Harness(built, SCHEMA))
                harness.add(row, time=time)
                names[key].append(row["event"])
            for harness in harnesses.values():
                if step.watermark is not None:
                    harness.advance(step.watermark)
            matches: list[Stages] = []
            timed_out: list[tuple[Stages, int]] = []
            for key, harness in harnesses.items():
                seen, over = reported.get(key, (0, 0))
                matches += [_named(match, names[key]) for match in harness.matches[seen:]]
                timed_out += [(_named(stages, names[key]), at) for stages, at in harness.timed_out[over:]]
            outcome.matches.append(matches)
            outcome.timed_out.append(timed_out)
    except TidewheelError as error:
        outcome.error = str(error)
    return outcome


def _named(stages: dict[str, list[int]], names: list[str]) -> Stages:
    return {stage: [names[event] for event in events] for stage, events in stages.items()}


# On columns, without Spark -----------------------------------------------------------------------------------


def matcher(cases: Sequence[PatternCase]) -> list[list[Outcome]]:
    """The matcher on columns, all keys at once, with a state that is written and read between steps."""
    return [[_on_matcher(case)] for case in cases]


def _on_matcher(case: PatternCase) -> Outcome:
    outcome = Outcome(late=[row["event"] for step in case.steps for _, row in step.late])
    times = [time for step in case.steps for time, _ in step.events]
    arrival = times != sorted(times)  # cases for the NFA alone; none of them has a limit of time
    try:
        built = case.build()
        measures = {f"of {stage}": collect(f"{stage}.event") for stage in built.stages}
        driver = Matcher(built, keys=case.keys, measures=measures)
        state: dict[str, pl.DataFrame] = {}
        count = 0
        for step in case.steps:
            numbered = list(enumerate(step.events, start=count))
            count += len(numbered)
            rows = [row | {"__time": number if arrival else time} for number, (time, row) in numbered]
            events = pl.DataFrame(rows, schema=SCHEMA | {"__time": pl.Int64()})
            last = max((row["__time"] + 1 for row in rows), default=None)
            mark = last if step.watermark is None else step.watermark
            events = events.sort(*case.keys, "__time", maintain_order=True)
            outputs, state = driver.step({name: _stored(frame) for name, frame in state.items()}, events, mark)
            outcome.matches.append([_taken(row) for row in outputs["matches"].iter_rows(named=True)])
            over = outputs["timed_out"].iter_rows(named=True)
            outcome.timed_out.append([(_taken(row), row["timed_out_at"]) for row in over])
    except TidewheelError as error:
        outcome.error = str(error)
    return outcome


def _stored(frame: pl.DataFrame) -> pl.DataFrame:
    buffer = io.BytesIO()
    frame.write_ipc(buffer)
    buffer.seek(0)
    return pl.read_ipc(buffer)


def _taken(row: dict[str, Any]) -> Stages:
    return {name.removeprefix("of "): events for name, events in row.items() if name.startswith("of ") and events}


# On Spark ---------------------------------------------------------------------------------------------------


def spark(cases: Sequence[PatternCase]) -> list[list[Outcome]]:
    """The engine: all cases in one streaming query, each for several keys at once, whose events come interleaved and
    out of order, as early as they like and as late as the watermark allows."""
    asked = [_asked(case, random.Random(number)) for number, case in enumerate(cases)]
    found = iter(run_cases(session(), [(one.stage, one.frames) for one in asked if one.stage], may_fail=True))
    return [
        [Outcome(error=one.refused)] * COPIES if one.stage is None else _outcomes(one.built, next(found))
        for one in asked
    ]


@dataclass(frozen=True)
class _Asked:
    """refused: why there is nothing to run."""

    built: Pattern | None = None
    stage: Stage | None = None
    frames: Sequence[FrameStep] = ()
    refused: str | None = None


def _asked(case: PatternCase, chance: random.Random) -> _Asked:
    try:
        built = case.build()
        measures = {stage: collect(f"{stage}.event") for stage in built.stages}
        keys = ("copy", *case.keys)
        what = PatternRecognizer(Matcher(built, keys=keys, measures=measures), _FRAME)
    except TidewheelError as error:
        return _Asked(refused=str(error))
    steps = case.steps if any(step.watermark is not None for step in case.steps) else _marked(case.steps, chance)
    return _Asked(built, Stage((), keys, what, _FRAME), _frames(steps, chance))


def _marked(steps: Sequence[PatternStep], chance: random.Random) -> list[PatternStep]:
    """Events of a case without watermarks in a few steps, each with the least watermark that releases its events."""
    events = [event for step in steps for event in step.events]
    times = [time for time, _ in events]
    if times != sorted(times):
        # Such a case knows no time but the order of arrival.
        times = list(range(len(events)))
    cuts = sorted(chance.sample(range(1, len(events)), min(BATCHES, len(events)) - 1)) if events else []
    # Events of the same time stay together: whichever comes first is released with the others.
    cuts = [cut for cut in cuts if times[cut - 1] < times[cut]]
    found = []
    for first, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
        part = tuple((times[number], events[number][1]) for number in range(first, end))
        found.append(PatternStep(part, times[end - 1] + 1 if part else None))
    return found


def _frames(steps: Sequence[PatternStep], chance: random.Random) -> list[FrameStep]:
    """What arrives in each step: an event may come in any step up to that which releases it; those of one time and key
    keep their order."""
    arrivals: list[list[list[tuple[int, int, Row]]]] = [[] for _ in steps]
    for copy in range(COPIES):
        for number, step in enumerate(steps):
            together: dict[int, list[tuple[int, int, Row]]] = {}
            for time, row in step.events:
                together.setdefault(time, []).append((time, copy, row))
            for same in together.values():
                arrivals[chance.randint(max(0, number - 2), number)].append(same)
            arrivals[number] += [[(time, copy, row)] for time, row in step.late]
    frames = []
    for step, groups in zip(steps, arrivals, strict=True):
        chance.shuffle(groups)
        rows = [one for group in groups for one in group]
        frame = pl.DataFrame(
            {
                "event_time": pl.Series([time for time, _, _ in rows], dtype=pl.Int64).cast(_INSTANT),
                "copy": [copy for _, copy, _ in rows],
                **{name: [row[name] for _, _, row in rows] for name in SCHEMA},
            },
            schema=_FRAME,
        )
        watermark = None if step.watermark is None else min(step.watermark, END_OF_TIME)
        frames.append((frame, watermark, 0))
    return frames


def _outcomes(built: Pattern | None, steps: Sequence[Found]) -> list[Outcome]:
    assert built is not None
    errors = [step.error for step in steps if step.error is not None]
    if errors:
        return [Outcome(error=errors[0])] * COPIES
    return [_outcome(built, steps, copy) for copy in range(COPIES)]


def _outcome(built: Pattern, steps: Sequence[Found], copy: int) -> Outcome:
    outcome = Outcome()

    def rows(step: Found, output: str) -> list[dict[str, Any]]:
        frame = step.outputs.get(output)
        if frame is None:
            return []
        times = frame.with_columns(pl.col("event_time").cast(pl.Int64))
        return [row for row in times.iter_rows(named=True) if row["copy"] == copy]

    def stages(row: dict[str, Any]) -> Stages:
        return {stage: row[stage] for stage in built.stages if row[stage]}

    for step in steps:
        outcome.matches.append([stages(row) for row in rows(step, RESULTS)])
        outcome.timed_out.append([(stages(row), row["event_time"]) for row in rows(step, TIMED_OUT)])
        outcome.late += [row["event"] for row in rows(step, "late")]
    return outcome


PATTERN_RUNNERS: dict[str, PatternRunner] = {"reference": nfa, "matcher": matcher, "spark": spark}
