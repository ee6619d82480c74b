"""Aggregates: partial results of chunks, merged in any shape, finish to what plain Python makes of all elements."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timedelta

import polars as pl
import pytest
from hypothesis import example, given, settings

from tests.model.aggregates.aggregate_support import (
    SCHEMA,
    assert_as_of,
    chunked,
    merge,
    merged,
    over_nothing,
    partial,
    results,
)
from tidewheel.errors import DefinitionError
from tidewheel.model import aggregates as agg

FEW = settings(max_examples=30)
WEIGHTED_MEAN = agg.custom(
    partial={"total": (pl.col("f") * pl.col("n")).sum(), "weight": pl.col("n").sum()},
    merge={"total": pl.col("total").sum(), "weight": pl.col("weight").sum()},
    finish=pl.when(pl.col("weight") != 0).then(pl.col("total") / pl.col("weight")),
    name="weighted_mean",
)
SPREAD = agg.custom(
    partial={"low": pl.col("n").min(), "total": pl.len()},
    merge={"total": pl.col("total").sum(), "low": pl.col("low").min()},
    finish=pl.struct("total", "low"),
)
EXACT = [
    agg.count(),
    agg.count("s"),
    agg.count(pl.col("n") + pl.col("f")),
    agg.sum("n"),
    agg.sum("small"),
    agg.sum("f"),
    agg.sum("b"),
    agg.sum("took"),
    agg.sum(pl.col("n") * 2),
    *(function(name) for function in (agg.min, agg.max) for name in ("n", "f", "s", "b", "at", "took")),
    *(agg.mean(name) for name in ("n", "small", "f", "b", "at", "took")),
    agg.mean(pl.col("n") / 2),
    agg.variance("f"),
    agg.variance("small"),
    agg.variance("n", ddof=0),
    agg.stddev("f"),
    agg.stddev("n", ddof=2),
    *(function(name) for function in (agg.first, agg.last) for name in ("n", "f", "s", "at", "took")),
    *(function("s", by) for function in (agg.arg_max, agg.arg_min) for by in ("n", "f", "at", "b")),
    agg.arg_max("took", by=pl.col("n").abs()),
    *(agg.collect(name) for name in ("n", "f", "s", "at", "took")),
    *(agg.count_distinct(name) for name in ("n", "f", "s", "b", "at")),
    agg.percentile("n", 50),
    agg.percentile("f", 99.9),
    agg.percentile("at", 0.1, low=True),
    agg.percentile("took", 100),
    agg.top_k("n", 1),
    agg.top_k("f", 3),
    agg.top_k("took", 2),
    agg.top_k("s", 2, by="f"),
    agg.top_k("at", 3, by=pl.col("n") % 2),
    WEIGHTED_MEAN,
    SPREAD,
]


@FEW
@given(parts=chunked())
def test_chunks_merged_in_any_shape_give_what_all_elements_give(parts):
    assert_as_of(EXACT, *parts)


@pytest.mark.parametrize("aggregate", EXACT, ids=repr)
def test_no_elements_and_parts_that_are_all_null_give_the_empty_result(aggregate):
    assert aggregate.of([]) == aggregate.empty()
    assert over_nothing(aggregate) == aggregate.empty()


def test_what_no_elements_give():
    full = {"count()": 0, "count('s')": 0, "count_distinct('n')": 0, "collect('n')": []}
    assert {repr(aggregate): aggregate.empty() for aggregate in EXACT if repr(aggregate) in full} == full
    assert agg.sum("n").empty() is None
    assert agg.top_k("n", 2).empty() is None


@FEW
@given(parts=chunked())
def test_the_same_chunks_give_the_same_parts(parts):
    assert merged(EXACT, *parts).equals(merged(pickle.loads(pickle.dumps(EXACT)), *parts))


def rows(*elements, **columns):
    names = [*columns] or ["n", "__time"]
    values = elements or zip(*columns.values(), strict=True)
    return [
        {**dict.fromkeys(SCHEMA.names()), "key": 0, "__time": 0, **dict(zip(names, v, strict=True))} for v in values
    ]


def only(aggregate, *chunks):
    return results(aggregate, list(chunks), [0] * (len(chunks) - 1))[0]


def test_first_and_last_go_by_event_time_and_then_by_arrival():
    chunks = rows((1, 5), (2, 3), (None, 1)), rows((3, 3), (4, 5)), rows((5, 4))
    assert only(agg.first("n"), *chunks) == 2
    assert only(agg.last("n"), *chunks) == 4


def test_arg_max_takes_the_earliest_of_equals():
    chunks = rows(s="ab", n=[1, 3]), rows(s="cd", n=[3, None])
    assert only(agg.arg_max("s", by="n"), *chunks) == "b"
    assert only(agg.arg_min("s", by="n"), *chunks) == "a"


def test_collect_keeps_the_order_of_arrival_not_of_time():
    assert only(agg.collect("n"), rows((1, 9), (2, 3)), rows((3, 1))) == [1, 2, 3]


def test_nan_is_the_greatest_value():
    values = [float("nan"), 1.0, 7.0]
    assert only(agg.min("f"), rows(f=values)) == 1.0
    for aggregate in (agg.max("f"), agg.percentile("f", 100), agg.sum("f")):
        found = only(aggregate, rows(f=values))
        assert found != found
    assert only(agg.count_distinct("f"), rows(f=values), rows(f=values)) == 3


@pytest.mark.parametrize(("percent", "rank"), [(0.001, 1), (7, 7), (7.01, 8), (29, 29), (57, 57), (58, 58), (100, 100)])
def test_a_percentile_is_the_value_at_the_nearest_rank(percent, rank):
    assert only(agg.percentile("n", percent, low=True), rows(n=range(100, 0, -1))) == rank


@pytest.mark.parametrize("values", [[2**62, 2**62], [-(2**63), -1]])
def test_a_sum_without_room_is_an_error_and_never_another_number(values):
    wide = agg.sum("n")
    with pytest.raises(pl.exceptions.InvalidOperationError, match="i64"):
        only(wide, rows(n=values))
    parts = [partial([wide], rows(n=[value])) for value in values]
    with pytest.raises(pl.exceptions.InvalidOperationError, match="i64"):
        merge([wide], *parts)
    with pytest.raises(OverflowError, match="does not fit into 64 bits"):
        wide.of(rows(n=values))
    assert only(wide, rows(n=[2**62, 2**62 - 1])) == 2**63 - 1


def test_sums_of_narrow_numbers_do_not_overflow():
    assert only(agg.sum("small"), rows(small=[2**31 - 1] * 3)) == 3 * (2**31 - 1)
    assert agg.sum("small").dtype(SCHEMA) == pl.Int64
    assert agg.sum("x").dtype({"x": pl.UInt8()}) == pl.Int64


def test_the_mean_of_many_times_does_not_overflow():
    day = datetime.fromisoformat("2026-05-01T12:00:00+00:00")
    frame = rows(at=[day, day + timedelta(hours=2)] * 5000)
    assert only(agg.mean("at"), frame, frame) == day + timedelta(hours=1)


def test_the_mean_of_days_is_a_time():
    schema = {"key": pl.Int64, "__time": pl.Int64, "day": pl.Date}
    elements = [{"key": 0, "__time": 0, "day": date(2026, 1, day)} for day in (1, 2)]
    mean = agg.mean("day")
    assert results(mean, [elements], [], pl.Schema(schema)) == {0: mean.of(elements)} == {0: datetime(2026, 1, 1, 12)}


@FEW
@example(parts=([[{**rows((1, 1))[0], "f": value} for value in (0.0, 1.0, 2.0)]] * 3, [0, 0]))
@given(parts=chunked())
def test_the_variance_of_values_far_from_zero_is_as_good_as_near_it(parts):
    chunks, joins = parts
    near = results(agg.variance("f"), chunks, joins)
    far = results(agg.variance(pl.col("f") + 1e9), chunks, joins)
    assert far == {
        key: value if value is None else pytest.approx(value, rel=1e-3, abs=1e-3, nan_ok=True)
        for key, value in near.items()
    }


def test_one_group_by_can_hold_aggregates_with_parts_of_the_same_name():
    frame = pl.DataFrame(rows(n=[1, 2], f=[3.0, 6.0]), schema=SCHEMA)
    both = {"x": WEIGHTED_MEAN, "y": SPREAD}
    parts = frame.group_by("key").agg(expr for name, one in both.items() for expr in one.partial(name))
    parts = parts.group_by("key").agg(expr for name, one in both.items() for expr in one.merge(name))
    done = parts.select(one.finish(name).alias(name) for name, one in both.items())
    assert done.to_dicts() == [{"x": 5.0, "y": {"total": 2, "low": 1}}]


def test_a_custom_aggregate_without_merge_keeps_its_rows():
    middle = agg.custom(partial={"m": pl.col("n").median()}, finish=pl.col("m"), name="middle")
    assert (middle.mergeable, agg.count().mergeable, SPREAD.mergeable) == (False, True, True)
    assert results(middle, [rows(n=[1, 2, 9])], []) == {0: 2.0}
    with pytest.raises(DefinitionError, match="middle: was defined without merge"):
        middle.merge("x")


def test_only_the_columns_that_are_read_are_named():
    assert agg.count().columns == ()
    assert agg.first("n").columns == ("n",)
    assert agg.top_k("s", 2, by=pl.col("f") + pl.col("n")).columns == ("s", "f", "n")
    assert WEIGHTED_MEAN.columns == ("f", "n")


@pytest.mark.parametrize(
    "text",
    [
        "count()",
        "count('s')",
        "sum('n')",
        "variance('n')",
        "stddev('n', ddof=0)",
        "first('n')",
        "arg_max('s', 'n')",
        "percentile('n', 99.9)",
        "top_k('s', 3)",
        "top_k('s', 3, by='n')",
        "approx_count_distinct('s')",
        "approx_count_distinct('s', lg_k=10)",
        "approx_percentile('f', 50, compression=100)",
        "most_frequent('s', 3)",
    ],
)
def test_the_repr_can_be_typed_back(text):
    aggregate = eval(f"agg.{text}")
    assert repr(aggregate) == text
    assert eval(f"agg.{aggregate!r}") == aggregate


def test_expressions_are_shown_and_compared():
    assert repr(agg.sum(pl.col("n") * 2)) == f"sum({pl.col('n') * 2})"
    assert repr(SPREAD).startswith("custom(partial={'low': col(\"n\").min(), ")
    assert agg.sum(pl.col("n") * 2) == agg.sum(pl.col("n") * 2) != agg.sum(pl.col("n") * 3)
    assert agg.sum(pl.col("n")) == agg.sum("n") != agg.max("n")
    assert len({agg.sum("n"), agg.sum("n"), agg.max("n")}) == 2


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: agg.sum(3), "sum: expected a column name or a polars expression, got 3"),
        (lambda: agg.sum(""), "sum: expected a column name"),
        (lambda: agg.sum(pl.col("a", "b")), "several columns"),
        (lambda: agg.sum(pl.lit(1)), "reads no column"),
        (lambda: agg.arg_max("a", by=None), "arg_max: by: expected"),
        (lambda: agg.variance("a", ddof=-1), "ddof must be a whole number of at least 0, got -1"),
        (lambda: agg.percentile("a", 0), "percent must be above 0 and at most 100, got 0"),
        (lambda: agg.percentile("a", float("nan")), "got nan"),
        (lambda: agg.percentile("a", 1e-7, low=True), "at least 0.000001, got 1e-07"),
        (lambda: agg.approx_percentile("a", 101), "got 101"),
        (lambda: agg.approx_percentile("a", 50, compression=5), "compression must be a whole number from 10"),
        (lambda: agg.approx_count_distinct("a", lg_k=30), "lg_k must be a whole number from 4 to 21, got 30"),
        (lambda: agg.top_k("a", 0), "k must be a whole number of at least 1, got 0"),
        (lambda: agg.top_k("a", True), "got True"),
        (lambda: agg.most_frequent("a", 1, size=1000), "power of 2, got 1000"),
        (lambda: agg.custom(partial={}, finish=pl.col("a")), "names no parts"),
        (lambda: agg.custom(partial={"a": "n"}, finish=pl.col("a")), "mapping of names to polars expressions"),
        (
            lambda: agg.custom(partial={"a": pl.len()}, merge={}, finish=pl.col("a")),
            "must give the parts a, it gives no",
        ),
        (
            lambda: agg.custom(partial={"a": pl.len()}, finish=pl.col("b"), name="my"),
            "my: finish reads 'b', the parts are a",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_when_defined(define, message):
    with pytest.raises(DefinitionError, match=message):
        define()


def test_a_custom_aggregate_of_python_functions_is_refused():
    with pytest.raises(DefinitionError, match="native polars expressions only"):
        agg.custom(partial={"a": pl.len()}, finish=pl.col("a").map_batches(lambda a: a, return_dtype=pl.Int64))


def test_the_type_of_the_result_is_known_and_impossible_columns_are_refused():
    assert agg.collect("at").dtype(SCHEMA) == pl.List(pl.Datetime("us", "UTC"))
    assert agg.mean("took").dtype(SCHEMA) == pl.Duration("us")
    assert SPREAD.dtype(SCHEMA) == pl.Struct({"total": pl.UInt32, "low": pl.Int64})
    with pytest.raises(DefinitionError, match=r"sum\('z'\): there is no column 'z', only key, n"):
        agg.sum("z").dtype(SCHEMA)
    with pytest.raises(DefinitionError, match=r"sum\('s'\): not possible over s: String"):
        agg.sum("s").dtype(SCHEMA)
    with pytest.raises(DefinitionError, match="wider than 64 bits"):
        agg.sum("x").dtype({"x": pl.UInt64()})


def test_counts_sums_and_means_have_few_parts():
    frame = rows(n=[1])
    assert partial([agg.count()], frame).columns == ["key", "x0.count"]
    assert partial([agg.sum("n")], frame).columns == ["key", "x0.sum"]
    assert partial([agg.mean("n")], frame).columns == ["key", "x0.sum", "x0.count", "x0.type"]
