"""Statistics of a block of records, enough to decide a watermark without opening it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidewheel.model.time import Duration, Instant

__all__ = ["BlockStats", "merge", "skew_bins", "skew_bounds", "summarize"]


@dataclass(frozen=True, slots=True)
class BlockStats:
    """Count, extent of event time, skew and markers of some records.

    `skew` counts records by the bin of event time minus append time (see `skew_bins`). `max_plausible` is the
    highest event time that is at most `future_tolerance` ahead of the append clock: one bad clock must not decide
    the watermark of everyone.
    """

    count: int = 0
    append_time: Instant = 0
    min_event_time: Instant | None = None
    max_event_time: Instant | None = None
    max_plausible: Instant | None = None
    future_tolerance: Duration = 0
    untimed: int = 0
    skew: Mapping[int, int] = field(default_factory=dict)
    punctuations: tuple[Instant, ...] = ()
    raw_size: int = field(default=0, compare=False)
    """Bytes of keys and values; 0: not known."""


def skew_bins(micros: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """The histogram bin of each skew: sign times a logarithmic bin of its milliseconds, eight bins an octave.

    >>> skew_bins(np.array([0, 400, 9_000, -9_000, 1_000_000])).tolist()
    [0, 0, 33, -33, 87]
    """
    millis = (np.abs(micros) // 1_000).astype(np.float64)
    fraction, exponent = np.frexp(millis)  # millis = fraction * 2 ** exponent, fraction in [0.5, 1)
    bins = np.where(millis == 0, 0, exponent * 8 + ((fraction * 2 - 1) * 8).astype(np.int64))
    return (np.sign(micros) * bins).astype(np.int32)


def skew_bounds(bin_number: int) -> tuple[Duration, Duration]:
    """The lowest and the highest skew, in microseconds, that fall into the bin.

    >>> skew_bounds(0), skew_bounds(33), skew_bounds(-33)
    ((-999, 999), (9000, 9999), (-9999, -9000))
    """
    if bin_number == 0:
        return -999, 999
    octave, eighth = divmod(abs(bin_number), 8)
    low, high = (2.0 ** (octave - 1) * (1 + part / 8) for part in (eighth, eighth + 1))
    nearest, farthest = int(np.ceil(low)) * 1_000, int(np.ceil(high)) * 1_000 - 1
    return (nearest, farthest) if bin_number > 0 else (-farthest, -nearest)


def summarize(
    event_times: npt.NDArray[np.int64],
    *,
    append_time: Instant,
    untimed: int = 0,
    future_tolerance: Duration,
    punctuations: Iterable[Instant] = (),
) -> BlockStats:
    """The summary of records with these event times (those without one are only counted)."""
    if len(event_times) == 0:
        return BlockStats(
            count=untimed,
            append_time=append_time,
            future_tolerance=future_tolerance,
            untimed=untimed,
            punctuations=tuple(sorted(punctuations)),
        )
    # Absurd times would overflow the subtraction; a bin is all that their skew is needed for.
    limit = 2**61
    skew = np.clip(event_times, -limit, limit) - append_time
    plausible = event_times[skew <= future_tolerance]
    bins, counts = np.unique(skew_bins(skew), return_counts=True)
    return BlockStats(
        count=len(event_times) + untimed,
        append_time=append_time,
        min_event_time=int(event_times.min()),
        max_event_time=int(event_times.max()),
        max_plausible=int(plausible.max()) if len(plausible) else None,
        future_tolerance=future_tolerance,
        untimed=untimed,
        skew=dict(zip(bins.tolist(), counts.tolist(), strict=True)),
        punctuations=tuple(sorted(punctuations)),
    )


def merge(summaries: Iterable[BlockStats]) -> BlockStats:
    """Merge these statistics: those of all the records together."""
    parts = list(summaries)
    skew: dict[int, int] = {}
    for part in parts:
        for bin_number, count in part.skew.items():
            skew[bin_number] = skew.get(bin_number, 0) + count
    lows = [part.min_event_time for part in parts if part.min_event_time is not None]
    highs = [part.max_event_time for part in parts if part.max_event_time is not None]
    plausible = [part.max_plausible for part in parts if part.max_plausible is not None]
    return BlockStats(
        count=sum(part.count for part in parts),
        append_time=max((part.append_time for part in parts), default=0),
        min_event_time=min(lows, default=None),
        max_event_time=max(highs, default=None),
        max_plausible=max(plausible, default=None),
        future_tolerance=max((part.future_tolerance for part in parts), default=0),
        untimed=sum(part.untimed for part in parts),
        skew=skew,
        punctuations=tuple(sorted(mark for part in parts for mark in part.punctuations)),
    )
