"""Simulated traffic in a log that gives every job something to tell: with disorder and repeats, with vehicles that
follow each other closely, and with what is known of final stops."""

from __future__ import annotations

import random

import polars as pl
from simulator_support import MORNING
from test_jobs_on_spark import finished
from test_lookup_on_spark import Uncertain

from tidewheel.apps.transit.final_stop import FINAL_STOP
from tidewheel.apps.transit.simulator import Simulator
from tidewheel.apps.transit.topics import EVENTS, TOPICS
from tidewheel.apps.transit.transit_pb2 import VehiclePosition
from tidewheel.ingest.lookup import Asker, Limits
from tidewheel.transport.codec import encode_columns
from tidewheel.transport.log import Log, records

JOB_TOPICS = ("input.vehicle-position", "input.arrival")
_EVENTS = {topic: [event for event, home in EVENTS.items() if home.topic == topic] for topic in JOB_TOPICS}


def traffic(*, seconds: int, rate: float, seed: int) -> pl.DataFrame:
    """What arrives in so many seconds of a morning, in its order. Each third vehicle has another one behind it, which
    does the same 25 seconds later: when the one halts the other comes near."""
    frame = Simulator(start=MORNING, seed=seed, rate=rate).advance(MORNING + seconds * 1_000_000).frame
    ongoing = frame.filter(pl.col("temporal") == "ongoing")
    later = pl.col("event_time", "arrival_time") + pl.duration(seconds=25)
    followers = ongoing.filter(pl.col("vehicle") % 3 == 0).with_columns(later, pl.col("vehicle") + 50_000)
    return pl.concat([ongoing, followers]).sort("arrival_time", maintain_order=True)


def fill(log: Log, *, seconds: int, rate: float, seed: int) -> None:
    """Such traffic in uneven blocks, and an end that lets every window close. Some final stops are answered, some are
    unknown, and for some the service is broken."""
    came = traffic(seconds=seconds, rate=rate, seed=seed)
    dice = random.Random(seed)
    start = 0
    while start < came.height:
        block = came[start : start + dice.randrange(50, 900)]
        start += block.height
        for topic in JOB_TOPICS:
            mine = block.filter(pl.col("event").is_in(_EVENTS[topic]))
            if mine.height:
                put(log, topic, mine)
    finished(log, came)
    limits = Limits(breaker_failures=10_000)
    Asker(log, FINAL_STOP, Uncertain(), topics=JOB_TOPICS[0], type=VehiclePosition, limits=limits).run(until_idle=True)


def put(log: Log, topic: str, frame: pl.DataFrame) -> None:
    """Append events as one block."""
    message = TOPICS[topic]
    columns = frame.select(list(message.DESCRIPTOR.fields_by_name))
    times = frame["event_time"].to_arrow()
    values = encode_columns(message, columns, event_time=times, ingestion_time=frame["arrival_time"].to_arrow())
    log.append(topic, records(values, event_times=times))
