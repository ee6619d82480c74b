"""Every stage's outputs are there under names of their own, wherever the stage stands."""

from __future__ import annotations

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.apps.transit.transit_pb2 import VehiclePosition
from tidewheel.engine.bucket_store import BucketState, MemoryEntries
from tidewheel.engine.halves import Dealer, Rows, SecondHalf
from tidewheel.engine.operator import Tick
from tidewheel.errors import DefinitionError

S = 1_000_000
FAST = tw.pattern("fast", pl.col("speed") >= 10).next("slow", pl.col("speed") < 1).within("10 s")
AGAIN = tw.pattern("one", pl.col("match_start").is_not_null()).next("two", pl.col("vehicle") > 0).within("10 s")


@pytest.fixture
def moves(log):
    return tw.stream(log, "input.vehicle-position", type=VehiclePosition)


def outputs_of(result, frames, watermarks):
    """The rows of each output, from frames in batches with these watermarks after them."""
    flow = result.named("job").flow()
    depth = len(flow.stages)
    halves = [SecondHalf([flow], level, 1, last=level + 1 == depth) for level in range(depth)]
    states = [MemoryEntries() for _ in halves]
    dealer, before = Dealer([flow], 1), None
    found: dict[str, list[pl.DataFrame]] = {}
    for frame, watermark in zip(frames, watermarks, strict=True):
        parcels: dict = {}
        tick = Tick(before, watermark, 0)
        dealer.deal(parcels, "job", [Rows(frame)], before)
        for half, entries in zip(halves, states, strict=True):
            state = BucketState(entries)
            out, parcels = half.step(state, 0, [parcel.to_bytes() for parcel in parcels.values()], tick)
            state.save()
        for _, port, rows in out:
            found.setdefault(port, []).append(rows)
        before = watermark
    return {port: pl.concat(frames, how="diagonal") for port, frames in found.items()}


def positions(result, *rows):
    """Frames with all columns of the input, of rows (second, vehicle, speed)."""
    schema = result.input.schema()
    given = pl.DataFrame(rows, schema={"event_time": pl.Int64, "vehicle": pl.Int32, "speed": pl.Float32}, orient="row")
    given = given.with_columns((pl.col("event_time") * S).cast(pl.Datetime("us", "UTC")))
    return given.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in given.columns
    )


def test_a_pattern_in_front_of_a_window_tells_what_ran_out_of_time(moves):
    matches = moves.key_by("vehicle").match(FAST)
    counts = matches.key_by("vehicle").window(tw.windows.fixed("1 min")).aggregate(n=tw.agg.count())
    assert set(counts.schemas()) == {"results", "late", "late_2", "timed_out", "dropped", "metrics"}
    rows = positions(counts, (0, 1, 12.0), (1, 1, 0.5), (20, 1, 15.0), (100, 1, 5.0))
    found = outputs_of(counts, [rows, rows.clear()], [10 * S, 200 * S])
    assert found["results"].select("vehicle", "n").rows() == [(1, 1)]
    assert found["timed_out"]["match_start"].cast(pl.Int64).to_list() == [20 * S]
    assert set(found["timed_out"].columns) == set(counts.schemas()["timed_out"].names)


@pytest.mark.parametrize("name", ["late", "dropped", "timed_out", "metrics", "output"])
def test_a_measure_is_not_called_like_an_output(moves, name):
    with pytest.raises(DefinitionError, match=f"the column '{name}': an output has that name"):
        moves.key_by("vehicle").match(FAST, measures={name: tw.last("fast.speed")})


def test_a_column_called_like_an_output_is_told_before_it_is_in_a_frame_twice(moves):
    matches = moves.key_by("vehicle").match(FAST)
    counts = matches.key_by("vehicle").window(tw.windows.fixed("1 min")).aggregate(dropped=tw.agg.count())
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
