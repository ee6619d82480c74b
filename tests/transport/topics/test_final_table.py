"""What topics of results come to in the end, and how they differ."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from tidewheel.errors import DefinitionError
from tidewheel.transport.events.codec import encode_columns, punctuation
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.materialize import compare, materialize
from tidewheel.transport.topics.types import publish_types

INSTANT = pa.timestamp("us", "UTC")
PANES = pa.schema(
    {"cell": pa.string(), "window_start": INSTANT, "window_end": INSTANT, "n": pa.int64(), "mean": pa.float64(),
     "pane_index": pa.int64(), "retraction": pa.bool_()}
)  # fmt: skip
ROWS = pa.schema({"cell": pa.string(), "n": pa.int64()})


@pytest.fixture
def log(tmp_path):
    with open_log(tmp_path / "test.tw") as log:
        yield log


def put(log, topic, schema, rows, times):
    made = TypeRegistry()
    kind = define_message(made, topic, schema)
    publish_types(log, made, [kind])
    columns = pa.Table.from_pylist(rows, schema=schema).combine_chunks().to_batches()[0]
    at = pa.array([time * 1_000_000 for time in times], pa.int64()).cast(INSTANT)
    keys = [row["cell"].encode() for row in rows]
    log.append(topic, records(encode_columns(kind, columns, event_time=at, registry=made), keys=keys, event_times=at))


def panes(log, topic, *given, mark=None):
    """Results of windows of ten seconds: (cell, start, n) or (cell, start, n, retraction)."""
    rows = []
    for number, (cell, start, n, *taken_back) in enumerate(given):
        bounds = {"window_start": start * 1_000_000, "window_end": (start + 10) * 1_000_000}
        rows.append(
            {"cell": cell, **bounds, "n": n, "mean": n / 3, "pane_index": number, "retraction": bool(taken_back)}
        )
    put(log, topic, PANES, rows, [start + 9 for _, start, *_ in given])
    if mark is not None:
        log.append(topic, punctuation(mark * 1_000_000))


def counts(table):
    return {(row["key"], row["window_start"].timestamp()): row["n"] for row in table.rows.to_dicts()}


def test_the_last_result_of_a_window_counts(log):
    panes(log, "a", ("x", 0, 1), ("y", 0, 5), ("x", 0, 2), ("x", 10, 7))
    panes(log, "a", ("y", 0, 6))
    table = materialize(log, "a")
    assert counts(table) == {("x", 0.0): 2, ("y", 0.0): 6, ("x", 10.0): 7}
    assert table.until is None


def test_what_was_taken_back_is_not_there(log):
    panes(log, "a", ("x", 0, 1), ("x", 0, 1, True), ("x", 0, 2), ("y", 0, 5), ("y", 0, 5, True))
    assert counts(materialize(log, "a")) == {("x", 0.0): 2}


def test_tables_are_equal_however_they_came_about(log):
    panes(log, "a", ("x", 0, 1), ("x", 0, 2), ("y", 0, 5))
    panes(log, "b", ("y", 0, 5), ("x", 0, 2))
    found = compare(materialize(log, "a"), materialize(log, "b"))
    assert found.equal
    assert (found.same, found.open) == (2, 0)


def test_what_differs_is_reported(log):
    panes(log, "a", ("x", 0, 1), ("y", 0, 5), ("z", 0, 3))
    panes(log, "b", ("x", 0, 2), ("y", 0, 5), ("w", 0, 3), ("w", 10, 3))
    found = compare(materialize(log, "a"), materialize(log, "b"))
    assert not found.equal
    assert found.same == 1
    assert found.only_first["key"].to_list() == ["z"]
    assert found.only_second["key"].to_list() == ["w", "w"]
    assert found.changed.select("key", "n", "n_other").rows() == [("x", 1, 2)]


def test_windows_that_are_not_over_in_both_are_left_out(log):
    panes(log, "a", ("x", 0, 1), ("x", 10, 4), mark=15)
    panes(log, "b", ("x", 0, 1), ("x", 10, 9), ("x", 20, 9))
    found = compare(materialize(log, "a"), materialize(log, "b"))
    assert found.equal
    assert (found.same, found.open) == (1, 3)


def test_tables_of_which_nothing_was_compared_are_not_equal(log):
    panes(log, "a", *(("x", start, 1) for start in range(0, 100, 10)), mark=100)
    log.append("b", punctuation(5_000_000))
    found = compare(materialize(log, "a"), materialize(log, "b"))
    assert (found.same, found.open, found.behind) == (0, 10, 10)
    assert not found.equal


def test_what_is_over_in_the_first_but_not_yet_in_the_second_is_counted(log):
    panes(log, "a", ("x", 0, 1), ("x", 10, 4), ("x", 20, 4), mark=25)
    panes(log, "b", ("x", 0, 1), mark=15)
    panes(log, "c", ("x", 0, 1), ("x", 10, 4), mark=45)
    behind = compare(materialize(log, "a"), materialize(log, "b"))
    assert (behind.equal, behind.same, behind.open, behind.behind) == (True, 1, 2, 1)
    assert compare(materialize(log, "b"), materialize(log, "a")).behind == 0
    assert compare(materialize(log, "a"), materialize(log, "c")).behind == 0


def test_a_second_table_is_behind_one_that_is_complete(log):
    panes(log, "a", ("x", 0, 1), ("x", 10, 4))
    panes(log, "b", ("x", 0, 1), mark=15)
    assert compare(materialize(log, "a"), materialize(log, "b")).behind == 1


def test_the_last_digits_of_fractions_do_not_matter_but_others_do(log):
    for topic, mean in (("a", 0.1 + 0.2), ("b", 0.3), ("c", 0.3001)):
        row = {
            "cell": "x",
            "window_start": 0,
            "window_end": 1,
            "n": 1,
            "mean": mean,
            "pane_index": 0,
            "retraction": False,
        }
        put(log, topic, PANES, [row], [0])
    assert compare(materialize(log, "a"), materialize(log, "b")).equal
    assert compare(materialize(log, "a"), materialize(log, "c")).changed.height == 1


def test_nor_do_they_in_results_without_windows(log):
    schema = pa.schema({"cell": pa.string(), "mean": pa.float64()})

    def put_means(topic, *means):
        put(log, topic, schema, [{"cell": "x", "mean": mean} for mean in means], [1] * len(means))

    put_means("a", 0.1 + 0.2, 7.0, 5.0, None, 0.3)
    put_means("b", 5.0, 0.3, None, 0.3, 7.0 + 1e-15)
    put_means("c", 5.0, 0.3, None, 0.3001, 7.0)
    found = compare(materialize(log, "a"), materialize(log, "b"))
    assert (found.equal, found.same) == (True, 5)
    found = compare(materialize(log, "a"), materialize(log, "c"))
    assert found.same == 4
    assert (found.only_first.height, found.only_second["mean"].to_list()) == (1, [0.3001])


def test_results_without_windows_are_compared_row_by_row(log):
    put(log, "a", ROWS, [{"cell": "x", "n": 1}, {"cell": "x", "n": 1}, {"cell": "y", "n": None}], [1, 1, 2])
    put(log, "b", ROWS, [{"cell": "y", "n": None}, {"cell": "x", "n": 1}, {"cell": "y", "n": 2}], [2, 1, 2])
    found = compare(materialize(log, "a"), materialize(log, "b"))
    assert found.same == 2
    assert found.only_first.select("key", "n").rows() == [("x", 1)]
    assert found.only_second.select("key", "n").rows() == [("y", 2)]
    assert not found.equal


def test_a_column_that_only_one_has_is_a_difference(log):
    put(log, "a", ROWS, [{"cell": "x", "n": 1}], [1])
    put(log, "b", pa.schema({"cell": pa.string(), "m": pa.int64()}), [{"cell": "x", "m": 1}], [1])
    found = compare(materialize(log, "a"), materialize(log, "b"))
    assert found.columns == ("m", "n")
    assert not found.equal


def test_an_empty_topic_has_an_empty_table(log):
    log.create_topic("a")
    panes(log, "b", ("x", 0, 1))
    assert materialize(log, "a").rows.is_empty()
    found = compare(materialize(log, "a"), materialize(log, "b"))
    assert (found.same, found.only_second.height, found.equal) == (0, 1, False)
    assert compare(materialize(log, "a"), materialize(log, "a")).equal


def test_a_topic_with_nothing_but_a_watermark_has_an_empty_table(log):
    log.append("a", punctuation(50_000_000))
    panes(log, "b", ("x", 0, 1), mark=50)
    found = compare(materialize(log, "a"), materialize(log, "b"))
    assert (found.same, found.only_second.height, found.equal) == (0, 1, False)
    assert compare(materialize(log, "a"), materialize(log, "a")).equal


def test_windows_and_rows_cannot_be_compared(log):
    panes(log, "a", ("x", 0, 1))
    put(log, "b", ROWS, [{"cell": "x", "n": 1}], [1])
    with pytest.raises(DefinitionError, match="a holds results of windows and b does not"):
        compare(materialize(log, "a"), materialize(log, "b"))


def test_tables_keep_the_types_of_their_columns(log):
    panes(log, "a", ("x", 0, 1))
    assert materialize(log, "a").rows.schema["n"] == pl.Int64
