"""The final table of a topic of results, and the difference between two such tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.time import Instant
from tidewheel.transport.events.codec import decode_columns, decode_envelopes
from tidewheel.transport.events.event_pb2 import Punctuation
from tidewheel.transport.events.registry import TypeRegistry, type_name, types
from tidewheel.transport.log.damage import pass_over
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import OnDamage
from tidewheel.transport.topics.superseded_sessions import without_superseded
from tidewheel.transport.topics.types import load_types

__all__ = ["Comparison", "MaterializedTable", "compare", "materialize", "frames_of"]

KEY = "key"
"""The column with a record's key."""

_WINDOW = ["window_start", "window_end"]
_COURSE = ["ingestion_time", "pane_index", "pane_timing", "pane_first", "pane_last", "retraction"]
"""Columns that tell how a result came about, not what it is."""
_MOST_FRAMES = 64  # that are held before what was replaced is let go
_TOLERANCE = 1e-9  # fractions that are summed in another order differ in their last digits


@dataclass(frozen=True)
class MaterializedTable:
    """The rows that a topic of results leaves its reader with.

    Of windows: the last result of each key and window, unless it was retracted, or its window has grown: sessions
    do. Of results without windows, which are never changed: all of them. `until` is how far event time has come for it,
    and None if it is complete.
    """

    topic: str
    rows: pl.DataFrame
    windowed: bool
    until: Instant | None

    def finished(self, until: Instant | None) -> pl.DataFrame:
        """The rows that a watermark has passed."""
        if until is None or not self.rows.height:  # a table without rows knows no columns
            return self.rows
        end = pl.col("window_end") if self.windowed else pl.col("event_time") + pl.duration(microseconds=1)
        passed = (end.cast(pl.Int64) <= until).fill_null(False)
        return self.rows.filter(passed)


@dataclass(frozen=True)
class Comparison:
    """The difference of two final tables: equal rows, rows of only one, and rows of the same key and window with other
    values (the other's in columns that end in `_other`). `open` rows were left out: their windows are not over in both.
    `behind` is how many of these are final in the first table and not yet in the second. `columns`: those of only one
    table, which were not compared."""

    same: int
    only_first: pl.DataFrame
    only_second: pl.DataFrame
    changed: pl.DataFrame
    open: int = 0
    behind: int = 0
    columns: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether something was compared, and no difference found."""
        differ = self.only_first.height or self.only_second.height or self.changed.height or self.columns
        return not differ and (self.same > 0 or self.open == 0)


def materialize(log: Log, topic: str, *, nested: bool = False, on_damage: OnDamage | None = None) -> MaterializedTable:
    """Read a topic of results from its beginning.

    A result whose window lies within a larger one of the same key that came later has grown into it, and is not in the
    table. With `nested` it is: for windows that lie within each other by their nature, like hours and days of one key.
    A damaged block is a `DamagedBlockError`, unless `on_damage` takes it.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> log = open_log(tempfile.mkdtemp() + "/shop.tw")
    >>> receipt = log.append_rows("analytics.big", [{"amount": 12.5, "ts": "2026-01-31T12:00:00Z"}], time="ts")
    >>> materialize(log, "analytics.big").rows["amount"].to_list()
    [12.5]
    """
    frames: list[pl.DataFrame] = []
    for frame in frames_of(log, topic, on_damage=on_damage):
        # What has grown is let go only together with all that came before it, which it has replaced.
        frames.append(_latest(frame, nested=True))
        if len(frames) > _MOST_FRAMES:
            frames = [_latest(pl.concat(frames, how="diagonal"), nested=nested)]
    rows = pl.concat(frames, how="diagonal") if frames else pl.DataFrame(schema={KEY: pl.String})
    windowed = _windowed(rows)
    rows = _latest(rows, nested=nested)
    if windowed and "retraction" in rows.columns:
        rows = rows.filter(~pl.col("retraction").fill_null(False))
    return MaterializedTable(
        topic, rows.drop(_COURSE, strict=False), windowed, _until(log, topic, None if on_damage is None else pass_over)
    )


def compare(first: MaterializedTable, second: MaterializedTable) -> Comparison:
    """Compare two final tables. Only windows that are over in both are compared: the others may still change in one of
    them."""
    marks = [mark for mark in (first.until, second.until) if mark is not None]
    until = min(marks, default=None)
    one, two = first.finished(until), second.finished(until)
    left_out = first.rows.height - one.height + second.rows.height - two.height
    behind = first.finished(first.until).height - one.height
    if one.height and two.height and first.windowed != second.windowed:
        raise DefinitionError(
            f"{(first if first.windowed else second).topic} holds results of windows and "
            f"{(second if first.windowed else first).topic} does not; they cannot be compared"
        )
    # A table without rows knows no columns.
    both = [name for name in one.columns if name in two.columns] if one.height and two.height else []
    columns = tuple(sorted({*one.columns} ^ {*two.columns})) if both else ()
    if not both:
        return Comparison(0, one, two, one.clear(), left_out, behind)
    one, two = one.select(both), two.select(both)
    found = _of_windows(one, two) if first.windowed else _of_rows(one, two)
    return replace(found, open=left_out, behind=behind, columns=columns)


def _of_windows(one: pl.DataFrame, two: pl.DataFrame) -> Comparison:
    by = [KEY, *_WINDOW]
    values = [name for name in one.columns if name not in by]
    met = one.join(two, on=by, suffix="_other", nulls_equal=True)
    same = pl.all_horizontal(pl.lit(True), *(_equal(name, one.schema[name], two.schema[name]) for name in values))
    changed = met.filter(~same)
    return Comparison(
        same=met.height - changed.height,
        only_first=_sorted(one.join(two, on=by, how="anti", nulls_equal=True)),
        only_second=_sorted(two.join(one, on=by, how="anti", nulls_equal=True)),
        changed=_sorted(changed),
    )


def _of_rows(one: pl.DataFrame, two: pl.DataFrame) -> Comparison:
    """Rows that are equal are told apart by their number: the same row may be there twice."""
    by = one.columns
    numbered = [
        frame.with_columns(pl.int_range(pl.len()).over(by).alias("__number")) if frame.height else frame
        for frame in (one, two)
    ]
    left = numbered[0].join(numbered[1], on=[*by, "__number"], how="anti", nulls_equal=True)
    right = numbered[1].join(numbered[0], on=[*by, "__number"], how="anti", nulls_equal=True)
    left, right = _unlike(left.drop("__number"), right.drop("__number"))
    return Comparison(
        same=one.height - left.height,
        only_first=_sorted(left),
        only_second=_sorted(right),
        changed=one.clear(),
    )


def _unlike(left: pl.DataFrame, right: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that differ in more than the last digits of fractions."""
    fractions = [name for name in left.columns if left.schema[name].is_float() or right.schema[name].is_float()]
    if not fractions or not left.height or not right.height:
        return left, right
    by = [name for name in left.columns if name not in fractions]
    number = pl.int_range(pl.len()).over(by).alias("__number")
    left, right = (
        frame.sort(fractions).with_columns(number).with_row_index(row)
        for frame, row in ((left, "__left"), (right, "__right"))
    )
    met = left.join(right, on=[*by, "__number"], suffix="_other", nulls_equal=True)
    met = met.filter(_equal(name, left.schema[name], right.schema[name]) for name in fractions)
    left = left.join(met, on="__left", how="anti").drop("__left", "__number")
    return left, right.join(met, on="__right", how="anti").drop("__right", "__number")


