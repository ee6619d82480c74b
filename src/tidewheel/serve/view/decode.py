"""Decode whole blocks of results into columns, with all that the view needs of each row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import polars_h3 as h3
import pyarrow as pa

from tidewheel.errors import DefinitionError, UnknownTypeError
from tidewheel.model.time import Instant, duration, instant
from tidewheel.serve.layers.layer import Cell, Edge, Layer, Point
from tidewheel.transport.events.codec import ENVELOPE_COLUMNS, decode_columns, decode_envelopes
from tidewheel.transport.events.event_pb2 import Punctuation
from tidewheel.transport.events.registry import TypeRegistry, type_name
from tidewheel.transport.log.log_types import Batch

__all__ = ["COURSE", "Decoder", "Raw", "fields_of", "own_fields", "prepared", "shown_early"]

_MARKER = type_name(Punctuation)
COURSE = frozenset({"window_start", "window_end", "pane_index", "pane_timing", "pane_first", "pane_last", "retraction"})
"""The fields that tell of which window a result is, and which of its results."""

_EXACT = 2**53  # beyond it a number of JSON is no longer the number that was meant
_MILLIS = 1_000


@dataclass(frozen=True, slots=True)
class Raw:
    """The rows of a block: the message's fields and `event_time`, and `@arrival`, `@key` and `@offset` of the record;
    the number of records that could not be decoded, and the first error."""

    frames: tuple[pl.DataFrame, ...]
    bad: int = 0
    reason: str = ""

    @property
    def count(self) -> int:
        """The number of results."""
        return sum(frame.height for frame in self.frames)


class Decoder:
    """Decodes the records of a topic, whatever types they carry: nearly always one."""

    def __init__(self, registry: TypeRegistry) -> None:
        self._registry = registry
        self._kind: str | None = None

    def __call__(self, batch: Batch) -> Raw:
        """Decode the results of a batch. Malformed records and those of an unknown type are counted."""
        values = batch.records.column("value")
        decoded: dict[str, tuple[pl.DataFrame, Any]] = {}
        if self._kind is not None:
            frame, errors = decoded[self._kind] = self._decode(self._kind, batch)
            if not errors:
                return Raw((frame,) if frame.height else ())
        frames: list[pl.DataFrame] = []
        bad, reason = 0, ""
        envelopes = decode_envelopes(values, registry=self._registry)
        unreadable = {text for _, text in envelopes.errors}
        kinds = [kind for kind in dict.fromkeys(envelopes.columns["type"].to_pylist()) if kind != _MARKER]
        for kind in kinds:
            try:
                frame, errors = decoded.get(kind) or self._decode(kind, batch)
            except (UnknownTypeError, DefinitionError) as error:
                strange = envelopes.columns["type"].to_pylist().count(kind)
                bad, reason = bad + strange, reason or str(error)
                continue
            # Records of the other kinds count as errors there; they have their own turn.
            own = [text for _, text in errors if not text.startswith("carries ")]
            own = [text for text in own if text not in unreadable]
            bad, reason = bad + len(own), reason or (own[0] if own else "")
            if frame.height:
                frames.append(frame)
                self._kind = kind
        if envelopes.errors:
            bad, reason = bad + len(envelopes.errors), reason or envelopes.errors[0][1]
        return Raw(tuple(frames), bad, reason)

    def _decode(self, kind: str, batch: Batch) -> tuple[pl.DataFrame, Any]:
        records = batch.records
        decoded = decode_columns(kind, records.column("value"), registry=self._registry)
        frame = pl.from_arrow(decoded.columns)
        assert isinstance(frame, pl.DataFrame)
        rows = decoded.rows
        arrival = pl.Series("@arrival", records.column("append_time").take(rows).cast(pa.int64()))
        frame = frame.with_columns(
            arrival,
            pl.Series("@key", records.column("key").take(rows), pl.Binary),
            pl.Series("@offset", records.column("offset").take(rows)),
            pl.col("event_time").cast(pl.Int64).fill_null(arrival),
        )
        return frame, decoded.errors


def own_fields(frame: pl.DataFrame) -> list[str]:
    """The columns that are the message's own."""
    return [name for name in frame.columns if not name.startswith("@") and name not in ENVELOPE_COLUMNS]


