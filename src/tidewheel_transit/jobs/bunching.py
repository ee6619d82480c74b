"""bunching: vehicles of a route that drive close together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import polars as pl

import tidewheel as tw
from tidewheel_transit.jobs.pairs import PAIR, pairs
from tidewheel_transit.transit_pb2 import Bunching, VehiclePosition

__all__ = ["bunching"]

_TIME = pl.Datetime("us", "UTC")


@tw.job("bunching", reads={"input.vehicle-position": VehiclePosition}, writes=Bunching, key=PAIR)
def bunching(positions: tw.Stream, *, every: str = "10 s", nearer: float = 200.0) -> tw.Result:
    """Two vehicles of a route and direction close together: when it starts and when it ends, with the duration.

    They are bunched in a window if their last positions in it are less than `nearer` metres apart. It starts with the
    first such window and ends with the first that is none, be they farther apart or one of them not heard of; these
    windows' last moments are the results' times, and the duration is what lies between.
    """
    period = timedelta(microseconds=tw.time.duration(every))
    near = pairs(positions, every=every).filter(pl.col("distance") < nearer)
    # The next window's pair is at most a period away; a timer just behind that finds out that there was none.
    over = tw.Timer(after=period + timedelta(microseconds=1))
    return near.key_by(*PAIR).process(_Changes(period), state={"since": _TIME, "over": over})


@dataclass(frozen=True)
class _Changes:
    """Report the first window in which a pair is near, and the first in which it no longer is."""

    stable_name: ClassVar[str] = "bunching.changes/1"

    period: timedelta

    __name__ = "bunching"

    def __call__(self, events: pl.DataFrame, state: pl.DataFrame, clock: tw.Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
        tick = timedelta(microseconds=1)
        over = state.filter(pl.col("over_due")).with_columns(event_time=pl.col("over") - tick)
        ended = over.select(
            *PAIR,
            "event_time",
            "since",
            change=pl.lit("end"),
            distance=pl.lit(None, pl.Float64),
            duration=(pl.col("event_time") - pl.col("since")).dt.total_microseconds() / 1_000_000,
        )
        first = events.group_by(PAIR, maintain_order=True).agg(pl.col("event_time", "distance").first())
        begun = first.join(state.filter(pl.col("since").is_null()), on=PAIR, how="semi")
        started = begun.select(
            *PAIR,
            "event_time",
            since="event_time",
            change=pl.lit("start"),
            distance="distance",
            duration=pl.lit(None, pl.Float64),
        )
        latest = events.group_by(PAIR, maintain_order=True).agg(
            began=pl.col("event_time").first(), over=pl.col("event_time").last() + self.period + tick
        )
        new = latest.join(state.select(*PAIR, "since"), on=PAIR, how="left", maintain_order="left")
        new = new.select(*PAIR, pl.coalesce("since", "began").alias("since"), "over")
        return pl.concat([ended, started]), new
