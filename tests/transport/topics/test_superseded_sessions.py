"""What a session that grew was before is not in the final table; windows that lie within each other otherwise are."""

from __future__ import annotations

from itertools import count

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.transport.events.codec import encode_columns
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics import materialize as tables
from tidewheel.transport.topics.materialize import compare, materialize
from tidewheel.transport.topics.superseded_sessions import without_superseded
from tidewheel.transport.topics.types import publish_types

INSTANT = pa.timestamp("us", "UTC")
PANES = pa.schema(
    {"window_start": INSTANT, "window_end": INSTANT, "n": pa.int64(), "pane_last": pa.bool_(),
     "retraction": pa.bool_()}
)  # fmt: skip
MADE = TypeRegistry()
KIND = define_message(MADE, "grown.pane", PANES)
NUMBERS = count()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    with open_log(tmp_path_factory.mktemp("grown") / "test.tw") as log:
        publish_types(log, MADE, [KIND])
        yield log


def put(log, *blocks):
    """A topic with these blocks of rows (key, start, end, and perhaps `last`, `back`)."""
    topic = f"t{next(NUMBERS)}"
    number = count()
    for block in blocks:
        rows = [
            {"window_start": start, "window_end": end, "n": next(number), "pane_last": "last" in more,
             "retraction": "back" in more}
            for _, start, end, *more in block
        ]  # fmt: skip
        columns = pa.Table.from_pylist(rows, schema=PANES).combine_chunks().to_batches()[0]
        at = pa.array([0] * len(rows), INSTANT)
        values = encode_columns(KIND, columns, event_time=at, registry=MADE)
        log.append(topic, records(values, keys=[row[0].encode() for row in block], event_times=at))
    return topic


def table(log, topic, **options):
    """{(key, start, end): the number of the row}"""
    rows = materialize(log, topic, **options).rows.with_columns(
        pl.col("window_start", "window_end").dt.epoch("us").fill_null(-1)
    )
    return {(key, start, end): n for key, start, end, n in rows.select("key", *tables._WINDOW, "n").rows()}


def test_a_session_that_grew_is_what_it_has_become(log):
    topic = put(log, [("a", 0, 10), ("a", 20, 30), ("b", 0, 10), ("a", 0, 30), ("a", 0, 40), ("a", 50, 60)])
    assert table(log, topic) == {("b", 0, 10): 2, ("a", 0, 40): 4, ("a", 50, 60): 5}


def test_with_nested_windows_all_of_them_count(log):
    one = put(log, [("a", 0, 10), ("a", 10, 20), ("a", 0, 20)])
    two = put(log, [("a", 0, 20), ("a", 0, 10), ("a", 10, 20)])
    assert len(table(log, one, nested=True)) == 3
    assert not compare(materialize(log, one), materialize(log, two)).equal
    both = [materialize(log, topic, nested=True).rows.select("key", *tables._WINDOW) for topic in (one, two)]
    assert both[0].sort("window_start", "window_end").equals(both[1].sort("window_start", "window_end"))


def test_what_comes_after_the_larger_window_has_not_grown_into_it(log):
    topic = put(log, [("a", 0, 10), ("a", 0, 20), ("a", 0, 10), ("a", 5, 10)])
    assert table(log, topic) == {("a", 0, 20): 1, ("a", 0, 10): 2, ("a", 5, 10): 3}


def test_what_grew_into_a_result_that_was_taken_back_does_not_come_again(log):
    topic = put(log, [("a", 0, 10)], [("a", 0, 20)], [("a", 0, 20, "back")], [("b", 0, 5)])
    assert table(log, topic) == {("b", 0, 5): 3}


def test_a_last_result_that_another_row_replaced_does_not_come_again_when_a_larger_window_follows(log):
    for kind in ("back", ""):
        topic = put(log, [("a", 0, 10, "last")], [("a", 0, 10, kind), ("a", 0, 20)])
        assert table(log, topic) == {("a", 0, 20): 2}


def test_a_result_that_was_the_last_of_its_window_has_not_grown(log):
    counted = [("a", 1, 2, "last"), ("a", 1, 7, "last"), ("a", 2, 4), ("a", 0, 9)]
    assert table(log, put(log, counted)) == {("a", 1, 2): 0, ("a", 1, 7): 1, ("a", 0, 9): 3}


def test_windows_without_bounds_hold_all_others(log):
    topic = put(log, [("a", 0, 10), ("a", None, 20), ("b", 0, 10), ("a", None, None)])
    assert table(log, topic) == {("a", -1, -1): 3, ("b", 0, 10): 2}


def test_many_windows_of_few_keys_are_no_matter():
    # Each session grows five times; and hours within days, which begin before them and come after them.
    size = 20_000
    grows = pl.DataFrame({"key": ["a"] * 5 * size, "n": range(5 * size)}).with_columns(
        window_start=pl.col("n") // 5 * 100, window_end=pl.col("n") // 5 * 100 + pl.col("n") % 5 * 10 + 10
    )
    assert without_superseded(grows, "key")["n"].to_list() == list(range(4, 5 * size, 5))
    days = pl.DataFrame({"key": ["a"] * size, "n": range(size)}).with_columns(
        window_start=pl.col("n") * 240, window_end=pl.col("n") * 240 + 300
    )
    hours = days.with_columns(pl.col("window_end") - 290)
    both = pl.concat([days, hours])
    assert without_superseded(both, "key").height == 2 * size
    assert without_superseded(both.reverse(), "key").equals(days.reverse())


ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from([None, *range(5)]),
        st.sampled_from([None, 5, 6, 7, 9]),
        st.sampled_from(["last", "back", "", "", ""]),
    ),
    max_size=14,
)


def expected(rows):
    """The same in plain words: the last row of each window, if it is a result, unless a row of a window around it came
    later; a row that is the last of its window stands."""
    latest = {row[:3]: (place, row[3]) for place, row in enumerate(rows)}

    def within(small, large):
        starts = [float("-inf") if bounds[1] is None else bounds[1] for bounds in (large, small)]
        ends = [float("inf") if bounds[2] is None else bounds[2] for bounds in (small, large)]
        return small[0] == large[0] and small != large and starts == sorted(starts) and ends == sorted(ends)

    return {
        tuple(-1 if part is None else part for part in window): place
        for window, (place, kind) in latest.items()
        if kind != "back"
        and (kind == "last" or not any(within(window, other) and latest[other][0] > place for other in latest))
    }


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, cuts=st.sets(st.integers(1, 13), max_size=6), most=st.integers(1, 4))
def test_the_table_is_that_of_a_plain_reading_however_the_rows_are_cut_into_blocks(log, rows, cuts, most):
    ends = sorted(cut for cut in cuts if cut < len(rows))
    blocks = [rows[start:end] for start, end in zip([0, *ends], [*ends, len(rows)], strict=True)]
    topic = put(log, *(block for block in blocks if block)) if rows else None
    if topic is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_MOST_FRAMES", most)
        assert table(log, topic) == expected(rows)
