"""The texts by which checkpoints know expressions: the same for ever, and another for every other expression."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import polars as pl
import pytest

from tests.support.expression_corpus import EXPRESSIONS, TEXTS, differing
from tidewheel.model.expressions.text import dtype_text, expression_text

c = pl.col


def test_texts_are_what_they_were():
    """With the lowest and the newest polars, too: tests/support/package_smoke.py asks the same."""
    assert differing() == {}
    assert {*json.loads(TEXTS.read_text())} == {*EXPRESSIONS}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (c("a") > 5, c("a") > 6),
        (c("a") > 5, c("a") > 5.0),
        (c("a") > 5, c("A") > 5),
        (c("a") > 5, c("a") > "5"),
        (c("a") > 5, c("a") >= 5),
        (c("a") > pl.lit(5, pl.Int8), c("a") > pl.lit(5, pl.Int16)),
        (c("a") - (c("b") - c("c")), (c("a") - c("b")) - c("c")),
        (c("a") > float("inf"), c("a") > float("nan")),
        (c("a") > float("inf"), c("a") > float("-inf")),
        (c("s").struct.field("x"), c("s").struct.field("X")),
        (c("s").str.to_lowercase(), c("s").str.to_uppercase()),
        (c("s").str.contains("a"), c("s").str.contains("a", literal=True)),
        (c("s").str.to_datetime("%Y"), c("s").str.to_datetime("%y")),
        (c("t").dt.convert_time_zone("Europe/Helsinki"), c("t").dt.convert_time_zone("Europe/Berlin")),
        (c("t").dt.to_string("Hour"), c("t").dt.to_string("hour")),
        (c("t") > datetime(2026, 1, 1), c("t") > datetime(2026, 1, 1, tzinfo=timezone.utc)),
        (c("t") > timedelta(milliseconds=1), c("t") > timedelta(microseconds=1)),
        (c("a").is_in([1, 2]), c("a").is_in([1, 3])),
        (c("a").is_in([1, 2]), c("a").is_in(["1", "2"])),
        (c("a").is_in(list(range(1_000))), c("a").is_in([*range(999), 7])),
        (c("a").fill_null(strategy="forward"), c("a").fill_null(strategy="backward")),
        (c("a").cast(pl.Int8), c("a").cast(pl.Int8, strict=False)),
        (c("a").cast(pl.Datetime("us")), c("a").cast(pl.Datetime("us", "UTC"))),
        (c("a").cast(pl.Enum(["x", "y"])), c("a").cast(pl.Enum(["x", "z"]))),
        (c("a").sum().over("k"), c("a").sum().over("l")),
        (c("a").replace({1: 2}), c("a").replace({1: 3})),
        (c("a").alias("b"), c("a").alias("c")),
    ],
)
def test_another_expression_has_another_text(one, other):
    assert expression_text(one) != expression_text(other)


def test_they_read_like_what_was_written():
    fast = (c("speed") * 3.6 > 50) & ~c("door").is_null()
    assert expression_text(fast) == '((col("speed") * 3.6) > 50) & col("door").is_null().not_()'
    assert expression_text(pl.when(c("a")).then(1).otherwise(None)) == 'when(col("a")).then(1).otherwise(None)'
    assert dtype_text(pl.Struct({"a": pl.List(pl.Int8)})) == "Struct(a: List(Int8))"


def test_a_function_of_python_s_has_no_address_in_its_text():
    def doubled(values):
        return 2 * values

    text = expression_text(c("a").map_batches(doubled, return_dtype=pl.Int64) > 3)
    assert text == expression_text(c("a").map_batches(doubled, return_dtype=pl.Int64) > 3)
    assert "0x" not in text
    assert "python" in text