def _equal(name: str, one: pl.DataType, two: pl.DataType) -> pl.Expr:
    left, right = pl.col(name), pl.col(f"{name}_other")
    exact = left.eq_missing(right)
    if not (one.is_float() or two.is_float()):
        return exact
    scale = pl.max_horizontal(left.abs(), right.abs(), pl.lit(1.0))
    return exact | ((left - right).abs() <= scale * _TOLERANCE).fill_null(False)


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort([name for name in ("event_time", KEY) if name in frame.columns])


def _windowed(frame: pl.DataFrame) -> bool:
    return {*_WINDOW} <= {*frame.columns}


def _latest(frame: pl.DataFrame, *, nested: bool) -> pl.DataFrame:
    """Drop rows that later ones replace. Those that retract others stay: what had grown into what they retract does not
    come again."""
    if not _windowed(frame):
        return frame
    frame = frame.unique([KEY, *_WINDOW], keep="last", maintain_order=True)
    return frame if nested else without_superseded(frame, KEY)


def _until(log: Log, topic: str, on_damage: OnDamage | None) -> Instant | None:
    """The last watermark in the topic; of several partitions the least."""
    found: list[Instant | None] = []
    for partition, first in enumerate(log.topic_info(topic).first_offsets):
        blocks = log.blocks(topic, partition, first, on_damage=on_damage)
        marks = [mark for block in blocks for mark in block.summary.punctuations]
        found.append(max(marks, default=None))
    known = [mark for mark in found if mark is not None]
    return min(known, default=None)


def frames_of(log: Log, topic: str, *, on_damage: OnDamage | None = None) -> Iterator[pl.DataFrame]:
    """The events of a topic in columns, a block at a time, with their keys."""
    registry = TypeRegistry()
    load_types(log, registry)  # types that were made of columns are the log's own
    marker = type_name(Punctuation)
    for partition, first in enumerate(log.topic_info(topic).first_offsets):
        for batch in log.read(topic, partition, first, on_damage=on_damage):
            values = batch.records.column("value")
            kinds = dict.fromkeys(decode_envelopes(values).columns["type"].to_pylist())
            for kind in kinds:
                if kind == marker:
                    continue
                decoded = decode_columns(kind, values, registry=registry if kind in registry else types)
                frame = pl.from_arrow(decoded.columns)
                assert isinstance(frame, pl.DataFrame)
                keys = pl.Series(KEY, batch.records.column("key").take(decoded.rows).to_pylist(), pl.Binary)
                # Two types in one block: their rows come one type after the other, each in its order.
                yield frame.with_columns(keys.cast(pl.String, strict=False))
