"""A hash of keys that stays the same: over processes, machines, integer widths and versions of polars.

Where a key's state lies depends on it, so it must never change: the golden values are in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import polars_hash

from tidewheel.errors import DefinitionError

__all__ = ["hash_of", "key_hash"]

_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
_NULL = np.uint64(0x165667B19E3779F9)
_CANONICAL_NAN = np.uint64(0x7FF8000000000000)


def key_hash(frame: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """The hash of each row's key. No columns: one and the same for all rows.

    >>> key_hash(pl.DataFrame({"line": ["550", None]}), ["line"]).to_list()
    [10798977071219476494, 11211092207080310765]
    """
    total = np.full(frame.height, _SEED, dtype=np.uint64)
    for name in columns:
        total = total * _FACTOR + _column_hash(frame.get_column(name))
    # The low bits decide the key group, so they must depend on all the others.
    total = (total ^ (total >> np.uint64(29))) * _FACTOR
    return pl.Series("key_hash", total ^ (total >> np.uint64(32)), dtype=pl.UInt64)


def hash_of(key: tuple[Any, ...]) -> int:
    """Hash one key: the number that `key_hash` gives for columns of its values.

    >>> hash_of(("550",))
    10798977071219476494
    """
    return _hash_of(*key)


@lru_cache(maxsize=65_536, typed=True)  # typed, because 1, 1.0 and True are equal but not the same key
def _hash_of(*key: Any) -> int:
    frame = pl.DataFrame([pl.Series(str(place), [value]) for place, value in enumerate(key)])
    if not key:
        frame = pl.DataFrame({"": [None]})
    return int(key_hash(frame, frame.columns if key else [])[0])


def _column_hash(column: pl.Series) -> npt.NDArray[np.uint64]:
    text = _plain(column)
    hashes = text.to_frame("key").select(polars_hash.col("key").nchash.xxhash64()).to_series()
    known = hashes.fill_null(0).to_numpy()
    return np.where(column.is_null().to_numpy(), _NULL, known)


def _plain(column: pl.Series) -> pl.Series:
    """The column as text or bytes. The spelling of a number decides its hash, so only whole numbers are left to
    polars."""
    kind = column.dtype
    if kind in (pl.String, pl.Binary):
        return column
    if kind.is_integer():
        return column.cast(pl.String)
    if kind.is_float():
        values = column.cast(pl.Float64).fill_null(0.0).to_numpy()
        bits = np.where(np.isnan(values), _CANONICAL_NAN, (values + 0.0).view(np.uint64))  # + 0.0: -0.0 is 0.0
        return pl.Series(bits, dtype=pl.UInt64).cast(pl.String)
    if kind == pl.Boolean:
        return column.cast(pl.UInt8).cast(pl.String)
    if kind == pl.Datetime:
        return column.dt.epoch("us").cast(pl.String)
    if kind == pl.Duration:
        return column.dt.total_microseconds().cast(pl.String)
    if kind in (pl.Date, pl.Time):
        return column.to_physical().cast(pl.String)
    if isinstance(kind, (pl.Categorical, pl.Enum, pl.Decimal, pl.Null)):
        return column.cast(pl.String)
    raise DefinitionError(
        f"key column {column.name!r} is of type {kind}, which cannot be a key; "
        "use text, numbers, times, booleans or bytes, or make one column of each field"
    )
