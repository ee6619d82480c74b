"""Windows in columns: which slice of time an event is in, and which windows hold a slice.

Events of one key in one slice share all their windows, so they are aggregated together before anything is known about
windows: a slice of a sliding window is the greatest common divisor of its size and its period.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.columns import ALL, TIME
from tidewheel.model.key_hash import key_hash
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME, Window
from tidewheel.model.time import Duration, Instant
from tidewheel.model.windows import Calendar, Custom, Global, Session, Sliding, Windows

__all__ = [
    "END",
    "SLICE",
    "START",
    "is_covering",
    "last_end",
    "merged",
    "slice_length",
    "with_slices",
    "to_windows",
]

SLICE = "__slice"
START = "__start"
END = "__end"
_SHIFT = "__shift"
_QUARTER: Duration = 900_000_000
_SINCE_1972: Instant = 63_072_000_000_000


def slice_length(windows: Sliding) -> Duration:
    """The longest stretch of time whose events share all their windows."""
    return math.gcd(windows.size, windows.every)


def last_end(windows: Windows, frame: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
    """For each row the end of its last window: until then, and the allowed lateness, it is accepted. Null: it is in no
    window at all."""
    time = pl.col(TIME)
    match windows:
        case Sliding():
            with_shift = _with_shift(windows, frame, keys)
            start = _floor(time - pl.col(_SHIFT), windows.every) + pl.col(_SHIFT)
            inside = start + windows.size > time
            return with_shift.select(pl.when(inside).then(_clipped(start + windows.size)).alias(END)).to_series()
        case Session():
            return frame.select(_clipped(time + windows.gap).alias(END)).to_series()
        case Global():
            return pl.repeat(END_OF_TIME, frame.height, dtype=pl.Int64, eager=True).alias(END)
        case Calendar():
            return _calendar(windows, frame)[END]
        case Custom():
            ends = _custom(windows, frame[TIME].unique().drop_nulls())
            latest = ends.group_by(TIME).agg(pl.col(END).max())
            return frame.select(TIME).join(latest, on=TIME, how="left", maintain_order="left")[END]
    raise DefinitionError(f"{windows!r} cannot be computed in slices")


def is_covering(windows: Windows) -> bool:
    """Whether every time is in a window, so that `last_end` is after it."""
    return not isinstance(windows, Custom) and not (isinstance(windows, Sliding) and windows.every > windows.size)


def with_slices(windows: Windows, frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The frame with a column `__slice`; sessions get `__start` and `__end` of the session within this frame."""
    match windows:
        case Sliding():
            length = slice_length(windows)
            with_shift = _with_shift(windows, frame, keys)
            start = _floor(pl.col(TIME) - pl.col(_SHIFT), length) + pl.col(_SHIFT)
            return with_shift.with_columns(start.alias(SLICE)).drop(_SHIFT)
        case Session():
            return _local_sessions(windows, frame, keys)
        case Global():
            return frame.with_columns(pl.lit(0, pl.Int64).alias(SLICE))
        case Calendar():
            return frame.with_columns(_calendar(windows, frame)[START].alias(SLICE))
    return frame.with_columns(pl.col(TIME).alias(SLICE))


