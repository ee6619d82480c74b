"""The last hour by key: what is kept, what leaves, what it takes."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.serve.view.history import HOUR, History

MINUTE = 60_000_000


def rows(*each):
    names = ["@k", "@t", "@arrival", "@back", "v"]
    return pl.DataFrame(
        [dict(zip(names, row, strict=True)) for row in each],
        schema={"@k": pl.String, "@t": pl.Int64, "@arrival": pl.Int64, "@back": pl.Boolean, "v": pl.Int64},
    )


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.booleans(), st.integers(0, 9)), max_size=40))
def test_of_results_with_the_same_time_the_last_counts_unless_it_was_retracted(results):
    history = History(limit=1 << 20)
    wanted = {}
    for number, (key, time, back, value) in enumerate(results):
        history.add("layer", rows((key, time, number * MINUTE, back, value)))  # packed at every second one
        wanted[key, time] = None if back else value
    for key in "abc":
        expected = [(time, value) for (k, time), value in sorted(wanted.items()) if k == key and value is not None]
        assert history.of("layer").of_key(key).select("@t", "v").rows() == expected if expected else True
        assert history.of("layer").of_key(key).height == len(expected)
    assert history.of("layer").all(since=3).height == sum(v is not None for (_, t), v in wanted.items() if t >= 3)


def test_a_stretch_of_event_time_can_be_asked_for():
    history = History(limit=1 << 20)
    history.add("layer", rows(*(("a", n, n, False, n) for n in range(10))))
    assert history.of("layer").of_key("a", since=3, until=5)["v"].to_list() == [3, 4, 5]


def test_what_is_older_than_an_hour_leaves():
    history = History(limit=1 << 20)
    for minute in range(90):
        history.add("layer", rows(("a", minute, minute * MINUTE, False, minute)))
    history.trim(now=90 * MINUTE)
    kept = history.of("layer").of_key("a")["v"].to_list()
    assert kept[-1] == 89
    assert 90 - HOUR // MINUTE - 2 <= kept[0] <= 90 - HOUR // MINUTE
    assert history.rows == len(kept)


def test_the_limit_holds_for_all_layers_together_and_the_oldest_leave_first():
    history = History(limit=40_000)
    for number in range(40):
        block = rows(*((str(key), number, number * MINUTE, False, key) for key in range(500)))
        history.add("one" if number % 2 else "two", block)
        history.trim(now=number * MINUTE)
        assert history.packed_bytes <= 40_000
    assert history.packed_bytes > 10_000
    oldest = [history.of(layer).of_key("7")["@t"].min() for layer in ("one", "two")]
    assert all(time > 0 for time in oldest)
    assert abs(oldest[0] - oldest[1]) <= 4
    history.clear("one")
    history.clear("two")
    assert (history.rows, history.packed_rows, history.packed_bytes) == (0, 0, 0)


def test_what_nothing_follows_is_packed_and_leaves_too():
    history = History(limit=1 << 20)
    history.add("layer", rows(("a", 1, 1, False, 1)))
    history.trim(now=MINUTE)
    assert (history.rows, history.packed_rows) == (1, 0)
    history.trim(now=3 * MINUTE)
    assert (history.rows, history.packed_rows) == (1, 1)
    history.trim(now=HOUR + 2)
    assert (history.rows, history.packed_rows) == (0, 0)


def test_rows_of_two_types_stand_side_by_side():
    history = History(limit=1 << 20)
    history.add("layer", rows(("a", 1, 1, False, 1)))
    history.add("layer", rows(("a", 2, 2, False, 2)).with_columns(other=pl.lit("x")))
    history.add("layer", rows(("a", 3, 2 * MINUTE, False, 3)))
    assert history.packed_rows == 3
    assert history.of("layer").of_key("a")["other"].to_list() == [None, "x", None]


def test_vehicles_take_few_bytes_each():
    """An hour of 700 positions a second is 2.5 million: at this size they take some 60 MB."""
    history = History(limit=1 << 30)
    count = 60_000
    numbers = pl.int_range(count, eager=True)
    frame = pl.DataFrame(
        {
            "@k": (numbers % 700).cast(pl.String),
            "@t": numbers * 1_430,
            "@arrival": numbers * 1_430,
            "@back": False,
            "lat": 60.0 + (numbers * 7_919 % 100_003) / 1e6,
            "lon": 24.0 + (numbers * 104_729 % 100_019) / 1e6,
            "speed": (numbers * 31 % 200) / 10,
            "mode": "bus",
            "route": (numbers % 50).cast(pl.String),
        }
    )
    for part in frame.iter_slices(1_000):
        history.add("vehicles", part)
    assert history.packed_rows >= count - 30_000
    assert history.packed_bytes / history.packed_rows < 40
