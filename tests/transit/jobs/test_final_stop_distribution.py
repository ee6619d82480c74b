"""final-stop-distribution against an oracle: plain polars over the whole input, sharing no code with the job."""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import pairwise

import polars as pl
import polars_h3
import pytest

import tidewheel as tw
from tests.transit.jobs.job_cases import with_unresolved
from tests.transit.jobs.job_checks import RECORDINGS, events_of, recording
from tests.transit.jobs.lookup_run import LookupRun
from tests.transit.simulator_support import MORNING
from tidewheel_transit.final_stop import FINAL_STOP
from tidewheel_transit.jobs import final_stop_distribution
from tidewheel_transit.simulator import Simulator
from tidewheel_transit.simulator.city import PLACES
from tidewheel_transit.transit_pb2 import VehiclePosition

pytestmark = pytest.mark.long

S = 1_000_000
KEY = ["route", "direction", "operating_day", "start"]
SIZE, EVERY, LATENESS = 300, 5, 5


@lru_cache(maxsize=1)
def positions() -> pl.DataFrame:
    """Twelve minutes of a small fleet in the order of arrival, with its disorder and its repeats, and more of both."""
    frame = Simulator(start=MORNING, seed=3, rate=10).advance(MORNING + 720 * S).frame
    frame = frame.filter(pl.col("event") == "vp", pl.col("temporal") == "ongoing").drop("arrival_time", "geohash_level")
    placed = frame.with_row_index("n").with_columns(pl.col("n").cast(pl.Int64))
    again = placed.gather_every(7).with_columns(pl.col("n") + 3)
    behind = placed.gather_every(11).with_columns(pl.col("n") + 60)
    return pl.concat([placed, again, behind]).sort("n", maintain_order=True).drop("n")


@lru_cache(maxsize=1)
def answers() -> dict[tuple, dict]:
    """Where each journey of these positions ends."""
    return made_up(positions())


def made_up(frame: pl.DataFrame) -> dict[tuple, dict]:
    """Where each journey ends: places that are made up here, so that nobody else is asked."""
    keys = frame.select(KEY).drop_nulls().unique(maintain_order=True).rows()
    places = sorted(PLACES.values())
    return {
        key: {"final_stop": str(n), "final_lat": places[n % 7][0], "final_lon": places[n % 7][1]}
        for n, key in enumerate(keys)
    }


def batches(most: int | None, frame: pl.DataFrame | None = None) -> list[tuple[pl.DataFrame, int]]:
    """The positions in batches, each with the watermark that follows: a second behind the highest time so far."""
    frame, chance = positions() if frame is None else frame, random.Random(5)
    cuts = [0] if most is not None else [0, frame.height]
    while cuts[-1] < frame.height:
        cuts.append(min(frame.height, cuts[-1] + chance.randint(1, most or 1)))
    found, highest = [], 0
    for begin, end in pairwise(cuts):
        highest = max(highest, frame[begin:end]["event_time"].cast(pl.Int64).max())
        found.append((frame[begin:end], highest - S))
    return found


def run(log, given, *, reported, **options):
    """All outputs of the job over these batches; `reported`: outcomes by the number of the batch that reads them."""
    rows = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    running = LookupRun(final_stop_distribution(rows, **options))
    template = pl.DataFrame(schema=running.result.input.schema())
    for number, (some, watermark) in enumerate(given):
        if number in reported:
            running.answer(FINAL_STOP, reported[number].items(), seen=MORNING)
        running.step(pl.concat([template, some], how="diagonal_relaxed"), watermark, clock=number * S)
    running.end()
    return running.outputs


def final(outputs: dict[str, pl.DataFrame]) -> dict[tuple, int]:
    """The last result of each window and cell, unless it was retracted: the cell has lost its vehicles. Under 0 are
    vehicles of which it is not known where they are heading."""
    results = with_unresolved(outputs)["results"]
    last = results.group_by("window_end", "cell", maintain_order=True).last().filter(~pl.col("retraction"))
    assert last["vehicles"].min() > 0
    return {(end, cell): vehicles for end, cell, vehicles in last.select("window_end", "cell", "vehicles").rows()}


