"""Spark against the NFA: generated patterns and scripts, many in one query, on every way in."""

from __future__ import annotations

import itertools
import os
import random
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import tidewheel as tw
from tests.engine.pattern_cases import SCHEMA, Row, batches, expected, frame_of, matchers, plain, rows
from tests.support.on_spark import Found, run_cases
from tidewheel.engine.execution.dataframe.batches import dataframe_batches
from tidewheel.engine.execution.dataframe.output import HighestTime
from tidewheel.engine.execution.state_operator import in_memory, with_state
from tidewheel.engine.operators.operator import LATE, METRICS, RESULTS
from tidewheel.engine.operators.patterns.recognizer import DROPPED, TIMED_OUT, PatternRecognizer
from tidewheel.engine.runtime.exchange import ExchangeBatch
from tidewheel.engine.runtime.flow import Flow, Stage
from tidewheel.model.panes import END_OF_TIME
from tidewheel.patterns.nfa.reference import PatternReference
from tidewheel.patterns.vectorized.matcher import Matcher

pytestmark = pytest.mark.long

SECOND = 1_000_000
DELAY = 2 * SECOND
FILES = 9
OUTPUTS = (RESULTS, TIMED_OUT, DROPPED, LATE)


def drawn(cases: st.SearchStrategy[Any], number: int) -> list[Any]:
    """So many, the same each time."""
    found: list[Any] = []

    @seed(20_260_102)
    @settings(max_examples=number, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(cases)
    def draw(case: Any) -> None:
        found.append(case)

    draw()
    return found


def timed(some: list[Row]) -> pl.DataFrame:
    return frame_of(some).with_columns(pl.col("event_time").cast(pl.Int64).alias("__time"))


# The log ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def from_the_log(spark):
    """Cases, what the reference gives in each batch, and what Spark gives."""
    cases = [(matcher, script) for matcher, script in drawn(st.tuples(matchers(), batches()), 300) if matcher]
    reported = []
    for matcher, script in cases:
        reference = PatternReference(matcher, SCHEMA)
        reported.append([expected(reference.step(timed(some), watermark=mark)) for some, mark in script])
    # Many patterns find nothing in their events; some examples of these are enough.
    telling = [number for number, steps in enumerate(reported) if any(step[RESULTS] for step in steps)]
    telling += [number for number in range(len(cases)) if number not in telling][:20]
    questions = [
        (
            Stage((), ("key",), PatternRecognizer(matcher, SCHEMA), SCHEMA),
            [(frame_of(some), mark, 0) for some, mark in script],
        )
        for matcher, script in (cases[number] for number in telling)
    ]
    found = run_cases(spark, questions)
    return [(cases[number], reported[number], steps) for number, steps in zip(telling, found, strict=True)]


def test_every_generated_case_gives_what_the_automaton_gives(from_the_log):
    wrong = []
    for case, wanted, steps in from_the_log:
        got = [plain(step.outputs) for step in steps]
        if got != wanted:
            wrong.append((case, wanted, got))
    assert not wrong, f"{len(wrong)} of {len(from_the_log)} differ; the first: {wrong[0]}"


def test_what_comes_in_is_accepted_or_late(from_the_log):
    def counted(step: Found, name: str) -> int:
        metrics = step.outputs.get(METRICS)
        return 0 if metrics is None else int(metrics[name].sum())

    for (_, script), wanted, steps in from_the_log:
        for (some, _), reported, step in zip(script, wanted, steps, strict=True):
            assert counted(step, "events") == len(some)
            assert counted(step, "late") == len(reported[LATE])
            assert counted(step, "accepted") == len(some) - len(reported[LATE])
            assert counted(step, "results") == len(reported[RESULTS])


def test_the_generated_cases_are_worth_comparing(from_the_log):
    assert len(from_the_log) >= 100
    for name in OUTPUTS:
        assert sum(bool(step[name]) for _, wanted, _ in from_the_log for step in wanted) >= 10, name
    policies = {matcher.pattern.policy.after_match for (matcher, _), _, _ in from_the_log}
    assert policies == {"skip none", "skip to next", "skip past last", "skip to first", "skip to last"}


# Any DataFrame ----------------------------------------------------------------------------------------------


def asked(source: Any, made: list[Matcher], *, watermark: Any = None) -> list[Flow]:
    """A flow for each pattern, as the API makes it."""
    keyed = tw.stream(source, time="event_time", watermark=watermark).key_by("key")
    results = [keyed.match(one.pattern, measures=one.measures, limit=one.limit) for one in made]
    return [result.named(f"p{number}").flow() for number, result in enumerate(results)]


def by_flow(exchange_batches: list[Any]) -> dict[str, dict[str, list[str]]]:
    """The outputs of each flow, of all batches and key groups together."""
    frames: dict[str, dict[str, list[pl.DataFrame]]] = {}
    for row in exchange_batches:
        for flow, output, frame in ExchangeBatch.outputs(bytes(row.batch_bytes)):
            frames.setdefault(flow, {}).setdefault(output, []).append(frame)
    return {
        flow: together(plain({output: pl.concat(some) for output, some in of.items()})) for flow, of in frames.items()
    }


def together(outputs: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: sorted(outputs[name]) for name in OUTPUTS}


@pytest.fixture(scope="module")
def made() -> tuple[list[Matcher], list[list[Row]]]:
    """Patterns, and events for all of them in several files: in each, some that are behind, and some too late."""
    found = [matcher for matcher in drawn(matchers(unit=SECOND), 250) if matcher]
    events = max(drawn(rows(most=14, keys=5, unit=SECOND), 60), key=len)
    chance = random.Random(3)
    cuts = [0, *sorted(chance.sample(range(1, len(events)), FILES - 1)), len(events)]
    files = [events[first:end] for first, end in itertools.pairwise(cuts)]
    end = {"time": 200 * SECOND, "key": "end", "name": "a", "x": 0, "who": "v", "number": 1_000}
    files.append([end, {**end, "number": 1_001}])
    files.append([{**end, "time": SECOND, "key": "late", "number": 1_002}])
    whole = sorted((row for file in files for row in file), key=lambda row: row["number"])

    def finds(matcher: Matcher) -> bool:
        return bool(PatternReference(matcher, SCHEMA).step(timed(whole), watermark=END_OF_TIME)["matches"])

    return [matcher for matcher in found if finds(matcher)][:60], files


def test_a_static_frame_gives_what_the_automaton_gives(spark, made):
    matchers, files = made
    whole = [row for file in files for row in file]
    frame = spark.createDataFrame(frame_of(whole).to_arrow(compat_level=pl.CompatLevel.oldest()))
    flows = asked(frame, matchers)
    exchange_batches = dataframe_batches(frame, flows, 2, clock=0, ended=True, marked=lambda rows: None)
    got = by_flow(in_memory(exchange_batches, flows, 2).collect())
    assert len(matchers) >= 40
    for number, matcher in enumerate(matchers):
        wanted = PatternReference(matcher, SCHEMA).step(timed(whole), watermark=END_OF_TIME)
        assert got[f"p{number}"] == together(expected(wanted)), matcher


def test_a_streaming_frame_gives_what_the_automaton_gives(spark, made, tmp_path):
    matchers, files = made
    folder = tmp_path / "rows"
    folder.mkdir()
    for number, file in enumerate(files):
        frame_of(file).write_parquet(folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_000 + number, 1_000 + number))  # Spark reads them in this order
    frame = (
        spark.readStream.schema("event_time TIMESTAMP, key STRING, number BIGINT, name STRING, x BIGINT, who STRING")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
    )
    flows = asked(frame, matchers, watermark=tw.watermarks.bounded(f"{DELAY} us", future=None))
    exchange_batches = dataframe_batches(frame, flows, 2, clock=0, ended=False, marked=HighestTime(flows[0], None))
    watched = exchange_batches.withWatermark("mark", f"{DELAY} microseconds").drop("mark")
    query = (
        with_state(watched, flows, 2, delay=DELAY)
        .writeStream.format("memory")
        .queryName("patterns_of_a_frame")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    got = by_flow(spark.table("patterns_of_a_frame").collect())
    spark.catalog.dropTempView("patterns_of_a_frame")
    late = 0
    for number, matcher in enumerate(matchers):
        wanted = in_spark_time(matcher, files)
        late += len(wanted[LATE])
        assert got[f"p{number}"] == wanted, matcher
    assert late >= len(matchers)


def in_spark_time(matcher: Matcher, files: list[list[Row]]) -> dict[str, list[str]]:
    """In each batch time moves first, by what the batches before held; then the rows come."""
    reference = PatternReference(matcher, SCHEMA)
    found: dict[str, list[str]] = {name: [] for name in OUTPUTS}
    highest: int | None = None
    for file in [*files, []]:
        mark = None if highest is None or highest <= DELAY else highest - DELAY
        for some in ([], file):
            for name, reported in expected(reference.step(timed(some), watermark=mark)).items():
                found[name] += reported
        highest = max([highest or 0, *(row["time"] for row in file)])
    return together(found)
