"""delay-distribution: how late vehicles arrive, per cell."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

import tidewheel as tw
from tidewheel_transit.jobs.steps import VEHICLE, in_cells, once, windowed
from tidewheel_transit.transit_pb2 import Arrival, DelayCount

__all__ = ["delay_distribution"]


@tw.job("delay-distribution", reads={"input.arrival": Arrival}, writes=DelayCount, key="cell")
def delay_distribution(
    arrivals: tw.Stream,
    *,
    resolution: int = 9,
    size: str = "5 min",
    every: str = "5 s",
    lateness: str = "5 s",
    mode: str = "value",
    early: str = "",
) -> tw.Result:
    """How late vehicles arrive at the stops of a cell: count and nearest-rank p50, p90 and p99 in minutes.

    An arrival is an event ARS. Its delay is its time, cut to the minute, less the scheduled arrival, in whole minutes;
    late is positive. Those without a scheduled arrival are skipped, and counted as `without_schedule`.
    """
    stopped = arrivals.filter(pl.col("event") == "ars").skip(without_schedule=pl.col("scheduled_arrival").is_null())
    late = pl.col("event_time").dt.truncate("1m") - pl.col("scheduled_arrival").dt.truncate("1m")
    delays = in_cells(stopped, resolution).select(
        *VEHICLE, "stop", "cell", delay=late.dt.total_minutes().cast(pl.Int32)
    )
    # An event is accepted as long as one of its windows is.
    single = once(delays, behind=timedelta(microseconds=tw.time.duration(size) + tw.time.duration(lateness)))
    return windowed(
        single.key_by("cell"), tw.windows.sliding(size, every=every), lateness=lateness, early=early, mode=mode
    ).aggregate(
        arrivals=tw.agg.count(),
        p50=tw.agg.percentile("delay", 50),
        p90=tw.agg.percentile("delay", 90),
        p99=tw.agg.percentile("delay", 99),
    )