def oracle(given, known: dict[tuple, dict], *, size: int = SIZE) -> dict[tuple, int]:
    """Each vehicle's latest position in each window that it is not too late for, by the cell in which its journey ends;
    0 if that is not known."""
    befores = [None, *(watermark for _, watermark in given)]
    rows = pl.concat(
        frame.with_columns(pl.lit(before, pl.Int64).alias("before"))
        for (frame, _), before in zip(given, befores, strict=False)
    )
    places = pl.DataFrame(
        [(*key, said["final_lat"], said["final_lon"]) for key, said in known.items()],
        schema={"route": pl.String, "direction": pl.Int32, "operating_day": pl.String, "start": pl.String,
                "final_lat": pl.Float64, "final_lon": pl.Float64},
        orient="row",
    ).with_columns(cell=polars_h3.latlng_to_cell("final_lat", "final_lon", 9).cast(pl.Int64))  # fmt: skip
    at = pl.col("event_time").cast(pl.Int64)
    table = (
        rows.with_row_index("arrival")
        .filter(pl.col("journey") == "journey")
        .with_columns(at.alias("at"))
        .join(pl.DataFrame({"ahead": range(1, size // EVERY + 1)}), how="cross")
        .with_columns(end=(pl.col("at") // (EVERY * S) + pl.col("ahead")) * EVERY * S)
        .filter(pl.col("before").is_null() | (pl.col("end") >= pl.col("before") - LATENESS * S))
        .sort("at", "arrival")
        .group_by("operator", "vehicle", "end")
        .last()
        .join(places, on=KEY, how="left")
        .with_columns(pl.col("cell").fill_null(0), pl.col("end").cast(pl.Datetime("us", "UTC")))
    )
    return {(end, cell): count for end, cell, count in table.group_by("end", "cell").len().rows()}


def totals(found: dict[tuple, int]) -> dict:
    """Vehicles of each window, wherever they are heading."""
    return {end: sum(count for (other, _), count in found.items() if other == end) for end, _ in found}


def test_the_traffic_has_what_the_test_is_about():
    frame = positions()
    journeys = (
        frame.filter(pl.col("journey") == "journey").group_by("operator", "vehicle").agg(pl.struct(KEY).n_unique())
    )
    assert journeys["route"].max() > 1, "a vehicle goes on to its next journey"
    assert frame.is_duplicated().sum() > 500
    assert frame["event_time"].is_sorted() is False
    assert len(answers()) > 10


@pytest.mark.parametrize("most", [None, 3_000, 500])
def test_it_is_what_the_oracle_says_however_the_input_is_cut(log, most):
    given = batches(most)
    outputs = run(log, given, reported={0: answers()})
    expected = oracle(given, answers())
    assert len(expected) > 300
    assert final(outputs) == expected
    assert not any(cell == 0 for _, cell in expected)
    assert "failed" not in outputs


@pytest.mark.parametrize("name", RECORDINGS)
def test_it_is_what_the_oracle_says_of_real_recordings(log, shared, name):
    events = events_of(recording(shared / "data" / "hfp" / f"{name}.jsonl.gz"))
    kinds = tw.stream(log, "input.vehicle-position", type=VehiclePosition).schema
    frame = events.filter(pl.col("topic") == "input.vehicle-position")
    frame = frame.select(pl.col(name).cast(kinds[name]) for name in frame.columns if name in kinds)
    known = dict(list(made_up(frame).items())[::2])
    for most in (None, 700):
        given = batches(most, frame)
        expected = oracle(given, known)
        assert len(expected) > 50
        assert final(run(log, given, reported={0: known})) == expected
        assert any(cell for _, cell in expected)


@pytest.mark.parametrize("most", [None, 500])
def test_vehicles_whose_final_stop_is_not_known_are_counted_apart_and_their_positions_reported(log, most):
    given, known = batches(most), dict(list(answers().items())[::2])
    reasons = dict.fromkeys(list(answers())[1::4], "the service answered 503")
    outputs = run(log, given, reported={0: {**known, **reasons}})
    expected = oracle(given, known)
    assert final(outputs) == expected
    assert any(cell == 0 for _, cell in expected)
    assert {*outputs["results"]["cell"]} == {cell for _, cell in expected if cell}, "no cell but real ones"
    lost = positions().filter(pl.col("journey") == "journey").join(
        pl.DataFrame([key for key in answers() if key not in known], schema=FINAL_STOP.keys, orient="row"), on=KEY
    )  # fmt: skip
    failed = outputs["failed"]
    assert sorted(failed.select("vehicle", "event_time").rows()) == sorted(lost.select("vehicle", "event_time").rows())
    reported = {tuple(key): reason for *key, reason in failed.select(*KEY, "reason").unique().rows()}
    assert reported == {key: reasons.get(key, "no answer in time") for key in answers() if key not in known}


def test_answers_that_come_late_move_vehicles_to_their_cells_and_lose_none(log):
    given = batches(500)
    keys = list(answers())
    third = len(given) // 3
    reported = {
        number: {key: answers()[key] for key in keys[part::3]} for part, number in enumerate((0, third, 2 * third))
    }
    found, expected = final(run(log, given, reported=reported)), oracle(given, answers())
    assert totals(found) == totals(expected)
    assert any(cell == 0 for _, cell in found)
    assert all(count <= expected[place] for place, count in found.items() if place[1] != 0)
    # Once everything is known and the windows have left the time before that behind, nothing is missing.
    known_at = given[2 * third][1] + (SIZE + LATENESS) * S
    late = {place: count for place, count in expected.items() if place[0].timestamp() * S > known_at}
    assert {place: count for place, count in found.items() if place[0].timestamp() * S > known_at} == late


def test_the_same_batches_give_the_same_bytes(log):
    given, half = batches(500), dict(list(answers().items())[::2])
    first, second = (run(log, given, reported={3: half, 9: answers()}) for _ in range(2))
    assert first.keys() == second.keys()
    for name, frame in first.items():
        assert frame.equals(second[name]), name
        assert frame.write_ipc(None).getvalue() == second[name].write_ipc(None).getvalue(), name


def test_retractions_take_back_what_was_said(log):
    given = batches(500)
    outputs = run(log, given, reported={2: answers()}, mode="retracting")
    results = with_unresolved(outputs)["results"]
    assert results["retraction"].sum() > 0
    sign = pl.when(pl.col("retraction")).then(-1).otherwise(1)
    left = results.group_by("window_end", "cell").agg((pl.col("vehicles") * sign).sum())
    shown = {(end, cell): count for end, cell, count in left.select("window_end", "cell", "vehicles").rows() if count}
    assert shown == final(outputs)
    assert totals(shown) == totals(oracle(given, answers()))


def test_early_results_are_of_the_window_that_ends_next(log):
    given = batches(500)
    results = run(log, given, reported={0: answers()}, early="1 s")["results"]
    assert set(results["pane_timing"]) >= {"EARLY", "ON_TIME"}
    assert final({"results": results}) == oracle(given, answers())
