"""A hard stop is the same for the README's pattern, for its statement, and for the two jobs."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tidewheel as tw
from tests import ROOT
from tests.transit.jobs.job_cases import BEGIN, run_job, to_frame
from tests.transit.jobs.job_oracles import SECOND, Row
from tidewheel.match_recognize import ClauseMatcher, parse
from tidewheel.model.panes import END_OF_TIME
from tidewheel.patterns.nfa.reference import PatternReference
from tidewheel.patterns.vectorized.matcher import Matcher
from tidewheel_transit import jobs

README = (ROOT / "README.md").read_text(encoding="utf-8")
SCHEMA: dict[str, pl.DataType] = {
    "event_time": pl.Datetime("us", "UTC"),
    "operator": pl.Int64(),
    "vehicle": pl.Int64(),
    "speed": pl.Float64(),
    "acc": pl.Float64(),
}
Moves = list[tuple[int, float | None, float | None]]
"""How many seconds after the one before, speed and acceleration."""
Stops = list[tuple[int, float]]
"""Vehicles, and how much slower they became."""

SPEEDS = st.sampled_from([12.0, 10.0, 9.5, 6.0, 3.0, 1.0, 0.5, 0.0, None])
MOVES = st.lists(st.tuples(st.integers(1, 6), SPEEDS, st.sampled_from([-6.0, -0.5, -0.5, 0.0, 2.5, None])), max_size=14)
STOP: Moves = [(1, 12.0, 0.0), (1, 6.0, -6.0), (1, 0.0, 0.0)]
BRAKES_AND_STANDS: Moves = [(1, 12.0, 0.0), (1, 6.0, -6.0), (1, 0.5, -5.5), (1, 0.0, 0.0)]
BRAKES_AND_DRIVES_ON: Moves = [(1, 12.0, 0.0), (1, 6.0, -6.0), (1, 0.5, -5.5), (1, 3.0, 2.5)]
UNKNOWN_ACCELERATION: Moves = [(1, 12.0, 0.0), (1, 6.0, -6.0), (1, 0.5, None)]
AT_THE_EDGE: Moves = [(1, 12.0, 0.0), (6, 6.0, -6.0), (4, 0.0, 0.0)]


def quoted(beginning: str, end: str) -> str:
    """What stands between the two in the README, once."""
    [found] = re.findall(re.escape(beginning) + r"(.*?)" + re.escape(end), README, flags=re.DOTALL)
    return str(found)


def rows_of(fleet: list[Moves]) -> list[Row]:
    """The positions of vehicles that are numbered from 0."""
    rows = []
    for vehicle, moves in enumerate(fleet):
        second = 0
        for later, speed, acc in moves:
            second += later
            rows.append(
                {"event_time": BEGIN + second * SECOND, "operator": 1, "vehicle": vehicle, "speed": speed, "acc": acc}
                | {"mode": "bus", "journey": "journey", "temporal": "ongoing", "event": "vp", "lat": 60.17}
                | {"lon": 24.94, "route": "550", "direction": 1, "start": "08:00", "operating_day": "2026-03-02"}
            )
    return rows


def by_pattern(rows: list[Row]) -> Stops:
    hard_stop = eval(f"({quoted('hard_stop = (', chr(10) + ')')})", {"tw": tw, "pl": pl})
    measures = eval(quoted("measures=", ",\n)\nstops.start"), {"tw": tw})
    reference = PatternReference(Matcher(hard_stop, keys=["operator", "vehicle"], measures=measures), SCHEMA)
    frame = to_frame(rows, SCHEMA).with_columns(pl.col("event_time").cast(pl.Int64).alias("__time"))
    found = reference.step(frame, watermark=END_OF_TIME)["matches"]
    return sorted((row["vehicle"], row["drop"]) for row in found)


def by_statement(rows: list[Row]) -> Stops:
    clause = parse(quoted('stops = tw.sql("""', '"""')).clause
    return sorted(ClauseMatcher(clause, SCHEMA).run(to_frame(rows, SCHEMA)).select("vehicle", "drop").rows())


def by_job(job: Any, rows: list[Row]) -> Stops:
    found = run_job(job, [(rows, None)])
    return sorted(found["results"].select("vehicle", "speed_difference").rows()) if "results" in found else []


@settings(max_examples=15, deadline=None)
@given(st.lists(MOVES, max_size=40))
@example([STOP, BRAKES_AND_STANDS, BRAKES_AND_DRIVES_ON, UNKNOWN_ACCELERATION, AT_THE_EDGE])
def test_pattern_statement_and_jobs_find_the_same_stops(fleet):
    rows = rows_of(fleet)
    expected = by_pattern(rows)
    assert by_statement(rows) == expected
    assert by_job(jobs.emergency_stop, rows) == expected
    assert by_job(jobs.emergency_stop_sql, rows) == expected


@pytest.mark.parametrize(
    ("moves", "drops"),
    [
        (STOP, [12.0]),
        (BRAKES_AND_STANDS, [12.0]),
        (BRAKES_AND_DRIVES_ON, []),
        (UNKNOWN_ACCELERATION, [11.5]),
        (AT_THE_EDGE, []),
        (STOP + STOP, [12.0, 12.0]),
    ],
)
def test_a_vehicle_that_still_brakes_does_not_stand_yet(moves, drops):
    rows = rows_of([moves])
    assert by_pattern(rows) == [(0, drop) for drop in drops]
    assert by_statement(rows) == [(0, drop) for drop in drops]
