"""Every stage's outputs are there under names of their own, wherever the stage stands."""

from __future__ import annotations

import polars as pl
import pytest

import tidewheel as tw
from tests.engine.streams.flow_support import S, outputs_of, positions
from tidewheel.errors import DefinitionError
from tidewheel_transit.transit_pb2 import VehiclePosition

FAST = tw.pattern("fast", pl.col("speed") >= 10).next("slow", pl.col("speed") < 1).within("10 s")
AGAIN = tw.pattern("one", pl.col("match_start").is_not_null()).next("two", pl.col("vehicle") > 0).within("10 s")


@pytest.fixture
def moves(log):
    return tw.stream(log, "input.vehicle-position", type=VehiclePosition)


def test_a_pattern_in_front_of_a_window_reports_what_ran_out_of_time(moves):
    matches = moves.key_by("vehicle").match(FAST)
    counts = matches.key_by("vehicle").window(tw.windows.tumbling("1 min")).aggregate(n=tw.agg.count())
    assert set(counts.schemas()) == {"results", "late", "late_2", "timed_out", "dropped", "metrics"}
    rows = positions(counts, (0, 1, 12.0), (1, 1, 0.5), (20, 1, 15.0), (100, 1, 5.0))
    found = outputs_of(counts, [rows, rows.clear()], [10 * S, 200 * S])
    assert found["results"].select("vehicle", "n").rows() == [(1, 1)]
    assert found["timed_out"]["match_start"].cast(pl.Int64).to_list() == [20 * S]
    assert set(found["timed_out"].columns) == set(counts.schemas()["timed_out"].names)


@pytest.mark.parametrize("name", ["late", "dropped", "timed_out", "metrics", "output"])
def test_a_measure_is_not_called_like_an_output(moves, name):
    with pytest.raises(DefinitionError, match=f"the column '{name}': an output has that name"):
        moves.key_by("vehicle").match(FAST, measures={name: tw.measures.last("fast.speed")})


def test_a_column_called_like_an_output_is_reported_before_it_is_in_a_frame_twice(moves):
    matches = moves.key_by("vehicle").match(FAST)
    counts = matches.key_by("vehicle").window(tw.windows.tumbling("1 min")).aggregate(dropped=tw.agg.count())
    for result in (counts, moves.select("vehicle", late=pl.col("delay")).deduplicate("vehicle", horizon="1 s")):
        with pytest.raises(DefinitionError, match=r"df: the results have a column '(dropped|late)'"):
            result.df()


def test_two_patterns_have_outputs_of_their_own(moves):
    twice = moves.key_by("vehicle").match(FAST).key_by("vehicle").match(AGAIN)
    assert {"timed_out", "dropped", "timed_out_2", "dropped_2"} <= set(twice.schemas())
    rows = positions(twice, (0, 1, 12.0), (1, 1, 0.5), (20, 1, 15.0), (100, 1, 5.0))
    found = outputs_of(twice, [rows, rows.clear(), rows.clear()], [10 * S, 200 * S, 300 * S])
    assert found["timed_out"]["stage"].to_list() == ["fast"]
    assert found["timed_out_2"]["stage"].to_list() == ["one"]


def test_a_pattern_behind_another_stage_keeps_the_plain_names(moves):
    behind = moves.deduplicate("vehicle", horizon="1 min").key_by("vehicle").match(FAST)
    assert {"timed_out", "dropped", "late_2"} <= set(behind.schemas())
    assert "timed_out_2" not in behind.schemas()
