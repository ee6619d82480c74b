"""closing-in: vehicles that catch up with another of their route."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import polars as pl

import tidewheel as tw
from tidewheel_transit.jobs.pairs import PAIR, pairs
from tidewheel_transit.transit_pb2 import ClosingIn, VehiclePosition

__all__ = ["closing_in"]

_TIME = pl.Datetime("us", "UTC")


@tw.job("closing-in", reads={"input.vehicle-position": VehiclePosition}, writes=ClosingIn, key=PAIR)
def closing_in(positions: tw.Stream, *, every: str = "10 s", by: float = 100.0, nearer: float = 1_000.0) -> tw.Result:
    """Two vehicles of a route and direction that come closer: how far apart they are, and how fast they close in.

    On the samples of bunching: over three successive windows the distance shrinks from each to the next, by at least
    `by` metres in all, and is below `nearer` metres in the last. Reported once; again only after the distance has grown
    or an hour has passed without a sample of the two.
    """
    period = timedelta(microseconds=tw.time.duration(every))
    apart = pairs(positions, every=every)
    state = {"before": pl.Float64(), "last": pl.Float64(), "reported": pl.Boolean(), "at": _TIME}
    return apart.key_by(*PAIR).process(_Approaches(by, nearer, period), state=state, ttl="1 h")


@dataclass(frozen=True)
class _Approaches:
    """Report the third of three samples that shrink far enough, once until one grows."""

    stable_name: ClassVar[str] = "closing_in.approaches/1"

    by: float
    nearer: float
    period: timedelta

    __name__ = "closing_in"

    def __call__(self, events: pl.DataFrame, state: pl.DataFrame, clock: tw.Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
        distance, number = pl.col("distance"), pl.int_range(pl.len()).over(PAIR)
        # The sample before each, and those two that are of the windows just before.
        last = pl.when(number == 0).then(pl.col("last")).otherwise(distance.shift(1).over(PAIR))
        at = pl.when(number == 0).then(pl.col("at")).otherwise(pl.col("event_time").shift(1).over(PAIR))
        next_to_it = pl.col("event_time") - at == self.period
        one = pl.when(number == 0).then(pl.col("before")).otherwise(pl.col("two").shift(1).over(PAIR))
        seen = events.join(state, on=PAIR, how="left", maintain_order="left").with_columns(near=next_to_it, was=last)
        seen = seen.with_columns(two=pl.when("near").then(pl.col("was")))
        seen = seen.with_columns(one=pl.when("near").then(one))
        shrunk = (pl.col("one") > pl.col("two")) & (pl.col("two") > distance)
        found = shrunk & (pl.col("one") - distance >= self.by) & (distance < self.nearer)
        seen = seen.with_columns(
            found=found.fill_null(False), stretch=(distance > pl.col("was")).fill_null(False).cum_sum().over(PAIR)
        )
        # Between two growths only the first counts, and none if one was reported before in the same stretch.
        stretch = [*PAIR, "stretch"]
        already = pl.col("reported").fill_null(False) & (pl.col("stretch") == 0)
        hits = pl.col("found").cast(pl.Int64).cum_sum().over(stretch)
        seen = seen.with_columns(tell=pl.col("found") & (hits == 1) & ~already, reported=already | (hits > 0))
        results = seen.filter("tell").select(
            *PAIR,
            "event_time",
            "distance",
            closing_speed=(pl.col("one") - distance) / (2 * self.period.total_seconds()),
        )
        new = seen.group_by(PAIR, maintain_order=True).agg(
            before=pl.col("two").last(),
            last=distance.last(),
            reported=pl.col("reported").last(),
            at=pl.col("event_time").last(),
        )
        return results, new
