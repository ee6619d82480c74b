"""Each transit job gives what its specification says: disorder, late rows, repeats and nulls, however they are cut."""

from __future__ import annotations

import json
import random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transit.jobs import job_oracles as oracle
from tests.transit.jobs.job_cases import (
    BEGIN,
    arrival,
    at_once,
    convoy,
    counted,
    heading,
    height,
    late_rows,
    materialize,
    micros,
    position,
    repeated_rows,
    run_job,
    run_with_stops,
    skipped,
    stop_and_go,
    traffic,
    with_unresolved,
)
from tests.transit.jobs.job_checks import CROSSING, PAIR, STOP
from tests.transit.jobs.job_oracles import SECOND
from tidewheel_transit import jobs

pytestmark = pytest.mark.long

SEEDS = st.integers(0, 2**32)
CUTS = st.sampled_from(["batches", "one batch"])
MODES = st.sampled_from(["value", "delta", "retracting"])
EARLY = st.sampled_from(["", "1 s"])
SHAPES = st.sampled_from([(30, 5, 5), (60, 5, 5), (20, 20, 0), (10, 3, 2), (15, 10, 12)])
"""Of windows: size, every and lateness, in seconds."""
RESOLUTIONS = st.sampled_from([9, 8, 10])
WINDOWED = {
    "seed": SEEDS,
    "how": CUTS,
    "mode": st.sampled_from(["value", "retracting"]),
    "early": EARLY,
    "shape": SHAPES,
    "resolution": RESOLUTIONS,
}
"""What is drawn for the jobs that count by cell in windows."""
STOPS = {
    ("550", 1, "2026-03-02", "08:00"): {"final_stop": "1", "final_lat": 60.21, "final_lon": 25.08},
    ("71", 1, "2026-03-02", "09:00"): {"final_stop": "2", "final_lat": 60.25, "final_lon": 24.99},
}
"""Where some of the journeys end."""

SAMPLES = st.sampled_from([10, 5, 7])
FENCE = [(24.9400, 60.1700), (24.9425, 60.1735), (24.9450, 60.1700), (24.9425, 60.1800)]  # not convex


def cut(batches, how):
    return batches if how == "batches" else at_once(batches)


def in_words(shape):
    return {name: f"{seconds} s" for name, seconds in zip(("size", "every", "lateness"), shape, strict=True)}


def in_micros(shape):
    return {name: seconds * SECOND for name, seconds in zip(("size", "every", "lateness"), shape, strict=True)}


def rows_of(batches):
    return sum(len(rows) for rows, _ in batches)


def check_rows(outputs, batches, expected_skips, late, *, repeats=None):
    """Every row that came is accepted, skipped and counted, or late, and there is no other."""
    found = counted(outputs)
    assert found["events"] == found["accepted"] + found["late"] + found["skipped"] == rows_of(batches)
    assert skipped(outputs) == expected_skips
    assert late_rows(outputs) == late
    assert height(outputs, "late") == found["late"]
    assert repeated_rows(outputs) == (repeats or {})


def without_nothing(table):
    """Without the cells that lost what they had: deltas add up to 0 there."""
    return {key: values for key, values in table.items() if values != (0,)}


@settings(max_examples=15)
@given(seed=SEEDS, how=CUTS, mode=MODES, early=EARLY, shape=SHAPES, resolution=RESOLUTIONS)
def test_each_vehicle_counts_once_at_its_latest_position(seed, how, mode, early, shape, resolution):
    batches = cut(traffic(seed), how)
    found = run_job(
        jobs.vehicle_distribution, batches, mode=mode, early=early, resolution=resolution, **in_words(shape)
    )
    expected, late = oracle.vehicle_distribution(batches, resolution=resolution, **in_micros(shape))
    table = materialize(found, ["cell"], ["vehicles"], mode=mode)
    assert (without_nothing(table) if mode == "delta" else table) == {key: (count,) for key, count in expected.items()}
    check_rows(found, batches, oracle.skipped(batches, place=True), late)