def to_windows(windows: Windows, frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """One row for each window that a row's slice is in: `__start` and `__end` instead of `__slice`."""
    match windows:
        case Session():
            return frame
        case Sliding() if windows.size == windows.every:
            start = pl.col(SLICE)
            return frame.with_columns(start.alias(START), _clipped(start + windows.size).alias(END)).drop(SLICE)
        case Sliding():
            with_shift = _with_shift(windows, frame, keys)
            last = _floor(pl.col(SLICE) - pl.col(_SHIFT), windows.every) + pl.col(_SHIFT)
            count = (last + windows.size - pl.col(SLICE) + windows.every - 1) // windows.every
            return (
                with_shift.with_columns(
                    pl.int_ranges(last - (count - 1) * windows.every, last + 1, windows.every).alias(START)
                )
                .drop(_SHIFT, SLICE)
                .explode(START)
                .filter(pl.col(START).is_not_null())
                .with_columns(_clipped(pl.col(START) + windows.size).alias(END))
            )
        case Global():
            bounds = pl.lit(START_OF_TIME, pl.Int64).alias(START), pl.lit(END_OF_TIME, pl.Int64).alias(END)
            return frame.with_columns(*bounds).drop(SLICE)
        case Calendar():
            ends = _calendar(windows, frame.select(pl.col(SLICE).alias(TIME)))[END]
            return frame.with_columns(ends.alias(END)).rename({SLICE: START})
        case Custom():
            found = _custom(windows, frame[SLICE].unique()).rename({TIME: SLICE})
            return frame.join(found, on=SLICE, how="inner", maintain_order="left").drop(SLICE)
    raise DefinitionError(f"{windows!r} cannot be computed in slices")


def merged(windows: Windows, frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The windows of each key (`__start`, `__end`) with the bounds that they have after merging: `__mstart`, `__mend`,
    in the order of the frame."""
    ordered = frame.select(*keys, START, END).with_row_index("__row")
    if isinstance(windows, Session):
        ordered = ordered.sort([*keys, START, END])
        reach = pl.col(END).cum_max().shift(1).over(keys)
        # Sessions that only touch are two: the end is not included.
        opens = (reach.is_null() | (pl.col(START) >= reach)).cast(pl.Int64).cum_sum()
        ordered = ordered.with_columns(opens.alias("__group")).with_columns(
            pl.col(START).min().over("__group").alias("__mstart"), pl.col(END).max().over("__group").alias("__mend")
        )
        return ordered.sort("__row").select("__mstart", "__mend")
    bounds: dict[tuple[object, ...], dict[Window, Window]] = {}
    for row in ordered.unique([*keys, START, END]).iter_rows(named=True):
        bounds.setdefault(tuple(row[name] for name in keys), {})[Window(row[START], row[END])] = Window(0, 0)
    for own in bounds.values():
        for result, members in windows.merge(sorted(own)):
            for member in members:
                own[member] = result
    found = [
        bounds[tuple(row[name] for name in keys)][Window(row[START], row[END])] for row in ordered.iter_rows(named=True)
    ]
    return pl.DataFrame(
        {"__mstart": [window.start for window in found], "__mend": [window.end for window in found]},
        schema={"__mstart": pl.Int64, "__mend": pl.Int64},
    )


def _clipped(end: pl.Expr) -> pl.Expr:
    """Clip windows at the end of time."""
    return end.clip(upper_bound=END_OF_TIME)


def _floor(value: pl.Expr, length: Duration) -> pl.Expr:
    return (value // length) * length


def _with_shift(windows: Sliding, frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The offset of each row's grid of windows."""
    if not windows.stagger:
        return frame.with_columns(pl.lit(windows.offset, pl.Int64).alias(_SHIFT))
    shift = (key_hash(frame, [name for name in keys if name != ALL]) % windows.every).cast(pl.Int64) + windows.offset
    return frame.with_columns(shift.alias(_SHIFT))


def _local_sessions(windows: Session, frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    found = frame.with_columns(pl.col(TIME).alias(START), _clipped(pl.col(TIME) + windows.gap).alias(END))
    bounds = merged(windows, found, keys)
    return found.with_columns(bounds["__mstart"].alias(START), bounds["__mend"].alias(END))


def _calendar(windows: Calendar, frame: pl.DataFrame) -> pl.DataFrame:
    """`__start` and `__end` of the period that each time is in, worked out once for each quarter of an hour: no zone's
    offset has been odd since 1972."""
    time = pl.col(TIME)
    quarter = pl.when(time >= _SINCE_1972).then(_floor(time, _QUARTER)).otherwise(time)
    quarters = frame.select(quarter.alias("__quarter"))
    distinct = quarters["__quarter"].unique().drop_nulls()
    found = [windows.assign(time, ())[0] for time in distinct.to_list()]
    table = pl.DataFrame(
        {"__quarter": distinct, START: [window.start for window in found], END: [window.end for window in found]},
        schema={"__quarter": pl.Int64, START: pl.Int64, END: pl.Int64},
    )
    return quarters.join(table, on="__quarter", how="left", maintain_order="left").select(START, END)


def _custom(windows: Custom, times: pl.Series) -> pl.DataFrame:
    """The windows of each time."""
    rows: list[tuple[Instant, Instant, Instant]] = [
        (time, window.start, window.end) for time in sorted(times.to_list()) for window in windows.assign(time, ())
    ]
    return pl.DataFrame(rows, schema={TIME: pl.Int64, START: pl.Int64, END: pl.Int64}, orient="row")
