"""Simulated traffic in a log that gives every job something to tell: with disorder and repeats, with vehicles that
follow each other closely, and with what is known of final stops."""

from __future__ import annotations

import random
from collections.abc import Sequence

import polars as pl
from google.protobuf.message import Message

from tests.transit.jobs.job_checks import JOB_TOPICS
from tests.transit.jobs.job_oracles import MINUTE
from tests.transit.simulator_support import MORNING
from tidewheel.ingest.lookup import Limits, LookupWorker, ProviderError
from tidewheel.transport.events.codec import decode_columns, encode, encode_columns, pack
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel_transit.final_stop import FINAL_STOP, SimulatedFinalStops
from tidewheel_transit.simulator import Simulator
from tidewheel_transit.topics import EVENTS, TOPICS
from tidewheel_transit.transit_pb2 import VehiclePosition

END = 200 * MINUTE
"""So far after the last event a marker lets every window end."""

_EVENTS = {topic: [event for event, home in EVENTS.items() if home.topic == topic] for topic in JOB_TOPICS}
_NONE = pl.lit(False)
_SPEEDS, _BRAKES = {20: 12.0, 21: 7.0, 22: 2.0, 23: 0.0}, {20: 0.0, 21: -5.0, 22: -5.0, 23: 0.0}
"""By the second: how a vehicle comes to a standstill."""


def traffic(*, seconds: int, rate: float, seed: int, hold: pl.Expr = _NONE) -> pl.DataFrame:
    """What arrives in so many seconds of a morning, in its order. Each third vehicle has another one behind it, which
    does the same 25 seconds later: when the one halts the other comes near. Each fourth brakes hard now and then, and
    of its events one in ten comes a minute late, as those to `hold` do. Of the arrivals some come twice, as positions
    do anyway."""
    frame = Simulator(start=MORNING, seed=seed, rate=rate).advance(MORNING + seconds * 1_000_000).frame
    ongoing = frame.filter(pl.col("temporal") == "ongoing")
    later = pl.col("event_time", "arrival_time") + pl.duration(seconds=25)
    followers = ongoing.filter(pl.col("vehicle") % 3 == 0).with_columns(later, pl.col("vehicle") + 50_000)
    twice = ongoing.filter((pl.col("event") == "ars") & (pl.col("event_time").dt.epoch("s") % 5 == 0)).with_columns(
        pl.col("arrival_time") + pl.duration(seconds=1)
    )
    fourth = pl.col("vehicle") % 4 == 0
    second = pl.when(fourth & (pl.col("event") == "vp")).then(pl.col("event_time").dt.epoch("s") % 40)
    held = (fourth & (pl.col("event_time").dt.epoch("s") % 10 == 7)) | hold
    return (
        pl.concat([ongoing, followers, twice])
        .with_columns(
            speed=second.replace_strict(_SPEEDS, default=pl.col("speed")),
            acc=second.replace_strict(_BRAKES, default=pl.col("acc")),
            arrival_time=pl.col("arrival_time") + pl.when(held).then(pl.duration(minutes=1)).otherwise(pl.duration()),
        )
        .sort("arrival_time", maintain_order=True)
    )


class Uncertain:
    """Knows some lines, does not know others, and cannot tell of some."""

    async def ask(self, key):
        match int(key[0][:4] if key[0][:4].isdecimal() else 0) % 3:
            case 0:
                return await SimulatedFinalStops().ask(key)
            case 1:
                return None
            case _:
                raise ProviderError("broken", again=False, healthy=True)


def fill(
    log: Log, *, seconds: int, rate: float, seed: int, blocks: tuple[int, int] = (50, 900), hold: pl.Expr = _NONE
) -> None:
    """Such traffic in uneven blocks, and an end that lets every window close. Some final stops are answered, some are
    unknown, and for some the service is broken."""
    came = traffic(seconds=seconds, rate=rate, seed=seed, hold=hold)
    dice = random.Random(seed)
    start = 0
    while start < came.height:
        block = came[start : start + dice.randrange(*blocks)]
        start += block.height
        for topic in JOB_TOPICS:
            mine = block.filter(pl.col("event").is_in(_EVENTS[topic]))
            if mine.height:
                put(log, topic, mine)
    finished(log, came)
    limits = Limits(breaker_failures=10_000)
    LookupWorker(log, FINAL_STOP, Uncertain(), topics=JOB_TOPICS[0], type=VehiclePosition, limits=limits).run(
        until_idle=True
    )


def finished(log: Log, events: pl.DataFrame) -> None:
    """Let time pass by all windows: with a deadrun long after the last event, which all jobs skip."""
    last = max(time for time in events["event_time"].cast(pl.Int64) if time is not None)
    for topic, event in (("input.vehicle-position", "vp"), ("input.arrival", "due")):
        marker = pack(TOPICS[topic](journey="deadrun", event=event, operator=9, vehicle=9), event_time=last + END)
        log.append(topic, records([encode(marker)], event_times=[last + END]))


def events_in(log: Log, topics: Sequence[str] = JOB_TOPICS) -> pl.DataFrame:
    """What the jobs read, in the order of each topic."""
    frames = [
        pl.DataFrame(pl.from_arrow(decode_columns(TOPICS[topic], batch.records["value"]).columns)).with_columns(
            topic=pl.lit(topic)
        )
        for topic in topics
        for batch in log.read(topic, 0, 0)
    ]
    return pl.concat(frames, how="diagonal")


def put(log: Log, topic: str, frame: pl.DataFrame, *, message: type[Message] | None = None) -> None:
    """Append events as one block."""
    message = message or TOPICS[topic]
    columns = frame.select(list(message.DESCRIPTOR.fields_by_name))
    times = frame["event_time"].to_arrow()
    values = encode_columns(message, columns, event_time=times, ingestion_time=frame["arrival_time"].to_arrow())
    log.append(topic, records(values, event_times=times))
