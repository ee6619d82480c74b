from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import DefinitionError
from tidewheel.model.key_hash import hash_of, key_hash

GOLDEN = {
    (): 12716208069505033823,
    ("550",): 10798977071219476494,
    ("",): 5019431276600640787,
    (None,): 11211092207080310765,
    (5,): 10072221820023722738,
    (-9223372036854775808,): 14805188813540438344,
    (1.5,): 5641055398697142376,
    (float("inf"),): 12180333646728131846,
    (True,): 9034189051475541876,
    (b"\xff\x00",): 5704237265848397187,
    (datetime(2026, 1, 31, 12, 0),): 796473658269410995,
    (date(2026, 1, 31),): 9655784824491303481,
    (time(12, 30),): 6607986335351397022,
    (timedelta(days=-1, seconds=86399),): 9773316313773182616,
    ("HSL", 22, 1045): 12926406936528515412,
}


def hashes(values, dtype=None):
    return key_hash(pl.DataFrame({"k": pl.Series(values, dtype=dtype)}), ["k"]).to_list()


@pytest.mark.parametrize(("key", "number"), GOLDEN.items(), ids=repr)
def test_the_hash_of_a_key_never_changes(key, number):
    assert hash_of(key) == number


def test_integer_widths_do_not_matter():
    kinds = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]
    assert {hashes([5], kind)[0] for kind in kinds} == {hash_of((5,))}


def test_units_of_time_do_not_matter():
    moment = datetime(2026, 3, 29, 1, 2, 3, 4_000)
    found = {hashes([moment], pl.Datetime(unit))[0] for unit in ("ms", "us", "ns")}
    assert found == {hash_of((moment,)), hash_of((moment.replace(tzinfo=timezone.utc),))}


def test_categories_hash_as_their_text():
    assert hashes(["a"], pl.Categorical) == hashes(["a"], pl.Enum(["b", "a"])) == [hash_of(("a",))]


def test_nulls_are_keys_of_their_own_whatever_the_type():
    for kind in (pl.String, pl.Int64, pl.Float64, pl.Boolean, pl.Binary, pl.Datetime("us"), pl.Null):
        assert hashes([None], kind) == [hash_of((None,))]
    assert len({hash_of((value,)) for value in (None, "", 0, "null")}) == 4


def test_minus_zero_is_zero_and_every_nan_is_one():
    assert hash_of((-0.0,)) == hash_of((0.0,))
    assert hash_of((float("nan"),)) == hash_of((-float("nan"),))


def test_the_place_of_a_value_in_the_key_matters():
    assert len({hash_of(key) for key in [("a", "b"), ("b", "a"), ("ab", ""), ("ab",), ("a", None), (None, "a")]}) == 6


def test_nested_values_are_refused_as_keys():
    with pytest.raises(DefinitionError, match=r"key column 'k' is of type List\(Int64\), which cannot be a key"):
        hashes([[1]])


def test_keys_spread_evenly_over_key_groups():
    numbers = key_hash(pl.DataFrame({"k": range(10_000)}), ["k"])
    sizes = (numbers % 16).value_counts()["count"]
    assert sizes.min() > 500
    assert sizes.max() < 750


scalars = st.one_of(
    st.none(),
    st.text(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.binary(),
    st.datetimes(),
    st.dates(),
    st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    st.times(),
)


@given(st.lists(scalars, max_size=4))
def test_one_key_hashes_as_its_row_does(values):
    frame = pl.DataFrame({"row": [0], **{f"c{place}": [value] for place, value in enumerate(values)}})
    assert hash_of(tuple(values)) == key_hash(frame, frame.columns[1:])[0]


def test_golden_keys_have_every_type():
    assert {type(value) for key in GOLDEN for value in key} >= {
        str, int, float, bool, bytes, datetime, date, time, timedelta, type(None),
    }  # fmt: skip
