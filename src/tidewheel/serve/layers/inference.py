"""Layers for topics without a description: from the fields of their results."""

from __future__ import annotations

import msgspec
import polars as pl

from tidewheel.serve.layers.layer import (
    EXPIRY,
    LONGEST,
    MIN_EXPIRY,
    Cell,
    Edge,
    Figure,
    Geometry,
    Layer,
    Nowhere,
    Point,
    Scale,
    Show,
    Value,
)
from tidewheel.serve.view.decode import COURSE, own_fields

__all__ = ["VIRIDIS", "infer", "timed", "version_of"]

VIRIDIS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""Colours from low to high that people with any colour vision tell apart."""

_GRACE = 5_000


def infer(topic: str, sample: pl.DataFrame) -> Layer:
    """A layer for results like these (as `rows.Decoder` gives them): a field `cell` makes cells, `cell` and
    `neighbour` arrows, `lat` and `lon` points; without any of these they are a table."""
    fields = own_fields(sample)
    geometry, show = _geometry(fields)
    unkeyed = sample.is_empty() or sample["@key"].null_count() > 0
    key = [] if unkeyed else _key(sample, fields)
    place = {"cell", "neighbour", "lat", "lon", "heading"}
    shown = [name for name in fields if name not in COURSE | place | {*key}]
    numbers = [name for name in shown if sample.schema[name].is_numeric()]
    value = Value(field=numbers[0], label=_label(numbers[0])) if numbers else None
    return Layer(
        topic=topic,
        about=f"Results of {topic}; the layer was made from their fields.",
        key=["cell"] if unkeyed and isinstance(geometry, (Cell, Edge)) else key,
        geometry=geometry,
        show=show,
        value=value,
        scale=None if value is None else _scale(sample[value.field]),
        figures=[Figure(field=name, label=_label(name), unit=_unit(sample.schema[name])) for name in shown],
        filters=[name for name in fields if sample.schema[name] == pl.String and name not in COURSE][:8],
        on=True,
    )


def timed(layer: Layer, sample: pl.DataFrame | None) -> Layer:
    """The layer with the expiry and period that it leaves open, as far as the windows of results like these tell."""
    if layer.expiry is not None:
        return layer
    period, longest = (None, None) if sample is None else _windows(sample)
    shown = period or longest
    expiry = EXPIRY if shown is None else shown + _GRACE
    if isinstance(layer.geometry, Nowhere):
        expiry = max(expiry, MIN_EXPIRY)
    return msgspec.structs.replace(layer, expiry=min(expiry, LONGEST), period=layer.period or period)


def version_of(topic: str, layers: dict[str, Layer]) -> Layer | None:
    """The layer for another version of a known topic (analytics.x.v2 of analytics.x): the same, under its own name."""
    base, _, version = topic.rpartition(".")
    known = layers.get(base)
    if known is None:
        return None
    plain = known.description() | {"topic": topic, "name": "", "title": f"{known.title} ({version})", "on": False}
    return msgspec.convert(plain, Layer)


def _geometry(fields: list[str]) -> tuple[Geometry, Show]:
    if {"cell", "neighbour"} <= {*fields}:
        return Edge(), "arrows"
    if {"lat", "lon"} <= {*fields}:
        return Point(heading="heading" if "heading" in fields else None), "points"
    if "cell" in fields:
        return Cell(), "cells"
    return Nowhere(), "table"


def _key(sample: pl.DataFrame, fields: list[str]) -> list[str]:
    """The fields that the records' keys in the log are made of; none if that is not known (yet), for the key itself is
    an identity too."""
    parts = [key.decode("utf-8", "replace").split("/") for key in sample["@key"].to_list()]
    count = len(parts[0])
    if any(len(part) != count for part in parts):
        return []
    texts = {
        name: sample[name].cast(pl.String, strict=False).fill_null("").to_list()
        for name in fields
        if not sample.schema[name].is_nested() and sample.schema[name] != pl.Duration and name not in COURSE
    }
    found: list[str] = []
    for position in range(count):
        wanted = [part[position] for part in parts]
        fitting = [name for name, text in texts.items() if text == wanted]
        if len(fitting) != 1:
            return []
        found += fitting
    return found if len({*found}) == count else []


def _windows(sample: pl.DataFrame) -> tuple[int | None, int | None]:
    """How often windows end and how long the longest is, in milliseconds, as far as the sample tells; sessions differ
    in length and have no period."""
    if not all(isinstance(sample.schema.get(name), pl.Datetime) for name in ("window_start", "window_end")):
        return None, None
    starts, ends = (sample[name].cast(pl.Int64) // 1_000 for name in ("window_start", "window_end"))
    sizes = sorted((ends - starts).unique().drop_nulls().to_list())
    if not sizes or sizes[0] <= 0:
        return None, None
    gaps = ends.unique().sort().diff().drop_nulls()
    if len(sizes) > 1 or sizes[0] > LONGEST or not len(gaps):
        return None, sizes[-1]
    return min(int(gaps.min()), sizes[0]), sizes[0]  # type: ignore[arg-type]  # a number


def _scale(values: pl.Series) -> Scale:
    finite = values.cast(pl.Float64).drop_nulls().drop_nans()
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)  # type: ignore[arg-type]
    low = min(low, 0.0)
    return Scale(kind="sequential", domain=[low, high if high > low else low + 1.0], colours=VIRIDIS)


def _unit(kind: pl.DataType) -> str:
    return "time" if isinstance(kind, pl.Datetime) else "ms" if isinstance(kind, pl.Duration) else ""


def _label(name: str) -> str:
    return name.replace("_", " ")