def prepared(layer: Layer, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows as the view wants them: fields as JSON shows them, and

    - `@k` identity, `@t` event time, `@arrival`: in microseconds
    - `@start`, `@end` the window; `@timing` of the pane; `@back`: is it a retraction
    - `@lon`, `@lat` where it is, for regions; `@place` a cell, `@to` another, `@heading`
    """
    if not layer.all_fields:
        frame = frame.drop(name for name in own_fields(frame) if name not in layer.named_fields | COURSE)
    names = own_fields(frame)
    schema = frame.schema
    has_window = all(isinstance(schema.get(name), pl.Datetime) for name in ("window_start", "window_end"))
    window = [
        (pl.col(name).cast(pl.Int64) if has_window else pl.lit(None, pl.Int64)).alias(alias)
        for name, alias in (("window_start", "@start"), ("window_end", "@end"))
    ]
    timing = pl.col("pane_timing") if schema.get("pane_timing") == pl.String else pl.lit(None, pl.String)
    back = pl.col("retraction").fill_null(False) if schema.get("retraction") == pl.Boolean else pl.lit(False)
    frame = frame.with_columns(
        *window,
        pl.when(timing != "").then(timing).alias("@timing"),
        back.alias("@back"),
        pl.col("event_time").alias("@t"),
    )
    changed = (_plain(frame[name], cell=name in layer.cells) for name in names)
    frame = frame.with_columns(column for column in changed if column is not None)
    frame = _placed(layer, frame)
    return frame.with_columns(_identity(layer, frame)).drop("@key", "@offset", *ENVELOPE_COLUMNS, strict=False)


def _plain(column: pl.Series, *, cell: bool) -> pl.Series | None:
    """A field as JSON may show it; None if it is so already."""
    kind = column.dtype
    if cell and kind.is_integer():
        number = pl.col(column.name)
        hexadecimal = h3.int_to_str(number.cast(pl.UInt64, strict=False))
        return column.to_frame().select(pl.coalesce(hexadecimal, number.cast(pl.String)).alias(column.name)).to_series()
    if isinstance(kind, (pl.Datetime, pl.Duration)):
        return column.dt.cast_time_unit("us").cast(pl.Int64) // _MILLIS
    if kind.is_float():
        finite = column if kind == pl.Float64 else column.cast(pl.Float64).round_sig_figs(7)
        return finite.set(~finite.is_finite(), None)  # JSON has no other numbers
    if kind in (pl.Int64, pl.UInt64) and len(column):
        low, high = column.min() or 0, column.max() or 0
        if low < -_EXACT or high > _EXACT:  # type: ignore[operator]  # of a column of numbers
            return column.cast(pl.String)
    if isinstance(kind, (pl.Struct, pl.List, pl.Array)):
        return _nested(column)
    return None


def _nested(column: pl.Series) -> pl.Series:
    """Fields of fields, one value at a time: they are rare, and small."""
    return pl.Series(column.name, [_simple(value) for value in column.to_list()], pl.Object)


def _simple(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _simple(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [_simple(each) for each in value]
    if isinstance(value, datetime):
        return instant(value) // _MILLIS
    if isinstance(value, timedelta):
        return duration(value) // _MILLIS
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return str(value)
    return value


def _placed(layer: Layer, frame: pl.DataFrame) -> pl.DataFrame:
    nothing = pl.lit(None, pl.String)
    place = {"@place": nothing, "@to": nothing, "@heading": pl.lit(None, pl.Float64)}
    lon, lat = pl.lit(None, pl.Float64), pl.lit(None, pl.Float64)
    geometry = layer.geometry
    if isinstance(geometry, Point) and {geometry.lat, geometry.lon} <= {*frame.columns}:
        there = (pl.col(name).cast(pl.Float64, strict=False) for name in (geometry.lon, geometry.lat))
        lon, lat = there
        valid = lat.is_between(-90, 90) & lon.is_between(-180, 180)
        lon, lat = pl.when(valid).then(lon), pl.when(valid).then(lat)
        if geometry.heading in frame.columns:
            place["@heading"] = pl.col(geometry.heading).cast(pl.Float64, strict=False)
    cell = geometry.cell if isinstance(geometry, Cell) else geometry.source if isinstance(geometry, Edge) else None
    if cell is not None and frame.schema.get(cell) == pl.String:
        place["@place"] = _valid_cell(cell)
        if isinstance(geometry, Edge):
            other = frame.schema.get(geometry.target) == pl.String
            place["@to"] = _valid_cell(geometry.target) if other else nothing
        frame = frame.with_columns(expression.alias(name) for name, expression in place.items())
        return frame.with_columns(_centres(frame["@place"]))
    return frame.with_columns(lon.alias("@lon"), lat.alias("@lat"), *(e.alias(name) for name, e in place.items()))


def _valid_cell(name: str) -> pl.Expr:
    index = h3.str_to_int(pl.col(name))
    return pl.when(h3.is_valid_cell(index)).then(pl.col(name))


def _centres(cells: pl.Series) -> list[pl.Series]:
    """The centres of cells; each cell is looked up once."""
    unique = pl.DataFrame({"cell": cells.unique().drop_nulls()})
    index = h3.str_to_int(pl.col("cell"))
    table = unique.with_columns(h3.cell_to_lng(index).alias("@lon"), h3.cell_to_lat(index).alias("@lat"))
    found = cells.to_frame("cell").join(table, on="cell", how="left", maintain_order="left")
    return [found["@lon"].cast(pl.Float64), found["@lat"].cast(pl.Float64)]


def _identity(layer: Layer, frame: pl.DataFrame) -> pl.Expr:
    known = [name for name in layer.key if name in frame.columns]
    if known:
        return pl.concat_str(
            [pl.col(name).cast(pl.String, strict=False).fill_null("") for name in known], separator="/"
        ).alias("@k")
    keys = [None if key is None else key.decode("utf-8", "replace") for key in frame["@key"].to_list()]
    return pl.coalesce(pl.lit(pl.Series(keys, dtype=pl.String)), pl.col("@offset").cast(pl.String)).alias("@k")


def shown_early(layer: Layer, frame: pl.DataFrame, watermark: Instant | None) -> pl.DataFrame:
    """Drop early panes of windows that end later than the next one does."""
    # They are not kept for when their turn comes. An event is in all these windows at once, so what has an early pane
    # of the next window has one of the window after it too. Shown when the watermark passes, that would be newer than
    # the on-time pane which comes at that moment, and nothing would ever become firm; and as it expires by its own
    # arrival, it might be gone before the next on-time pane. The price: an event so far ahead of the watermark that it
    # is not in the next window is seen with its key's next pane, at the latest with the on-time one.
    if layer.period is None or watermark is None:
        return frame
    next_end = watermark + layer.period * _MILLIS
    too_early = (pl.col("@timing") == "EARLY") & (pl.col("@end") > next_end)
    return frame.filter(~too_early.fill_null(False))


def fields_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The message's fields of a prepared row, without those that are not set."""
    return {name: value for name, value in row.items() if value is not None and name[0] != "@"}