@settings(max_examples=15)
@given(seed=SEEDS, how=CUTS, mode=MODES, early=EARLY, shape=SHAPES, resolution=RESOLUTIONS)
def test_each_vehicle_counts_once_where_its_journey_ends(seed, how, mode, early, shape, resolution):
    batches = cut(traffic(seed, heading), how)
    options = {"mode": mode, "early": early, "resolution": resolution}
    found = run_with_stops(batches, STOPS, **options, **in_words(shape))
    expected, late = oracle.final_stop_distribution(batches, STOPS, resolution=resolution, **in_micros(shape))
    table = materialize(with_unresolved(found), ["cell"], ["vehicles"], mode=mode)
    assert (without_nothing(table) if mode == "delta" else table) == {key: (count,) for key, count in expected.items()}
    check_rows(found, batches, oracle.skipped(batches, place=False), late)


def test_what_the_tests_are_about_is_really_in_the_generated_traffic():
    cases = [traffic(seed, heading) for seed in range(20)]
    late = [oracle.final_stop_distribution(case, STOPS, **in_micros((10, 3, 2)))[1] for case in cases]
    assert sum(found.total() for found in late) > 20
    ends = {cell for case in cases for cell, _ in oracle.final_stop_distribution(case, STOPS)[0]}
    assert len(ends) == 1 + len(STOPS), "known ones, and the others"
    assert sum(oracle.flow_direction(case)[2].total() for case in cases) > 20, "repeats"


def test_a_late_position_moves_the_vehicle_and_the_late_pane_says_so():
    here = {"operator": 1, "vehicle": 7, "lat": 60.1700, "lon": 24.9400, "journey": "journey"}
    there = here | {"lat": 60.1800, "event_time": BEGIN + 8 * SECOND}
    batches = [([here | {"event_time": BEGIN + 2 * SECOND}], BEGIN + 12 * SECOND), ([there], BEGIN + 12 * SECOND)]
    found = run_job(jobs.vehicle_distribution, batches, size="10 s")
    first = found["results"].filter(pl.col("window_start").cast(pl.Int64) == BEGIN)
    [one], [two] = oracle.cells([here], 9), oracle.cells([there], 9)
    assert sorted(first.select("cell", "pane_index", "vehicles", "pane_timing", "retraction").rows()) == sorted(
        [(one, 0, 1, "ON_TIME", False), (one, 0, 1, "ON_TIME", True), (two, 0, 1, "ON_TIME", False)]
    )


def test_a_cell_to_which_a_vehicle_comes_back_counts_its_results_on():
    here = {"operator": 1, "vehicle": 7, "lat": 60.1700, "lon": 24.9400, "journey": "journey"}
    there = here | {"lat": 60.1800}
    rows = [here | {"event_time": BEGIN + 2 * SECOND}, there | {"event_time": BEGIN + 4 * SECOND}]
    rows.append(here | {"event_time": BEGIN + 6 * SECOND})
    found = run_job(
        jobs.vehicle_distribution, [([row], BEGIN + 12 * SECOND) for row in rows], size="10 s", every="10 s"
    )
    [cell] = oracle.cells([here], 9)
    reported = found["results"].filter(pl.col("cell") == cell)
    assert reported.select("vehicles", "pane_index", "pane_first", "pane_timing", "retraction").rows() == [
        (1, 0, True, "ON_TIME", False), (1, 0, True, "ON_TIME", True), (1, 1, False, "LATE", False)
    ]  # fmt: skip


@settings(max_examples=15)
@given(**WINDOWED)
def test_delays_are_ranked_among_the_arrivals_of_a_cell(seed, how, mode, early, shape, resolution):
    batches = cut(traffic(seed, arrival, seconds=400), how)
    found = run_job(jobs.delay_distribution, batches, mode=mode, early=early, resolution=resolution, **in_words(shape))
    expected, late, repeats, unscheduled = oracle.delay_distribution(batches, resolution=resolution, **in_micros(shape))
    assert materialize(found, ["cell"], ["arrivals", "p50", "p90", "p99"], mode=mode) == expected
    assert repeated_rows(found) == repeats
    assert skipped(found)["without_schedule"] == unscheduled
    assert late_rows(found) == late


