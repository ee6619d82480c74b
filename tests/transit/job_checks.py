"""All transit jobs against their oracles, over one input."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import job_oracles as oracle
import polars as pl
from hfp_messages import rows as rows_of
from job_cases import final_table, height, micros, skipped
from pure_run import Outputs

from tidewheel.apps.transit import jobs
from tidewheel.apps.transit.hfp import HfpProcessor
from tidewheel.apps.transit.topics import TOPICS
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Processed
from tidewheel.ingest.recording import read_recording

TEN = [getattr(jobs, name) for name in jobs.__all__ if name != "vehicle_cell"]
CENTRE = [(24.9300, 60.1640), (24.9540, 60.1640), (24.9540, 60.1750), (24.9300, 60.1750)]
PASILA = [(24.9250, 60.1950), (24.9420, 60.1950), (24.9420, 60.2030), (24.9250, 60.2030)]
PAIR = ["route", "direction", "operator", "vehicle", "other_operator", "other_vehicle"]
RECORDINGS = ["tram6_bus550_2020", "bus510_2020", "bus520_2024", "lightrail15"]
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


def check_all(found: dict[str, Outputs], events: pl.DataFrame, *, markers: int = 0) -> dict[str, int]:
    """Compare the final tables of all jobs with the oracles over the whole input, of which nothing is late; gives how
    much each found. `markers`: so many deadruns were added to the positions."""
    plain = micros(events)
    of = {topic: plain.filter(pl.col("topic") == topic).to_dicts() for topic in TOPICS}
    positions, stops = [(of["input.vehicle-position"], None)], [(of["input.arrival"], None)]
    for job in TEN:
        assert "late" not in found[job.name], job.name
    sizes = {}

    def equal(name, table, expected):
        assert table == expected, name
        sizes[name] = len(expected)

    expected, _ = oracle.vehicle_distribution(positions)
    table = final_table(found["vehicle-distribution"], ["cell"], ["vehicles"])
    equal("vehicle-distribution", {key: count for key, (count,) in table.items() if count}, expected)
    expected, _, repeats, unscheduled = oracle.delay_distribution(stops)
    table = final_table(found["delay-distribution"], ["cell"], ["arrivals", "p50", "p90", "p99"])
    equal("delay-distribution", table, expected)
    assert repeats == height(found["delay-distribution"], "duplicates")
    assert unscheduled == skipped(found["delay-distribution"])["without_schedule"]
    table = final_table(found["flow-direction"], ["cell"], ["neighbour", "crossings", "total"])
    equal("flow-direction", table, oracle.flow_direction(positions)[0])
    expected, _ = oracle.emergency_stop(positions)
    wanted = sorted((*key, values[0], *rounded(values[1:])) for key, values in expected.items())
    for name in ("emergency-stop", "emergency-stop-sql"):
        columns = ["operator", "vehicle", "match_start", "match_end", "mode", "speed_difference"]
        columns += ["strongest_deceleration", "lat", "lon"]
        rows = sorted((*row[:5], *rounded(row[5:])) for row in select(found[name], columns))
        equal(name, rows, wanted)
    keys = ["operator", "vehicle", "operating_day", "start", "route", "direction"]
    values = ["first_time", "last_time", "duration", "distance", "events", "highest_speed", "stops_served"]
    expected, _, repeats = oracle.journeys(positions)
    whole = {key: row for key, row in final_table(found["journeys"], keys, values).items() if row}
    equal("journeys", exact(latest_sessions(whole)), exact(expected))
    assert repeats == height(found["journeys"], "duplicates")
    columns = [*PAIR, "change", "event_time", "since", "distance", "duration"]
    rows = [(row[:6], row[6], *row[7:9], *rounded(row[9:])) for row in select(found["bunching"], columns)]
    wanted = [(*row[:4], *rounded(row[4:])) for row in oracle.bunching(positions)]
    equal("bunching", sorted(rows, key=repr), sorted(wanted, key=repr))
    columns = [*PAIR, "event_time", "distance", "closing_speed"]
    rows = [(row[:6], row[6], *rounded(row[7:])) for row in select(found["closing-in"], columns)]
    wanted = [(row[0], row[1], *rounded(row[2:])) for row in oracle.closing_in(positions)]
    equal("closing-in", sorted(rows), sorted(wanted))
    columns = ["operator", "vehicle", "fence", "change", "event_time", "since", "inside"]
    wanted, _ = oracle.geofences(positions, {"centre": CENTRE, "Pasila": PASILA})
    equal("geofences", sorted(select(found["geofences"], columns), key=repr), sorted(wanted, key=repr))
    for job in TEN:
        check_rows(found[job.name], len(of["input.vehicle-position"]) + markers, job)
    marker = Counter(deadrun=markers)
    assert skipped(found["bunching"]) == oracle.skipped(positions, place=True, route=True) + marker
    assert skipped(found["journeys"]) == oracle.skipped(positions, place=False, journey=True) + marker
    return sizes


def check_rows(found, count, job):
    """Every event, and the marker, is accepted, skipped and counted, or late; of arrivals the job takes ARS only."""
    if job.name == "delay-distribution" and "metrics" not in found:
        return  # no vehicle arrived
    metrics = found["metrics"].filter(pl.col("stage") == 0)
    total = metrics["events"].sum()
    assert total == metrics["accepted"].sum() + metrics["late"].sum() + metrics["skipped"].sum()
    assert total == count or job.name == "delay-distribution"


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
