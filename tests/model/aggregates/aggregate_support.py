"""Random elements, cut into chunks that are aggregated apart and merged in any shape of tree."""

from __future__ import annotations

import io
from datetime import datetime, timedelta

import polars as pl
import pytest
from hypothesis import strategies as st

SCHEMA = pl.Schema(
    {
        "key": pl.Int64(),
        "n": pl.Int64(),
        "small": pl.Int32(),
        "f": pl.Float64(),
        "s": pl.String(),
        "b": pl.Boolean(),
        "at": pl.Datetime("us", "UTC"),
        "took": pl.Duration("us"),
        "__time": pl.Int64(),
    }
)
FLOATS = st.floats(-1000, 1000).map(lambda value: round(value, 3) + 0.0) | st.just(float("nan"))


def maybe(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | values


ELEMENTS = st.fixed_dictionaries(
    {
        "key": st.integers(0, 2),
        "n": maybe(st.integers(-5, 5)),
        "small": maybe(st.integers(2**31 - 5, 2**31 - 1)),
        "f": maybe(FLOATS),
        "s": maybe(st.sampled_from(["", "a", "b", "ä", "long enough to be kept elsewhere"])),
        "b": maybe(st.booleans()),
        "at": maybe(
            st.integers(0, 10**10).map(
                lambda us: datetime.fromisoformat("2026-01-01T00:00:00+00:00") + timedelta(microseconds=us)
            )
        ),
        "took": maybe(st.integers(-(10**9), 10**9).map(lambda us: timedelta(microseconds=us))),
        "__time": st.integers(0, 6),
    }
)


@st.composite
def chunked(draw, elements=ELEMENTS, max_size=24):
    """Elements in the order of arrival, as non-empty chunks, and the order in which neighbours are merged."""
    rows = draw(st.lists(elements, min_size=1, max_size=max_size))
    cuts = sorted(draw(st.sets(st.integers(1, len(rows)), max_size=5)) | {len(rows)})
    chunks = [rows[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]
    joins = [draw(st.integers(0, left - 1)) for left in range(len(chunks) - 1, 0, -1)]
    return chunks, joins


def _every(aggregates, method) -> list[pl.Expr]:
    return [expr for place, aggregate in enumerate(aggregates) for expr in getattr(aggregate, method)(f"x{place}")]


def partial(aggregates, rows, schema=SCHEMA) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=schema)
    return frame.group_by("key", maintain_order=True).agg(_every(aggregates, "partial"))


def merge(aggregates, *parts: pl.DataFrame) -> pl.DataFrame:
    return pl.concat(parts).group_by("key", maintain_order=True).agg(_every(aggregates, "merge"))


def finish(aggregates, parts: pl.DataFrame) -> pl.DataFrame:
    return parts.select(aggregate.finish(f"x{place}").alias(f"x{place}") for place, aggregate in enumerate(aggregates))


def shipped(parts: pl.DataFrame) -> pl.DataFrame:
    """As it comes out of Arrow's IPC format, of polars and of Arrow itself."""
    buffer = io.BytesIO()
    parts.write_ipc(buffer)
    buffer.seek(0)
    back = pl.read_ipc(buffer)
    assert back.schema == parts.schema
    return pl.from_arrow(back.to_arrow())


def merged(aggregates, chunks, joins, schema=SCHEMA) -> pl.DataFrame:
    parts = [shipped(partial(aggregates, chunk, schema)) for chunk in chunks]
    for place in joins:
        parts[place : place + 2] = [merge(aggregates, *parts[place : place + 2])]
    return shipped(parts[0])


def results(aggregate, chunks, joins, schema=SCHEMA) -> dict:
    [found] = all_results([aggregate], chunks, joins, schema)
    return found


def all_results(aggregates, chunks, joins, schema=SCHEMA) -> list[dict]:
    """Of each aggregate, its results by key; all of them in one go, which takes little longer than one."""
    parts = merged(aggregates, chunks, joins, schema)
    return [dict(zip(parts["key"], found.to_list(), strict=True)) for found in finish(aggregates, parts)]


def close(value):
    """Equal but for rounding: a millionth, or a microsecond."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-9, abs=1e-6, nan_ok=True)
    if isinstance(value, datetime | timedelta):
        return pytest.approx(value, abs=timedelta(microseconds=1))
    if isinstance(value, list):
        return [close(item) for item in value]
    if isinstance(value, dict):
        return {name: close(item) for name, item in value.items()}
    return value


def assert_as_of(aggregates, chunks, joins, schema=SCHEMA) -> None:
    parts = merged(aggregates, chunks, joins, schema)
    done = finish(aggregates, parts)
    rows = [row for chunk in chunks for row in chunk]
    for aggregate, found in zip(aggregates, done, strict=True):
        assert found.dtype == aggregate.dtype(schema), aggregate
        for key, value in zip(parts["key"], found.to_list(), strict=True):
            assert value == close(aggregate.of([row for row in rows if row["key"] == key])), (aggregate, key)


def over_nothing(aggregate, schema=SCHEMA):
    """The result of parts that are all null, as an outer join leaves them."""
    parts = partial([aggregate], [], schema).drop("key")
    nulls = pl.DataFrame({name: pl.Series([None], dtype=kind) for name, kind in parts.schema.items()})
    [value] = finish([aggregate], nulls)["x0"].to_list()
    if aggregate.function != "custom":  # whose merging is the user's
        assert finish([aggregate], merge([aggregate], nulls.with_columns(key=1)))["x0"].to_list() == [value]
    return value