@settings(max_examples=15)
@given(**WINDOWED)
def test_crossings_go_to_neighbours_only(seed, how, mode, early, shape, resolution):
    batches = cut(traffic(seed), how)
    options = {"mode": mode, "early": early, "forget": "20 s", "resolution": resolution}
    found = run_job(jobs.flow_direction, batches, **options, **in_words(shape))
    expected, late, repeats = oracle.flow_direction(
        batches, forget=20 * SECOND, resolution=resolution, **in_micros(shape)
    )
    assert materialize(found, ["cell"], ["neighbour", "crossings", "total"], mode=mode) == expected
    check_rows(found, batches, oracle.skipped(batches, place=True), late, repeats=repeats)


@settings(max_examples=15)
@given(
    seed=SEEDS,
    how=CUTS,
    job=st.sampled_from([jobs.emergency_stop, jobs.emergency_stop_sql]),
    bounds=st.sampled_from([(10.0, 1.0, 10), (7.5, 2.5, 6)]),
)
def test_emergency_stops_are_found_by_pattern_and_by_statement(seed, how, job, bounds):
    fast, standing, seconds = bounds
    batches = cut(traffic(seed, stop_and_go, rows=150, seconds=60), how)
    found = run_job(job, batches, fast=fast, standing=standing, within=f"{seconds} s")
    expected, late, repeats = oracle.emergency_stop(batches, fast=fast, standing=standing, within=seconds * SECOND)
    assert sorted(_rows(found, STOP)) == sorted((*key, key[3], *values) for key, values in expected.items())
    check_rows(found, batches, oracle.skipped(batches, place=False), late, repeats=repeats)


def test_emergency_stops_are_really_in_the_generated_traffic():
    found = [len(oracle.emergency_stop(traffic(seed, stop_and_go, rows=150, seconds=60))[0]) for seed in range(20)]
    assert sum(found) > 20


@settings(max_examples=15)
@given(seed=SEEDS, how=CUTS, early=EARLY, gap=st.sampled_from([600, 200, 90]), lateness=st.sampled_from([60, 0, 200]))
def test_journeys_are_sessions(seed, how, early, gap, lateness):
    batches = cut(traffic(seed, rows=60, stretch=40), how)
    found = run_job(jobs.journeys, batches, mode="retracting", early=early, gap=f"{gap} s", lateness=f"{lateness} s")
    expected, late, repeats = oracle.journeys(batches, gap=gap * SECOND, lateness=lateness * SECOND)
    keys = ["operator", "vehicle", "operating_day", "start", "route", "direction"]
    values = ["first_time", "last_time", "duration", "distance", "events", "highest_speed", "stops_served"]
    assert materialize(found, keys, values, mode="retracting") == expected
    check_rows(found, batches, oracle.skipped(batches, place=False, journey=True), late, repeats=repeats)


def close_to(rows, expected):
    """The same but for rounding."""
    assert len(rows) == len(expected)
    for row, wanted in zip(sorted(rows, key=repr_of), sorted(expected, key=repr_of), strict=True):
        assert row[0] == wanted[0]
        for value, other in zip(row[1:], wanted[1:], strict=True):
            assert value == (pytest.approx(other, abs=1e-3) if isinstance(other, float) else other)


def repr_of(row):
    return repr([value for value in row if not isinstance(value, float)])


@settings(max_examples=15)
@given(seed=SEEDS, how=CUTS, every=SAMPLES, nearer=st.sampled_from([200.0, 350.0, 90.0]))
def test_bunching_starts_and_ends(seed, how, every, nearer):
    batches = cut(traffic(seed, convoy, rows=200), how)
    found = run_job(jobs.bunching, batches, every=f"{every} s", nearer=nearer)
    names = [*PAIR, "change", "event_time", "since", "distance", "duration"]
    rows = [(row[:6], *row[7:], row[6]) for row in _rows(found, names)]
    expected = oracle.bunching(batches, every=every * SECOND, nearer=nearer)
    close_to(rows, [(row[0], *row[2:], row[1]) for row in expected])
    late = oracle.late_samples(batches, every=every * SECOND)
    check_rows(found, batches, oracle.skipped(batches, place=True, route=True), late)


