from __future__ import annotations

import json
from itertools import pairwise

import polars as pl

from tests.transit.simulator_support import MORNING
from tidewheel.transport.events import codec
from tidewheel_transit.hfp import HfpProcessor
from tidewheel_transit.simulator import Chunk, Simulator
from tidewheel_transit.topics import TOPICS

FIELDS = (
    *(
        "desi",
        "dir",
        "oper",
        "veh",
        "tst",
        "tsi",
        "spd",
        "hdg",
        "lat",
        "long",
        "acc",
        "dl",
        "odo",
        "drst",
        "oday",
        "jrn",
    ),
    *("line", "start", "loc", "stop", "route", "occu"),
)


def minute(seed: int = 11) -> Chunk:
    return Simulator(start=MORNING, seed=seed, rate=300).advance(MORNING + 60_000_000)


def test_the_processor_makes_the_same_records_of_the_messages() -> None:
    chunk = minute()
    direct, by_text = chunk.records(), HfpProcessor().process(chunk.messages())
    assert by_text.dead == []
    assert direct.filtered == by_text.filtered
    assert direct.count == by_text.count == len(chunk)
    assert set(direct.topics) == set(by_text.topics) == set(TOPICS)
    for topic, batch in direct.topics.items():
        assert batch.equals(by_text.topics[topic]), topic


def test_records_carry_the_columns() -> None:
    chunk = minute()
    frame = chunk.frame.filter((pl.col("event") == "vp") & (pl.col("temporal") == "ongoing"))
    batch = chunk.records().topics["input.vehicle-position"]
    decoded = codec.decode_columns(TOPICS["input.vehicle-position"], batch["value"])
    found = pl.from_arrow(decoded.columns)
    assert isinstance(found, pl.DataFrame)
    expected = frame.rename({"arrival_time": "ingestion_time"}).select(found.columns)
    assert found.equals(expected)
    keys = [f"{operator:04}/{vehicle:05}".encode() for operator, vehicle in frame.select("operator", "vehicle").rows()]
    assert batch["key"].to_pylist() == keys
    assert pl.Series(batch["event_time"]).to_list() == frame["event_time"].to_list()


def test_a_topic_says_who_where_and_what() -> None:
    chunk = minute()
    for message, row in zip(chunk.messages(), chunk.frame.iter_rows(named=True), strict=True):
        vehicle = f"{row['event']}/{row['mode']}/{row['operator']:04}/{row['vehicle']:05}"
        if row["journey"] == "deadrun":
            assert message.topic == f"/hfp/v2/deadrun/ongoing/{vehicle}"
            continue
        journey = f"{row['route']}/{row['direction']}/{row['headsign']}/{row['start']}/{row['next_stop']}"
        head, geohash = f"/hfp/v2/journey/{row['temporal']}/{vehicle}/{journey}", "0////"
        if row["lat"] is not None:
            lat, lon = f"{row['lat']:.6f}", f"{row['lon']:.6f}"
            pairs = "/".join(lat[3 + digit] + lon[3 + digit] for digit in range(3))
            geohash = f"{row['geohash_level']}/{lat[:2]};{lon[:2]}/{pairs}"
        assert message.topic == f"{head}/{geohash}"


def test_messages_arrive_when_the_columns_say() -> None:
    chunk = minute()
    assert [message.received_at for message in chunk.messages()] == chunk.frame["arrival_time"].to_physical().to_list()


def test_a_payload_is_one_key_in_capitals_over_the_fields() -> None:
    chunk = minute()
    stop_events = frozenset(["due", "arr", "ars", "wait", "pde", "dep", "pas", "doo", "doc"])
    for message, row in zip(chunk.messages(), chunk.frame.iter_rows(named=True), strict=True):
        ((name, body),) = json.loads(message.payload).items()
        assert name == row["event"].upper()
        times = ("ttarr", "ttdep") if row["event"] in stop_events else ()
        more = tuple(json.loads(row["extra"])) if row["extra"] else ()
        assert tuple(body) == FIELDS + times + more
        assert body["stop"] == (None if row["stop"] is None else int(row["stop"]))
        assert body["tst"] == row["event_time"].strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def test_the_level_of_a_geohash_is_the_first_digit_that_changed() -> None:
    frame = minute().frame.filter((pl.col("event") == "vp") & (pl.col("journey") == "journey"))
    for _, track in frame.sort("event_time").group_by("operator", "vehicle"):
        rows = track.select("lat", "lon", "next_stop", "geohash_level", "event_time").rows()
        for (lat, lon, next_stop, _, time), (new_lat, new_lon, new_next_stop, level, new_time) in pairwise(rows):
            if (new_time - time).total_seconds() != 1:
                continue
            if None in (lat, lon, new_lat, new_lon) or next_stop != new_next_stop:
                assert level == 0
                continue
            pairs = ((lat, new_lat), (lon, new_lon))
            digits = [[f"{value:.6f}".replace(".", "")[1:] for value in pair] for pair in pairs]
            changed = [digit for old, new in digits for digit in range(6) if old[digit] != new[digit]]
            assert level == min([*changed, 5])
