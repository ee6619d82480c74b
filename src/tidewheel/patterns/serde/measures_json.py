"""Measures of any types as one column of JSON text."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from typing import Any

import polars as pl

__all__ = ["as_json"]


def as_json(measures: pl.DataFrame) -> pl.Series:
    """A JSON object for each row. Times are ISO 8601, spans of time seconds, bytes base64; numbers that JSON lacks are
    "NaN", "Infinity" and "-Infinity".

    >>> as_json(pl.DataFrame({"drop": [9.5], "stop": ["Kamppi"], "acc": [[-3, -2]]})).to_list()
    ['{"drop":9.5,"stop":"Kamppi","acc":[-3,-2]}']
    """
    texts = [
        json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False, separators=(",", ":"))
        for row in measures.iter_rows(named=True)
    ]
    return pl.Series("measures", texts, dtype=pl.String)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, pl.Series)):
        return [_plain(one) for one in value]
    return str(value)
