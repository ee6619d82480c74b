"""The benchmark of patterns measures what it says: the pattern and the function by hand find the same stops."""

from __future__ import annotations

import polars as pl
import pytest

from bench.__main__ import main
from bench.pattern_baselines import by_hand, windows_of
from bench.pattern_room import room
from bench.patterns import emergency_stop, most_can_start
from bench.positions import drives, position_dataset
from bench.profiles import inside
from bench.streams import BATCHES
from bench.window_queries import exchange_batches
from tests.bench.test_bench_windows import collected
from tidewheel.engine.operators.operator import RESULTS
from tidewheel.engine.runtime.exchange import ExchangeBatch

pytestmark = pytest.mark.long

EVENTS, VEHICLES = 32_000, 40
SECOND = 1_000_000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    data = position_dataset(tmp_path_factory.mktemp("positions"), EVENTS, VEHICLES)
    yield data
    data.log.close()


def test_the_pattern_and_the_function_by_hand_find_the_same_stops(spark, data, tmp_path):
    found = set()
    for row in collected(exchange_batches(spark, data, [emergency_stop(data)]), "stops_ours", tmp_path):
        for _, output, frame in ExchangeBatch.outputs(bytes(row.batch_bytes)):
            if output == RESULTS:
                times = pl.col("match_start", "match_end").cast(pl.Int64)
                found |= set(
                    frame.select("vehicle", times, pl.col("fall", "hardest").cast(pl.Float64).round(3)).iter_rows()
                )
    theirs = collected(by_hand(data.from_log(spark)), "stops_by_hand", tmp_path)
    expected = {(row.vehicle, row.started, row.ended, round(row.fall, 3), round(row.hardest, 3)) for row in theirs}
    end = max(ended for _, _, ended, _, _ in expected) - SECOND  # what the watermark has passed
    assert len(expected) > 10
    assert {one for one in found if one[2] < end} == {one for one in expected if one[2] < end}


def test_windows_hold_all_positions_that_the_watermark_has_passed(spark, data, tmp_path):
    rows = collected(windows_of(data.parquet(spark)), "windows_of_positions", tmp_path)
    counted = sum(row.events for row in rows)
    assert EVENTS * 0.9 < counted <= EVENTS


def test_vehicles_send_once_a_second_in_their_own_order():
    frame = drives(4_000, 20)
    steps = frame.group_by("vehicle").agg(pl.col("event_time").diff().drop_nulls().unique().alias("steps"))
    assert {step.total_seconds() for steps in steps["steps"] for step in steps} == {1.0}
    times = frame["event_time"].cast(pl.Int64)
    assert 0 < (times.cum_max() - times).max() < SECOND


def test_the_work_is_timed_without_spark_too(data):
    figures = inside("group", data, emergency_stop(data))
    assert len(figures) == 5
    assert all(figure.value > 0 for figure in figures)


def test_most_events_can_start_and_the_room_of_partial_matches_is_reported(data):
    held = room(data, most_can_start(data))
    assert held.open > VEHICLES  # several for each vehicle that moves
    assert held.stored > 0
    assert held.held > held.open * 16
    assert 0 < room(data, emergency_stop(data), batches=BATCHES).open < held.open


def test_a_part_that_is_not_there_is_reported(capsys):
    with pytest.raises(SystemExit):
        main(["patterns", "--only", "z"])
    assert "there is no part 'z'; there are a, b, c, d" in capsys.readouterr().err
