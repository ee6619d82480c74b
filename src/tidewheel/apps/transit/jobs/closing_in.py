"""closing-in: vehicles that catch up with another of their route."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tidewheel.apps.transit.jobs.pairs import PAIR, pairs
from tidewheel.apps.transit.transit_pb2 import ClosingIn, VehiclePosition
from tidewheel.engine.job import job
from tidewheel.engine.result import Result
from tidewheel.engine.stream import Stream
from tidewheel.model.process import Clock
from tidewheel.model.time import duration

__all__ = ["closing_in"]


@job("closing-in", reads={"input.vehicle-position": VehiclePosition}, writes=ClosingIn, key=PAIR)
def closing_in(positions: Stream, *, every: str = "10 s", by: float = 100.0, nearer: float = 1_000.0) -> Result:
    """Two vehicles of a route and direction that come closer: how far apart they are, and how fast they close in.

    On the samples of bunching: over three successive windows the distance shrinks from each to the next, by at least
    `by` metres in all, and is below `nearer` metres in the last. Told once; again only after the distance has grown. A
    window without a sample of either begins anew.
    """
    seconds = 2 * duration(every) / 1_000_000
    apart = pairs(positions, every=every)
    state = {"before": pl.Float64, "last": pl.Float64, "told": pl.Boolean}
    return apart.key_by(*PAIR).process(_Approaches(by, nearer, seconds), state=state, ttl=every)


@dataclass(frozen=True)
class _Approaches:
    """Tell the third of three samples that shrink far enough, once until one grows."""

    by: float
    nearer: float
    seconds: float

    __name__ = "closing_in"

    def __call__(self, events: pl.DataFrame, state: pl.DataFrame, clock: Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
        distance, number = pl.col("distance"), pl.int_range(pl.len()).over(PAIR)
        # The two samples before each: of the first ones, those that are kept.
        two = pl.when(number == 0).then(pl.col("last")).otherwise(distance.shift(1).over(PAIR))
        kept = pl.when(number == 0).then(pl.col("before")).otherwise(pl.col("last"))
        one = pl.when(number < 2).then(kept).otherwise(distance.shift(2).over(PAIR))
        seen = events.join(state, on=PAIR, how="left", maintain_order="left").with_columns(one=one, two=two)
        shrunk = (pl.col("one") > pl.col("two")) & (pl.col("two") > distance)
        found = shrunk & (pl.col("one") - distance >= self.by) & (distance < self.nearer)
        seen = seen.with_columns(
            found=found.fill_null(False), stretch=(distance > pl.col("two")).fill_null(False).cum_sum().over(PAIR)
        )
        # Between two growths only the first counts, and none if one was told before in the same stretch.
        stretch = [*PAIR, "stretch"]
        already = pl.col("told").fill_null(False) & (pl.col("stretch") == 0)
        hits = pl.col("found").cast(pl.Int64).cum_sum().over(stretch)
        seen = seen.with_columns(tell=pl.col("found") & (hits == 1) & ~already, told=already | (hits > 0))
        results = seen.filter("tell").select(
            *PAIR, "event_time", "distance", closing_speed=(pl.col("one") - distance) / self.seconds
        )
        new = seen.group_by(PAIR, maintain_order=True).agg(
            before=pl.col("two").last(), last=distance.last(), told=pl.col("told").last()
        )
        return results, new
