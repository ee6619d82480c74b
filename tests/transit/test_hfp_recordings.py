"""Real recordings through the HFP processor: nothing is lost, and what is known to be in them is found."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from tests.support.hfp_messages import rows
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Processed
from tidewheel.ingest.replay.recording import RecordedMessage, read_recording
from tidewheel_transit.hfp import HfpProcessor

FILES = {
    "tram6_bus550_2020": 5_237,
    "bus510_2020": 22_685,
    "bus520_2024": 3_690,
    "lightrail15": 110,
}


@cache
def _processed(path: Path) -> Processed:
    messages = []
    for item in read_recording(path):
        assert isinstance(item, RecordedMessage)
        messages.append(Message(item.topic, item.payload, item.received_at or 0))
    assert len(messages) == FILES[path.name.removesuffix(".jsonl.gz")]
    processed = HfpProcessor().process(messages)
    assert processed.count == len(messages)
    return processed


@pytest.fixture
def recording(shared: Path):
    def get(name: str) -> tuple[Processed, pl.DataFrame]:
        processed = _processed(shared / "data" / "hfp" / f"{name}.jsonl.gz")
        return processed, pl.DataFrame(rows(processed), infer_schema_length=None)

    return get


@pytest.mark.parametrize("name", FILES)
def test_each_message_is_in_a_topic_or_filtered_by_a_named_rule(recording, name):
    processed, events = recording(name)
    assert Counter(dead.kind for dead in processed.dead) == {}
    assert dict(processed.filtered) == ({"upcoming": 12} if name == "bus520_2024" else {})
    assert len(events) == FILES[name] - sum(processed.filtered.values())


def test_repeats_are_kept(recording):
    processed, _ = recording("bus520_2024")
    values = [value for batch in processed.topics.values() for value in batch.column("value").to_pylist()]
    assert len(values) - len(set(values)) == 1_691


def test_dead_runs_are_marked(recording):
    _, events = recording("bus520_2024")
    dead_runs = events.filter(pl.col("journey") == "deadrun")
    assert len(dead_runs) == 1_264
    assert dead_runs["headsign"].null_count() == len(dead_runs)
    assert set(dead_runs["event"]) == {"vp", "doo", "doc", "bout"}


def test_positions_without_a_place_are_kept(recording):
    _, events = recording("bus520_2024")
    assert events["lat"].null_count() == events["lon"].null_count() == 940
    assert recording("tram6_bus550_2020")[1]["lat"].null_count() == 4


def test_arrivals_without_a_scheduled_time_are_kept(recording):
    arrivals = [
        recording(name)[1].filter(pl.col("event") == "ars").select("event", "^scheduled_arrival$") for name in FILES
    ]
    together = pl.concat(arrivals, how="diagonal")
    assert len(together) == 54
    assert together["scheduled_arrival"].null_count() == 34


def test_two_operators_are_distinguished(recording):
    _, events = recording("bus520_2024")
    reported = events.filter(pl.col("reported_operator").is_not_null())
    pairs = reported.group_by("operator", "reported_operator").len().rows()
    assert sorted(pairs) == [(12, 40, 52), (18, 6, 433)]


def test_traffic_lights_keep_what_only_they_have(recording):
    _, events = recording("bus520_2024")
    lights = events.filter(pl.col("topic") == "input.traffic-light")
    assert len(lights) == 8
    assert all('"sid":' in extra and '"tlp-protocol":' in extra for extra in lights["extra"])
    assert lights["start"].str.contains(r"^\d\d:\d\d$").all()
