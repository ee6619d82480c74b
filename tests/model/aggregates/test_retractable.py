"""Retractions: what was retracted leaves no trace in any aggregate, wherever the stream is cut."""

from __future__ import annotations

import pickle

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.aggregates.aggregate_support import (
    ELEMENTS,
    SCHEMA,
    all_results,
    assert_as_of,
    close,
    finish,
    merged,
    over_nothing,
    results,
)
from tidewheel.errors import DefinitionError
from tidewheel.model import aggregates as agg
from tidewheel.model.aggregates.retractable import RetractableRows, Totals, retractable

WEIGHTED = pl.Schema({**SCHEMA, "__weight": pl.Int64()})
PLAIN = [
    agg.count(),
    agg.count("s"),
    *(agg.sum(name) for name in ("n", "small", "f", "b", "took")),
    *(agg.mean(name) for name in ("n", "small", "f", "at")),
    agg.variance("f"),
    agg.min("f"),
    agg.max("at"),
    agg.first("s"),
    agg.last("took"),
    agg.arg_max("s", by="n"),
    agg.arg_min("s", by=pl.col("n") * 2),
    agg.collect("n"),
    agg.count_distinct("f"),
    agg.percentile("n", 50),
    agg.top_k("n", 2),
    agg.top_k("s", 2, by="f"),
    agg.custom(partial={"m": pl.col("n").median()}, finish=pl.col("m")),
]
AGGREGATES = [retractable(aggregate, SCHEMA) for aggregate in PLAIN]


@st.composite
def retracted(draw):
    """Elements and, after some of them, the retraction of one that is still there."""
    rows, live = [], []
    for element in draw(st.lists(ELEMENTS, min_size=1, max_size=16)):
        rows.append({**element, "__weight": 1})
        live.append(element)
        while live and draw(st.booleans()):
            rows.append({**live.pop(draw(st.integers(0, len(live) - 1))), "__weight": -1})
    cuts = sorted(draw(st.sets(st.integers(1, len(rows)), max_size=5)) | {len(rows)})
    chunks = [rows[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]
    joins = [draw(st.integers(0, left - 1)) for left in range(len(chunks) - 1, 0, -1)]
    return chunks, joins, live


@settings(max_examples=40)
@given(case=retracted())
def test_what_was_taken_back_leaves_no_trace(case):
    chunks, joins, live = case
    assert_as_of(AGGREGATES, chunks, joins, WEIGHTED)
    unordered = [one for one in AGGREGATES if one.aggregate.function in ("count", "sum", "min", "max", "distinct")]
    for one, found in zip(unordered, all_results(unordered, chunks, joins, WEIGHTED), strict=True):
        for key, value in found.items():
            assert value == close(one.aggregate.of([row for row in live if row["key"] == key]))


@settings(max_examples=40)
@given(case=retracted())
def test_counts_and_sums_of_parts_add_up(case):
    chunks, _, live = case
    by_chunk = [all_results(AGGREGATES, [chunk], [], WEIGHTED) for chunk in chunks]
    for one, *parts in zip(AGGREGATES, *by_chunk, strict=True):
        for chunk, found in zip(chunks, parts, strict=True):
            for key, value in found.items():
                assert value == close(one.of([row for row in chunk if row["key"] == key]))
        if one.aggregate.function == "count" or (one.aggregate.function == "sum" and isinstance(one, Totals)):
            for key in {row["key"] for row in live}:
                whole = one.aggregate.of([row for row in live if row["key"] == key])
                assert sum(found.get(key) or 0 for found in parts) == (whole or 0)


@settings(max_examples=40)
@given(case=retracted())
def test_when_all_is_taken_back_nothing_is_left(case):
    chunks, joins, live = case
    chunks = [*chunks, *([[{**row, "__weight": -1} for row in live]] if live else [])]
    joins = [*joins, 0] if live else joins
    parts = merged(AGGREGATES, chunks, joins, WEIGHTED)
    done = finish(AGGREGATES, parts)
    for one, found in zip(AGGREGATES, done, strict=True):
        assert found.to_list() == [one.empty()] * len(parts)
    for name in parts.columns:
        if name.endswith(".rows"):
            assert parts[name].list.len().sum() == 0


def rows(*weighted):
    return [{**dict.fromkeys(SCHEMA.names()), "key": 0, "__time": 0, "n": n, "__weight": w} for n, w in weighted]


@pytest.mark.parametrize("cut", range(1, 5))
def test_the_latest_of_equal_elements_is_retracted(cut):
    stream = rows((1, 1), (2, 1), (1, 1), (1, -1), (3, 1))
    one = retractable(agg.collect("n"), SCHEMA)
    assert one.of(stream) == [1, 2, 3]
    assert results(one, [stream[:cut], stream[cut:]], [0], WEIGHTED) == {0: [1, 2, 3]}


def test_a_retraction_is_of_an_element_of_the_same_time():
    stream = rows((1, 1), (1, -1))
    stream[1]["__time"] = 5
    assert results(retractable(agg.collect("n"), SCHEMA), [stream], [], WEIGHTED) == {0: [1]}


def test_a_sum_of_floats_forgets_what_was_too_great_or_endless():
    one = retractable(agg.sum("f"), SCHEMA)
    stream = rows((None, 1), (None, 1), (None, 1), (None, -1), (None, -1))
    for row, value in zip(stream, (1e20, float("inf"), 1.0, 1e20, float("inf")), strict=True):
        row["f"] = value
    assert results(one, [stream[:2], stream[2:]], [0], WEIGHTED) == {0: 1.0}


def test_whole_numbers_are_kept_as_totals_and_others_as_rows():
    totals = {repr(one.aggregate) for one in AGGREGATES if isinstance(one, Totals)}
    assert totals == {"count()", "count('s')", "sum('n')", "sum('small')", "sum('b')", "mean('small')"}
    assert all(isinstance(one, Totals) != isinstance(one, RetractableRows) for one in AGGREGATES)


@pytest.mark.parametrize("one", AGGREGATES, ids=repr)
def test_no_elements_give_the_empty_result(one):
    assert one.of([]) == one.empty() == one.aggregate.empty()
    assert over_nothing(one, WEIGHTED) == one.empty()
    assert one.columns == one.aggregate.columns
    assert repr(pickle.loads(pickle.dumps(one))) == repr(one) == repr(one.aggregate)


@pytest.mark.parametrize(
    ("sketch", "exact"),
    [
        (agg.approx_count_distinct("n"), "count_distinct"),
        (agg.approx_percentile("n", 5), "percentile"),
        (agg.most_frequent("n", 5), "collect"),
    ],
)
def test_a_sketch_is_refused(sketch, exact):
    with pytest.raises(DefinitionError, match=rf"cannot retract what it has counted; use the exact {exact}\("):
        retractable(sketch, SCHEMA)