@settings(max_examples=15)
@given(
    seed=SEEDS,
    how=CUTS,
    every=SAMPLES,
    by=st.sampled_from([100.0, 30.0, 300.0]),
    nearer=st.sampled_from([1_000.0, 250.0]),
)
def test_closing_in_is_reported_once_until_the_distance_grows(seed, how, every, by, nearer):
    batches = cut(traffic(seed, convoy, rows=200), how)
    found = run_job(jobs.closing_in, batches, every=f"{every} s", by=by, nearer=nearer)
    rows = [(row[:6], *row[6:]) for row in _rows(found, [*PAIR, "event_time", "distance", "closing_speed"])]
    close_to(rows, oracle.closing_in(batches, every=every * SECOND, by=by, nearer=nearer))
    late = oracle.late_samples(batches, every=every * SECOND)
    check_rows(found, batches, oracle.skipped(batches, place=True, route=True), late)


def test_pairs_really_close_in_in_the_generated_traffic():
    cases = [traffic(seed, convoy, rows=200) for seed in range(20)]
    assert sum(len(oracle.closing_in(case)) for case in cases) > 20
    assert sum(len(oracle.bunching(case)) for case in cases) > 20


@pytest.mark.parametrize(
    ("apart", "reported"),
    [
        ([900, 850, 780, 700, 710, 640, 560, 500], (2, 6)),
        ([900, 850, 780, 700, None, 640, 560, 500], (2,)),  # a window without a sample: it has not grown
        ([900, 850, 780, 700, None, 720, 640, 560, 500], (2, 7)),
        ([900, 850, None, 780, 700, 640], (5,)),  # not of successive windows
        ([900, 850, 780, *[None] * 361, 700, 640, 560], (2, 366)),  # an hour later it is another encounter
    ],
    ids=["grown", "shrinking over a gap", "grown over a gap", "three in a row", "long ago"],
)
def test_closing_in_is_reported_again_after_the_distance_has_grown(apart, reported):
    batches = [(_two_vehicles(apart), None)]
    found = run_job(jobs.closing_in, batches)
    times = [time for (time,) in _rows(found, ["event_time"])]
    assert times == [BEGIN + (10 * number + 10) * SECOND - 1 for number in reported]
    assert times == [row[1] for row in oracle.closing_in(batches)]


def _two_vehicles(apart):
    still = {"operator": 1, "vehicle": 1, "lat": 60.2, "lon": 24.9, "route": "1", "direction": 1, "journey": "journey"}
    rows = []
    for number, far in enumerate(apart):
        if far is None:
            continue
        time = BEGIN + (10 * number + 5) * SECOND
        rows.append(still | {"event_time": time})
        rows.append(still | {"event_time": time, "vehicle": 2, "lat": 60.2 + far / 111_195.08})
    return rows


@settings(max_examples=15)
@given(seed=SEEDS, how=CUTS)
def test_geofences_report_entering_and_leaving(seed, how):
    batches = cut(traffic(seed), how)
    geometry = {"type": "Polygon", "coordinates": [[*FENCE, FENCE[0]]]}
    square = [[24.9390, 60.1705], [24.9390, 60.1745], [24.9440, 60.1745], [24.9440, 60.1705], [24.9390, 60.1705]]
    shapes = {"arrow": geometry, "square": {"type": "MultiPolygon", "coordinates": [[square]]}}
    features = [{"type": "Feature", "properties": {"name": n}, "geometry": g} for n, g in shapes.items()]
    text = json.dumps({"type": "FeatureCollection", "features": features})
    found = run_job(jobs.geofences, batches, fences=text, forget="25 s")
    rings = {"arrow": FENCE, "square": square[:-1]}
    expected, late, repeats = oracle.geofences(batches, rings, forget=25 * SECOND)
    assert sorted(_rows(found, CROSSING), key=repr) == sorted(expected, key=repr)
    check_rows(found, batches, oracle.skipped(batches, place=True), late, repeats=repeats)


def _rows(found, names):
    return micros(found["results"]).select(names).rows() if "results" in found else []


def test_what_a_job_takes_is_never_lost_when_there_is_nothing_to_report():
    nothing = [([position_at(second) | {"journey": "deadrun"} for second in range(5)], None)]
    found = run_job(jobs.vehicle_distribution, nothing)
    assert "results" not in found
    assert skipped(found) == {"deadrun": 5}


def position_at(second):
    return position(random.Random(second), second)
