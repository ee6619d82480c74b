"""Sketches: small, mergeable in any shape, within their bounds, and the same bytes for the same chunks."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from datetime import date, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings

from tests.model.aggregates.aggregate_support import SCHEMA, assert_as_of, chunked, close, merged, over_nothing, results
from tidewheel.errors import DefinitionError
from tidewheel.model import aggregates as agg

FEW = settings(max_examples=25)
NAMES = ("n", "small", "f", "s", "b", "at", "took")
DISTINCT = [agg.approx_count_distinct(name) for name in NAMES]
FREQUENT = [agg.most_frequent(name, 3) for name in NAMES]
PERCENTILES = [
    agg.approx_percentile(name, percent, low=True) for name in ("n", "f", "at", "took") for percent in (1, 50, 100)
]
SKETCHES = [*DISTINCT, *FREQUENT, *PERCENTILES, agg.approx_count_distinct(pl.col("n") + 1, lg_k=4)]


@FEW
@given(parts=chunked())
def test_merging_in_any_shape_gives_what_one_sketch_gives(parts):
    assert_as_of([*DISTINCT, *FREQUENT], *parts)


@FEW
@given(parts=chunked())
def test_few_values_are_counted_exactly(parts):
    for name in NAMES:
        assert results(agg.approx_count_distinct(name), *parts) == results(agg.count_distinct(name), *parts)


@FEW
@given(parts=chunked())
def test_percentiles_of_few_values_are_exact(parts):
    for name, percent in (("n", 50), ("took", 1), ("at", 100), ("n", 99.9)):
        found = results(agg.approx_percentile(name, percent, low=True), *parts)
        assert found == {
            key: close(value) for key, value in results(agg.percentile(name, percent, low=True), *parts).items()
        }


@FEW
@given(parts=chunked())
def test_the_same_chunks_give_the_same_bytes(parts):
    assert merged(SKETCHES, *parts).equals(merged(SKETCHES, *parts))


@pytest.mark.parametrize("aggregate", SKETCHES, ids=repr)
def test_no_elements_and_parts_that_are_all_null_give_the_empty_result(aggregate):
    assert aggregate.empty() == (0 if aggregate.function == "approx_count_distinct" else None)
    assert aggregate.of([]) == aggregate.empty()
    assert over_nothing(aggregate) == aggregate.empty()
    nulls = [dict.fromkeys(SCHEMA.names()) | {"key": 0, "__time": 0}]
    assert results(aggregate, [nulls, nulls], [0]) == {0: aggregate.empty()}
    assert aggregate.of(nulls) == aggregate.empty()


def many(values, chunks=7):
    rows = [{"key": 0, "v": value, "__time": 0} for value in values]
    step = -(-len(rows) // chunks)
    return [rows[start : start + step] for start in range(0, len(rows), step)]


def of_many(aggregate, chunks, kind):
    schema = pl.Schema({"key": pl.Int64(), "v": kind, "__time": pl.Int64()})
    joins = [place % left for place, left in enumerate(range(len(chunks) - 1, 0, -1), start=3)]
    return results(aggregate, chunks, joins, schema)[0]


@pytest.mark.parametrize("kind", [pl.Int64(), pl.String(), pl.Float64()], ids=str)
def test_many_different_values_are_counted_within_the_bound_and_however_chunked(kind):
    rng = random.Random(1)
    values = pl.Series([rng.randrange(20_000) for _ in range(30_000)]).cast(kind).to_list()
    counted = of_many(agg.approx_count_distinct("v"), many(values), kind)
    assert counted == pytest.approx(len(set(values)), rel=4 * 1.04 / 64)
    assert counted == of_many(agg.approx_count_distinct("v"), many(values, 3), kind)
    assert counted == agg.approx_count_distinct("v").of([row for chunk in many(values[::-1]) for row in chunk])
    coarse = of_many(agg.approx_count_distinct("v", lg_k=8), many(values), kind)
    assert coarse == pytest.approx(len(set(values)), rel=4 * 1.04 / 16)


def test_percentiles_of_many_values_are_near_the_true_rank():
    rng = random.Random(2)
    values = [rng.lognormvariate(0, 1) for _ in range(20_000)]
    before = 0.0
    for percent in (0.1, 5, 25, 50, 51, 75, 95, 99.9):
        found = of_many(agg.approx_percentile("v", percent, low=True), many(values), pl.Float64())
        rank = 100 * sum(value <= found for value in values) / len(values)
        assert rank == pytest.approx(percent, abs=0.25)
        assert min(rank, 100 - rank) == pytest.approx(min(percent, 100 - percent), rel=0.1)
        assert found > before
        before = found


@pytest.mark.parametrize(("percent", "rank"), [(0.001, 1), (7, 7), (7.01, 8), (29, 29), (100, 100)])
def test_the_rank_of_a_percentile_is_not_rounded_to_its_neighbour(percent, rank):
    values = [float(value) for value in range(100, 0, -1)]
    assert of_many(agg.approx_percentile("v", percent, low=True), many(values), pl.Float64()) == rank


def test_percentiles_of_times_are_times():
    start = datetime(2026, 1, 1)
    values = [start + timedelta(seconds=second) for second in range(101)]
    found = of_many(agg.approx_percentile("v", 50), many(values), pl.Datetime("us"))
    assert abs(found - values[50]) <= timedelta(seconds=1)
    assert agg.approx_percentile("v", 50).dtype({"v": pl.Int32()}) == pl.Float64


def test_the_most_frequent_of_many_values_are_found_within_the_bound():
    rng = random.Random(3)
    values = [int(rng.paretovariate(1.0)) for _ in range(20_000)]
    truth = Counter(values)
    aggregate = agg.most_frequent("v", 3, size=64)
    assert len(truth) > 64
    found = of_many(aggregate, many(values), pl.Int64())
    assert [item["value"] for item in found] == [value for value, _ in truth.most_common(3)]
    for item in found:
        assert item["count"] == pytest.approx(truth[item["value"]], abs=len(values) * 3.5 / 64)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([date(2026, 1, 2), date(1969, 1, 1)], pl.Date()),
        ([b"\xff\x00", b""], pl.Binary()),
        ([2**64 - 1, 2**63], pl.UInt64()),
        ([float("inf"), -1e-7], pl.Float64()),
        ([True, False], pl.Boolean()),
        (["x", "y"], pl.Enum(["y", "x"])),
        (["x", ""], pl.Categorical()),
    ],
)
def test_values_of_every_type_come_back_as_they_were(values, kind):
    chunks = many([values[0], *values, None], chunks=2)
    found = of_many(agg.most_frequent("v", 5), chunks, kind)
    assert found == [{"value": values[0], "count": 2}, {"value": values[1], "count": 1}]
    assert of_many(agg.approx_count_distinct("v"), chunks, kind) == 2


def test_what_cannot_be_hashed_is_refused():
    with pytest.raises(DefinitionError, match="cannot distinguish values of type List"):
        agg.approx_count_distinct("v").dtype({"v": pl.List(pl.Int64())})


CODE = """
import hashlib, polars as pl
from tidewheel.model import aggregates as agg
frame = pl.DataFrame({"key": 0, "n": range(5000)}).with_columns(s=pl.col("n").cast(pl.String))
ones = [agg.approx_count_distinct("n"), agg.approx_count_distinct("s"), agg.most_frequent("s", 3, size=64)]
ones.append(agg.approx_percentile("n", 5))
parts = [frame.group_by("key").agg(one.partial("x"))["x.sketch"][0] for one in ones]
digest = hashlib.sha256(b"".join(parts)).hexdigest()
"""


def test_every_process_makes_the_same_bytes():
    here: dict = {}
    exec(CODE, here)
    run = [sys.executable, "-c", CODE + "print(digest)"]
    there = subprocess.run(run, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here["digest"] != hashlib.sha256(b"").hexdigest()
