"""Lateness: which rows are in time, and why the others are rejected."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from tidewheel.model.columns import TIME
from tidewheel.model.panes import (
    ABSURD_TIME,
    END_OF_TIME,
    FROM_THE_FUTURE,
    NO_TIME,
    NO_WINDOW,
    START_OF_TIME,
    TOO_LATE,
)
from tidewheel.model.time import Duration, Instant

__all__ = ["LATE_BY", "REASON", "split_late", "tag_late"]

REASON = "late_reason"
LATE_BY = "late_by"


def split_late(
    frame: pl.DataFrame,
    *,
    before: Instant | None,
    last_end: Callable[[pl.DataFrame], pl.Series],
    lateness: Duration,
    future: Duration | None = None,
    arrival: str | None = None,
    covered: bool = False,
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Split rows into accepted ones and late ones, with reason and by how much (None if there are none).

    `last_end` gives for rows of sound time the watermark from which on they are late, but for the lateness;
    null: they always are. The end of the input is too late for all of them. With `covered` that is never null, and
    after the row's own time: then nothing is worked out for rows none of which is behind the watermark. `arrival` names
    the column with the time (µs) at which a row reached the log; one whose event time is more than `future` after it is
    not plausible.
    """
    time = pl.col(TIME)
    unsound = time.is_null() | (time < START_OF_TIME) | (time >= END_OF_TIME)
    ahead = time - pl.col(arrival) > future if arrival is not None and future is not None else None
    suspects = unsound if ahead is None else unsound | ahead
    sound = frame
    rejected = []
    any_unsound, first = frame.select(suspects.any().alias("unsound"), time.min().alias("first")).row(0)
    in_time = first is not None and (before is None or (before < END_OF_TIME and before - lateness <= first))
    if covered and in_time and not any_unsound:
        return frame, None
    if any_unsound:
        reason = pl.when(time.is_null()).then(pl.lit(NO_TIME))
        if ahead is None:
            reason_column = reason.otherwise(pl.lit(ABSURD_TIME))
            by = pl.lit(None, pl.Int64)
        else:
            absurd = (time < START_OF_TIME) | (time >= END_OF_TIME)
            reason_column = reason.when(absurd).then(pl.lit(ABSURD_TIME)).otherwise(pl.lit(FROM_THE_FUTURE))
            by = pl.when(absurd | time.is_null()).then(None).otherwise(time - pl.col(str(arrival)))
        rejected.append(tag_late(frame.filter(suspects.fill_null(True)), reason_column, by))
        sound = frame.filter(~suspects.fill_null(True))
    ends = last_end(sound)
    nowhere = ends.is_null()
    if nowhere.any():
        rejected.append(tag_late(sound.filter(nowhere), pl.lit(NO_WINDOW), pl.lit(None, pl.Int64)))
        sound, ends = sound.filter(~nowhere), ends.filter(~nowhere)
    if before is not None:
        late = (ends <= before - lateness) | (before >= END_OF_TIME)
        if late.any():
            rejected.append(tag_late(sound.filter(late), pl.lit(TOO_LATE), before - time))
            sound = sound.filter(~late)
    return sound, pl.concat(rejected) if rejected else None


def tag_late(rows: pl.DataFrame, reason: pl.Expr, by: pl.Expr) -> pl.DataFrame:
    """Tag rejected rows with the reason, and by how much they were late."""
    return rows.with_columns(reason.alias(REASON), by.cast(pl.Int64).cast(pl.Duration("us")).alias(LATE_BY))
