"""Aggregates of a user's own, as streams take them."""

from __future__ import annotations

import polars as pl
import pytest

import tidewheel as tw
from tests.engine.streams.flow_support import S, outputs_of, positions
from tidewheel.errors import DefinitionError
from tidewheel_transit.transit_pb2 import VehiclePosition

MIDDLE = tw.agg.custom(partial={"m": pl.col("speed").median()}, finish=pl.col("m"), name="middle")


@pytest.fixture
def speeds(log):
    return tw.stream(log, "input.vehicle-position", type=VehiclePosition).key_by("vehicle")


@pytest.mark.parametrize(
    "windows", [tw.windows.tumbling("10 s"), tw.windows.sliding("10 s", every="5 s"), tw.windows.count(3)], ids=repr
)
def test_without_merge_rows_are_kept_from_one_batch_to_the_next(speeds, windows):
    result = speeds.window(windows).aggregate(middle=MIDDLE, n=tw.agg.count())
    assert "middle" in repr(result.stages[0].operation)
    frames = [positions(result, (11, 1, 4.0)), positions(result, (12, 1, 9.0), (13, 1, 5.0))]
    found = outputs_of(result, [*frames, frames[0].clear()], [0, 5 * S, 60 * S])["results"]
    assert (5.0, 3) in found.select("middle", "n").rows()


def test_sessions_refuse_it(speeds):
    with pytest.raises(DefinitionError, match=r"the results of custom\(.*\) cannot be merged, but session"):
        speeds.window(tw.windows.session(gap="5 s")).aggregate(middle=MIDDLE)
