"""All transit jobs against their oracles, over one input."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from tests.support.hfp_messages import rows as rows_of
from tests.transit.jobs import job_oracles as oracle
from tests.transit.jobs.job_cases import height, late_rows, materialize, micros, repeated_rows, skipped, with_unresolved
from tests.transit.jobs.job_oracles import Batches, Reported, Row
from tests.transit.jobs.pure_run import Outputs
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Processed
from tidewheel.ingest.replay.recording import read_recording
from tidewheel_transit import jobs
from tidewheel_transit.hfp import HfpProcessor

JOB_TOPICS = ("input.vehicle-position", "input.arrival")
TEN = [getattr(jobs, name) for name in jobs.__all__ if name != "vehicle_cell"]
CENTRE = [(24.9300, 60.1640), (24.9540, 60.1640), (24.9540, 60.1750), (24.9300, 60.1750)]
PASILA = [(24.9250, 60.1950), (24.9420, 60.1950), (24.9420, 60.2030), (24.9250, 60.2030)]
PAIR = ["route", "direction", "operator", "vehicle", "other_operator", "other_vehicle"]
STOP = ["operator", "vehicle", "match_start", "match_end", "event_time", "mode", "speed_difference"]
STOP += ["strongest_deceleration", "lat", "lon"]
CROSSING = ["operator", "vehicle", "mode", "lat", "lon", "fence", "change", "event_time", "since", "inside"]
NOTHING = {
    "tram6_bus550_2020": {"delay-distribution", "emergency-stop", "emergency-stop-sql", "bunching", "closing-in"},
    "bus510_2020": {"delay-distribution", "bunching"},
    "bus520_2024": {"emergency-stop", "emergency-stop-sql", "bunching", "closing-in"},
    "lightrail15": {
        "delay-distribution", "emergency-stop", "emergency-stop-sql", "bunching", "closing-in", "geofences",
    },
}  # fmt: skip
"""The recordings, each with the jobs that find nothing in it."""

RECORDINGS = list(NOTHING)
REPEATING = {"tram6_bus550_2020", "bus520_2024"}
"""The recordings with positions that were sent twice."""

_NONE: Mapping[Any, Row] = MappingProxyType({})
_OFTEN_MISSING = ("stop", "doors", "scheduled_arrival", "speed", "acc", "odometer", "route", "direction", "start")


@cache
def recording(path: Path) -> Processed:
    """A recording as records of the log."""
    return HfpProcessor().process(
        [Message(item.topic, item.payload, item.received_at or 0) for item in read_recording(path)]
    )


def events_of(processed: Processed) -> pl.DataFrame:
    """Its events, with the columns that the oracles look at."""
    events = pl.DataFrame(rows_of(processed), infer_schema_length=None)
    missing = [name for name in _OFTEN_MISSING if name not in events.columns]
    return events.with_columns(pl.lit(None).alias(name) for name in missing)


def at_once(events: pl.DataFrame) -> dict[str, Batches]:
    """The events of each topic as one batch: none is late."""
    plain = micros(events)
    return {topic: [(plain.filter(pl.col("topic") == topic).to_dicts(), None)] for topic in JOB_TOPICS}


def as_cut(events: pl.DataFrame, checkpoint: Path) -> dict[str, Batches]:
    """The events of each topic in the batches that Spark has made, each with the watermark that it moves to: a second
    behind the highest time of the topic that is furthest behind."""
    rows = {topic: given[0][0] for topic, given in at_once(events).items()}
    topics = [topic for topic, those in rows.items() if those]
    found: dict[str, list[tuple[Sequence[Row], int | None]]] = {topic: [] for topic in topics}
    start, highest = dict.fromkeys(topics, 0), dict.fromkeys(topics, 0)
    offsets = checkpoint / "spark" / "offsets"
    for number in range(len([*offsets.glob("[0-9]*")])):
        reported = json.loads((offsets / str(number)).read_text(encoding="utf-8").splitlines()[-1])
        ends = {topic: reported["positions"][topic]["0"] for topic in topics}
        taken = {topic: rows[topic][start[topic] : end] for topic, end in ends.items()}
        highest = {topic: max([highest[topic], *(row["event_time"] for row in taken[topic])]) for topic in topics}
        mark = min(highest.values()) - oracle.SECOND if all(highest.values()) else None
        assert reported["watermark"] == mark, number
        for topic in topics:
            found[topic].append((taken[topic], mark))
        start = ends
    assert start == {topic: len(rows[topic]) for topic in topics}, "all was read"
    return dict(found)


@dataclass(frozen=True)
class Checked:
    """How much each job found, how many rows were too late for it, and how many it told apart as repeats."""

    sizes: dict[str, int]
    late: dict[str, int]
    repeats: dict[str, int]


def check_all(found: dict[str, Outputs], given: Mapping[str, Batches], *, known: Mapping[Any, Row] = _NONE) -> Checked:
    """Compare the final tables of all jobs, which rows were late and which were told apart as repeats with the oracles
    over the whole input. `known` are the final stops that an answer was found for."""
    positions, stops = (given[topic] for topic in JOB_TOPICS)
    checked = Checked({}, {}, {})

    def equal(name: str, table: Any, expected: Any, late: Reported, repeats: Reported | None = None) -> None:
        assert table == expected, name
        assert late_rows(found[name]) == late, name
        assert repeated_rows(found[name]) == (repeats or {}), name
        checked.sizes[name] = len(expected)
        checked.late[name] = late.total()
        if repeats is not None:
            checked.repeats[name] = repeats.total()

    expected, late = oracle.vehicle_distribution(positions)
    equal("vehicle-distribution", vehicles(found["vehicle-distribution"]), expected, late)
    expected, late = oracle.final_stop_distribution(positions, known)
    equal("final-stop-distribution", vehicles(found["final-stop-distribution"]), expected, late)
    expected, late, repeats, unscheduled = oracle.delay_distribution(stops)
    table = materialize(found["delay-distribution"], ["cell"], ["arrivals", "p50", "p90", "p99"])
    equal("delay-distribution", table, expected, late, repeats)
    assert unscheduled == skipped(found["delay-distribution"])["without_schedule"]
    table = materialize(found["flow-direction"], ["cell"], ["neighbour", "crossings", "total"])
    equal("flow-direction", table, *oracle.flow_direction(positions))
    expected, late, repeats = oracle.emergency_stop(positions)
    wanted = sorted((*key, key[3], values[0], *rounded(values[1:])) for key, values in expected.items())
    for name in ("emergency-stop", "emergency-stop-sql"):
        rows = sorted((*row[:6], *rounded(row[6:])) for row in select(found[name], STOP))
        equal(name, rows, wanted, late, repeats)
    keys = ["operator", "vehicle", "operating_day", "start", "route", "direction"]
    values = ["first_time", "last_time", "duration", "distance", "events", "highest_speed", "stops_served"]
    expected, late, repeats = oracle.journeys(positions)
    whole = {key: row for key, row in materialize(found["journeys"], keys, values).items() if row}
    equal("journeys", exact(latest_sessions(whole)), exact(expected), late, repeats)
    late = oracle.late_samples(positions)
    columns = [*PAIR, "change", "event_time", "since", "distance", "duration"]
    rows = [(row[:6], row[6], *row[7:9], *rounded(row[9:])) for row in select(found["bunching"], columns)]
    wanted = [(*row[:4], *rounded(row[4:])) for row in oracle.bunching(positions)]
    equal("bunching", sorted(rows, key=repr), sorted(wanted, key=repr), late)
    columns = [*PAIR, "event_time", "distance", "closing_speed"]
    rows = [(row[:6], row[6], *rounded(row[7:])) for row in select(found["closing-in"], columns)]
    wanted = [(row[0], row[1], *rounded(row[2:])) for row in oracle.closing_in(positions)]
    equal("closing-in", sorted(rows), sorted(wanted), late)
    wanted, late, repeats = oracle.geofences(positions, {"centre": CENTRE, "Pasila": PASILA})
    rows = sorted(select(found["geofences"], CROSSING), key=repr)
    equal("geofences", rows, sorted(wanted, key=repr), late, repeats)
    assert checked.sizes.keys() == {job.name for job in TEN}
    for job in TEN:
        check_rows(found[job.name], sum(len(rows) for rows, _ in positions), job)
    assert skipped(found["bunching"]) == oracle.skipped(positions, place=True, route=True)
    assert skipped(found["journeys"]) == oracle.skipped(positions, place=False, journey=True)
    return checked


def check_found(name: str, checked: Checked) -> None:
    """What each job finds in a recording, and whether it tells repeats apart."""
    assert {job for job, size in checked.sizes.items() if not size} == NOTHING[name]
    assert not any(checked.late.values())
    assert len(checked.repeats) == 6
    for job, count in checked.repeats.items():
        assert (count > 0) == (name in REPEATING and not (job == "delay-distribution" and job in NOTHING[name])), job


def check_rows(found, count, job):
    """Every event is accepted, skipped and counted, or late; of arrivals the job takes ARS only."""
    if job.name == "delay-distribution" and "metrics" not in found:
        return  # no vehicle arrived
    metrics = found["metrics"].filter(pl.col("stage") == 0)
    total = metrics["events"].sum()
    assert total == metrics["accepted"].sum() + metrics["late"].sum() + metrics["skipped"].sum()
    assert metrics["late"].sum() == height(found, "late")
    assert total == count or job.name == "delay-distribution"


def vehicles(found):
    """By cell and window; 0 is where vehicles are heading of which that is not known."""
    return {key: count for key, (count,) in materialize(with_unresolved(found), ["cell"], ["vehicles"]).items()}


def latest_sessions(table):
    """In output mode value a session that grew replaces those that it was made of."""

    def replaced(key, window):
        return any(
            other == key and start <= window[0] and window[1] <= end and (start, end) != window
            for other, (start, end) in table
        )

    return {(key, window): row for (key, window), row in table.items() if not replaced(key, window)}


def exact(table):
    return {key: tuple(rounded(row)) for key, row in table.items()}


def rounded(values):
    return tuple(round(value, 2) + 0.0 if isinstance(value, float) else value for value in values)


def select(found, columns):
    return micros(found["results"]).select(columns).rows() if "results" in found else []
