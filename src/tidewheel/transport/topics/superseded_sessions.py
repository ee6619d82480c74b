"""Results of windows that have grown into larger ones: sessions, where nothing is retracted before a new result."""

from __future__ import annotations

from bisect import bisect_right

import polars as pl

__all__ = ["without_superseded"]

_PLACE, _CLUSTER, _REACH = "@place", "@cluster", "@reach"
_START, _END, _LAST = "@start", "@end", "@last"
_FIRST_OF_ALL, _LAST_OF_ALL = -(2**62), 2**62


def without_superseded(rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """Rows in the order in which they came, one for each key and window (`window_start`, `window_end`; null: no bound),
    without those whose window lies within a larger one of the same key that came later.

    A result that says of itself that no other follows it (`pane_last`) has not grown: windows of so many elements are
    all of that kind, and may lie within each other.

    >>> rows = pl.DataFrame({"key": ["a", "b", "a"], "window_start": [5, 5, 0], "window_end": [9, 9, 9]})
    >>> without_superseded(rows, "key").rows()
    [('b', 5, 9), ('a', 0, 9)]
    >>> without_superseded(rows.reverse(), "key").height
    3
    """
    last = pl.col("pane_last").fill_null(False) if "pane_last" in rows.columns else pl.lit(False)
    bounds = rows.select(
        pl.col(key),
        pl.col("window_start").cast(pl.Int64).fill_null(_FIRST_OF_ALL).alias(_START),
        pl.col("window_end").cast(pl.Int64).fill_null(_LAST_OF_ALL).alias(_END),
        last.alias(_LAST),
        pl.int_range(pl.len(), dtype=pl.Int64).alias(_PLACE),
    )
    if bounds.select((pl.col(_END) - pl.col(_START)).n_unique()).item() <= 1:
        return rows  # windows of one length: none lies within another
    gone = _superseded(_nested(bounds, key))
    return rows.filter(~pl.int_range(pl.len(), dtype=pl.Int64).is_in(gone.implode())) if len(gone) else rows


def _nested(bounds: pl.DataFrame, key: str) -> pl.DataFrame:
    """The windows that overlap, directly or by others, with one that lies within another: in clusters, in each the
    largest of those that begin first ahead."""
    ordered = bounds.sort(key, _START, _END, descending=[False, False, True])
    reach = pl.col(_END).cum_max().shift(1).over(key)
    ordered = ordered.with_columns(reach.alias(_REACH))
    begins = pl.col(_REACH).is_null() | (pl.col(_START) >= pl.col(_REACH))
    ordered = ordered.with_columns(begins.cum_sum().alias(_CLUSTER))
    inside = ordered.filter((pl.col(_END) <= pl.col(_REACH)) & ~pl.col(_LAST))
    return ordered.join(inside.select(_CLUSTER).unique(), on=_CLUSTER, how="semi", maintain_order="left")


def _superseded(nested: pl.DataFrame) -> pl.Series:
    """The places of those that lie within one that came later."""
    # Of a session that grew, what it has become holds all of the cluster, and came last.
    whole = (pl.col(_END).first() == pl.col(_END).max()) & (pl.col(_PLACE).first() == pl.col(_PLACE).max())
    largest = pl.col(_PLACE).first()
    nested = nested.with_columns(whole.over(_CLUSTER).alias("@whole"), largest.over(_CLUSTER).alias("@it"))
    superseded = nested.filter(pl.col("@whole") & (pl.col(_PLACE) != pl.col("@it")) & ~pl.col(_LAST))[_PLACE]
    others = nested.filter(~pl.col("@whole")).sort(_CLUSTER, _PLACE, descending=True)
    return pl.concat([superseded, pl.Series(_PLACE, _within_later(others), pl.Int64)])


def _within_later(clusters: pl.DataFrame) -> list[int]:
    """Any others, one after the other, from the last to the first. Of those that came later the ones are remembered
    that lie within no other: the one that begins later ends later."""
    found: list[int] = []
    now = None
    starts: list[int] = []
    ends: list[int] = []
    for cluster, start, end, last, place in clusters.select(_CLUSTER, _START, _END, _LAST, _PLACE).iter_rows():
        if cluster != now:
            now, starts, ends = cluster, [], []
        at = bisect_right(starts, start)
        if at and ends[at - 1] >= end:
            if not last:
                found.append(place)
            continue
        at = bisect_right(starts, start - 1)
        upto = at
        while upto < len(starts) and ends[upto] <= end:
            upto += 1
        starts[at:upto], ends[at:upto] = [start], [end]
    return found
